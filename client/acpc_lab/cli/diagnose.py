"""``acpc compare``, ``acpc certify`` and ``acpc plan-paired``."""

import enum
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer
from acpc.contract import PairedRequest, PairRequest, PerturbationSet, PlanStart
from acpc_client import CemBudget, CheckpointRef, PoolCertificate, answered, read_npz
from acpc_client.errors import ArgumentError

from acpc_lab.cli import render
from acpc_lab.cli.command import PLANNER, VIEWS, given, sets
from acpc_lab.cli.gates import Case, JunitOption, publish
from acpc_lab.cli.options import (
    AnswerOptions,
    Digest,
    Exit,
    Mode,
    Options,
    Server,
    Shifts,
    WeightsOption,
    read_grid,
)


class Selection(enum.StrEnum):
    """Choices of ``--require``."""

    TOP1 = "top1"
    ELITE = "elite"


MOMENT = ("past_blocks", "proprio", "goal_proprio")
"""What a planner's moment may have besides its history and its goal."""


_PLANNER = ("cost_reduction", "endpoint_tolerance", "objective")
_BUDGET = ("candidates", "elites", "iterations", "horizon")


@dataclass(frozen=True, kw_only=True)
class _Asked(AnswerOptions, Server):
    """What every interactive command takes: an input, a checkpoint and other views."""

    input: Annotated[
        Path,
        typer.Option(exists=True, dir_okay=False, help="NPZ file with the arrays listed above."),
    ]
    checkpoint: Annotated[
        str, typer.Option(metavar="NAME", help="Checkpoint at the server: its folder.")
    ]
    weights_file: WeightsOption = ""
    digest: Digest = ""
    numeric_mode: Mode = None
    shift: Shifts = None
    draws: Annotated[int | None, sets(PerturbationSet, "draws", panel=VIEWS)] = None
    seed: Annotated[int | None, sets(PerturbationSet, "seed", panel=VIEWS)] = None
    anchor: Annotated[int | None, sets(PerturbationSet, "anchor", panel=VIEWS)] = None

    @property
    def named(self) -> CheckpointRef:
        """The checkpoint."""
        return CheckpointRef(self.checkpoint, self.weights_file, self.digest)

    def picked(self, *names: str) -> dict[str, Any]:
        """Returns the options of some names that were given, as arguments of the client."""
        return given(**{name: getattr(self, name) for name in names})

    def read(self, needed: Sequence[str], optional: Sequence[str]) -> dict[str, Any]:
        """The arrays of ``--input`` and the views, as the client's calls take them.

        Raises typer.BadParameter: Not an NPZ file, one with other arrays, or both ``--shift`` and
        an array ``views``, or neither.
        """
        try:
            arrays = read_npz(self.input)
        except ArgumentError as error:
            raise typer.BadParameter(error.message, param_hint="--input") from error
        missing = [name for name in needed if name not in arrays]
        unknown = [name for name in arrays if name not in (*needed, *optional, "views")]
        if missing or unknown:
            wrong = f"missing {', '.join(missing)}" if missing else f"unknown {', '.join(unknown)}"
            wanted = f"wanted {', '.join(needed)} and optionally {', '.join((*optional, 'views'))}"
            raise typer.BadParameter(f"{self.input}: {wrong}; {wanted}", param_hint="--input")
        if bool(self.shift) == ("views" in arrays):
            found = "both --shift and" if self.shift else "neither --shift nor"
            raise typer.BadParameter(
                f"found {found} an array views; give one of them", param_hint="--shift"
            )
        views = {"perturbations": read_grid(self.shift or ()), "views": arrays.get("views")}
        more = self.picked("draws", "seed", "anchor", "numeric_mode")
        return {**dict.fromkeys(optional), **arrays, **views, **more}


@dataclass(frozen=True, kw_only=True)
class _Planner(Options):
    cost_reduction: Annotated[Any, sets(PlanStart, "cost_reduction", "--cost", panel=PLANNER)] = (
        None
    )
    endpoint_tolerance: Annotated[
        float | None, sets(PlanStart, "endpoint_tolerance", "--tolerance", panel=PLANNER)
    ] = None
    objective: Annotated[Any, sets(PlanStart, "objective", panel=PLANNER)] = None
    junit: JunitOption = None


@dataclass(frozen=True, kw_only=True)
class Compare(_Asked):
    r"""Do two views of one history lead to the same predicted future?

    The input holds `history` uint8 (h, height, width, 3) and `action_blocks` float32
    (h + H - 1, block width); optional `observed_future` uint8 (H, height, width, 3) adds
    prediction errors; optional `views` (views, h, height, width, 3), uint8 or float32 in [0, 1],
    takes the place of `--shift`; `proprio` float32 (h, width), and `future_proprio` (H, width) with
    `observed_future`, where the checkpoint's frames come with proprioception.

    **Examples**

        acpc compare --input pair.npz --checkpoint lewm-pusht \
            --shift gaussian_noise:0.08 --shift blur:15 --draws 5
        acpc compare --input pair.npz --checkpoint lewm-pusht --shift blur:15 \
            --weights 0.5,0.25,0.125,0.125 --numeric-mode bf16
        acpc compare --input with_views.npz --checkpoint lewm-pusht --json
    """

    weights: Annotated[Any, sets(PairRequest, "weights")] = None

    def run(self) -> None:
        """Compares, and prints a row per view."""
        optional = ("observed_future", "proprio", "future_proprio")
        asked = self.read(("history", "action_blocks"), optional) | self.picked("weights")
        with self.connect() as client:
            result = answered("comparison", client.compare_pair, self.named, **asked)
        self.answer(result, lambda: render.comparison(result.answer, asked["perturbations"]))


@dataclass(frozen=True, kw_only=True)
class Certify(_Planner, _Asked):
    r"""Can this visual change alter the planner's choice among these candidates?

    The input holds `history` uint8 (h, height, width, 3), `candidates` float32 (candidates, H,
    block width) and `goal`, a frame uint8 (height, width, 3) or a latent float32 (width,);
    `past_blocks` float32 (h - 1, block width) where h is above 1; optional `views` uint8 (views,
    h, height, width, 3) takes the place of `--shift`; `offsets` float32 (candidates,) is added to
    the costs, and `infeasible` bool (candidates,) marks those that break a constraint on actions;
    `proprio` float32 (h, width) and `goal_proprio` (width,) where frames come with proprioception.

    A certificate is a proof for the views that were drawn: their winner (or elite set) is the
    clean one. Its absence proves nothing: compare it with the winner changes beside it.

    **Examples**

        acpc certify --input pool.npz --checkpoint lewm-pusht \
            --shift gaussian_noise:0.02,0.05,0.08 --draws 5 --elites 30
        acpc certify --input pool.npz --checkpoint lewm-pusht --shift blur:15 \
            --cost mean --tolerance 0.001 --numeric-mode bf16
        acpc certify --input with_views.npz --checkpoint lewm-pusht --json
        acpc certify --input pool.npz --checkpoint lewm-pusht --shift blur:15 \
            --objective l1.json --temperature 0.5

    `--objective` takes a JSON file, for example
    {"terms": [{"norm": "l1", "squared": false}], "control_weights": [0.1]}.

    A grid of severities, `kind:a,b,c`, also tells the largest one up to which every draw is
    certified. A release can gate on the exit code:

        acpc certify --input pool.npz --checkpoint "$CHECKPOINT" \
            --shift gaussian_noise:0.02 --draws 20 --require top1 || exit 1

    A few draws promise little about the others: the answer says how large a share of all draws may
    still change the choice, with 95 % confidence. 149 certified draws show that it is below 2 %.

    **Exit codes**: 0 done, and certified where required; 3 `--require` was not met; 1 error;
    2 usage.
    """

    elites: Annotated[int | None, sets(PlanStart, "elite_count", "--elites", panel=PLANNER)] = None
    weights: Annotated[Any, sets(PlanStart, "weights")] = None
    kept_elites: Annotated[int | None, sets(PlanStart, "kept_elites", panel=PLANNER)] = None
    temperature: Annotated[float | None, sets(PlanStart, "temperature", panel=PLANNER)] = None
    require: Annotated[
        Selection | None,
        typer.Option(help="Exit with 3 unless every view is certified."),
    ] = None

    def run(self) -> None:
        """Certifies, prints a row per shift, and gates where asked."""
        require = self.require
        if require is Selection.ELITE and not self.elites:
            raise typer.BadParameter(f"{require} needs --elites above 0", param_hint="--require")
        optional = (*MOMENT, "offsets", "infeasible")
        asked = self.read(("history", "candidates", "goal"), optional)
        asked |= self.picked(*_PLANNER, "weights", "kept_elites", "temperature")
        asked |= given(elite_count=self.elites)
        with self.connect() as client:
            result = answered("certificate", client.certify_pool, self.named, **asked)
        self.answer(result, lambda: render.pool(result.answer, asked["perturbations"]))
        if require is not None:
            _demand(_met(result.answer, require), f"--require {require}", self)


@dataclass(frozen=True, kw_only=True)
class PlanPaired(_Planner, _Asked):
    r"""Does this visual change alter the plan that CEM returns?

    Plans twice with common random numbers: from the clean history and from each view. Tells at
    which iteration the elite sets part, whether the plans provably agree, and what the other plan
    costs on the clean history (the selection regret).

    The input holds `history` uint8 (h, height, width, 3) and `goal`, a frame uint8 (height, width,
    3) or a latent float32 (width,); `past_blocks` float32 (h - 1, block width) where h is above 1;
    optional `views` uint8 (views, h, height, width, 3) takes the place of `--shift`; `proprio`
    float32 (h, width) and `goal_proprio` (width,) where frames come with proprioception.

    **Examples**

        acpc plan-paired --input moment.npz --checkpoint lewm-pusht --shift gaussian_noise:0.02
        acpc plan-paired --input moment.npz --checkpoint lewm-pusht --shift blur:15 \
            --candidates 300 --elites 30 --iterations 30 --returns best

    A release can gate on the exit code:

        acpc plan-paired --input moment.npz --checkpoint "$CHECKPOINT" \
            --shift gaussian_noise:0.02 --draws 5 --tolerance 0.001 --require-certified || exit 1

    **Exit codes**: 0 done, and certified where required; 3 `--require-certified` was not met;
    1 error; 2 usage.
    """

    candidates: Annotated[int | None, sets(CemBudget, "candidates", panel=PLANNER)] = None
    elites: Annotated[int | None, sets(CemBudget, "elites", panel=PLANNER)] = None
    iterations: Annotated[int | None, sets(CemBudget, "iterations", panel=PLANNER)] = None
    horizon: Annotated[int | None, sets(CemBudget, "horizon", panel=PLANNER)] = None
    sampling_seed: Annotated[int | None, sets(PairedRequest, "sampling_seed", panel=PLANNER)] = None
    returns: Annotated[Any, sets(PairedRequest, "returns", panel=PLANNER)] = None
    choices: Annotated[bool | None, sets(PairedRequest, "choices", panel=PLANNER)] = None
    require_certified: Annotated[
        bool,
        typer.Option("--require-certified", help="Exit with 3 unless every plan provably agrees."),
    ] = False

    def run(self) -> None:
        """Plans on both sides, prints a row per view, and gates where asked."""
        asked = self.read(("history", "goal"), MOMENT)
        asked |= self.picked(*_PLANNER, "sampling_seed", "returns", "choices")
        asked["budget"] = CemBudget(**self.picked(*_BUDGET))
        with self.connect() as client:
            result = answered("paired_plans", client.plan_paired, self.named, **asked)
        self.answer(result, lambda: render.paired_plans(result.answer, asked["perturbations"]))
        if self.require_certified:
            met = all(view.certified for view in result.answer.views)
            _demand(met, "--require-certified", self)


def _demand(met: bool, what: str, asked: Certify | PlanPaired) -> None:
    message = f"{'met' if met else 'not met'}: {what}"
    case = Case(f"{asked.checkpoint} {what}", "passed" if met else "failed", message)
    publish("acpc certify", [case], asked.junit)
    if not met:
        render.note(message)
        raise typer.Exit(Exit.NOT_CERTIFIED)


def _met(answer: PoolCertificate, require: Selection) -> bool:
    """Tells whether ``require`` holds everywhere; not for an answer without views."""
    found = [getattr(view, require) for view in answer.views]
    return bool(found) and all(one is not None and one.certified for one in found)
