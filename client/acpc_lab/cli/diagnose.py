"""``acpc compare``, ``acpc certify`` and ``acpc plan-paired``."""

from __future__ import annotations

import enum
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer
from acpc.contract import PlanStart
from acpc_client import PoolCertificate, answered, read_npz
from acpc_client.errors import ArgumentError

from acpc_lab.cli import render
from acpc_lab.cli.gates import Case, JunitOption, publish
from acpc_lab.cli.options import AnswerOptions, Exit, Server
from acpc_lab.cli.parameters import (
    PLANNER,
    CemChoice,
    CheckpointChoice,
    PlannerChoice,
    SummaryWeights,
    ViewChoice,
    Weights,
    given,
    sets,
)

Input = Annotated[
    Path, typer.Option(exists=True, dir_okay=False, help="NPZ file with the arrays listed above.")
]


class Selection(enum.StrEnum):
    """Choices of ``--require``."""

    TOP1 = "top1"
    ELITE = "elite"


MOMENT = ("past_blocks", "proprio", "goal_proprio")
"""What a planner's moment may have besides its history and its goal."""


def compare(
    *,
    input: Input,
    predictor: CheckpointChoice,
    views: ViewChoice,
    weights: Weights = None,
    server: Server,
    form: AnswerOptions,
) -> None:
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
    optional = ("observed_future", "proprio", "future_proprio")
    asked = _read(input, views, ("history", "action_blocks"), optional)
    asked |= given(numeric_mode=predictor.numeric_mode, weights=weights)
    with server.connect() as client:
        result = answered("comparison", client.compare_pair, predictor.named, **asked)
    form.answer(result, lambda: render.comparison(result.answer, asked["perturbations"]))


def certify(
    *,
    input: Input,
    predictor: CheckpointChoice,
    views: ViewChoice,
    planner: PlannerChoice,
    elites: Annotated[int | None, sets(PlanStart, "elite_count", "--elites", panel=PLANNER)] = None,
    weights: SummaryWeights = None,
    kept_elites: Annotated[int | None, sets(PlanStart, "kept_elites", panel=PLANNER)] = None,
    temperature: Annotated[float | None, sets(PlanStart, "temperature", panel=PLANNER)] = None,
    require: Annotated[
        Selection | None,
        typer.Option(help="Exit with 3 unless every view is certified."),
    ] = None,
    junit: JunitOption = None,
    server: Server,
    form: AnswerOptions,
) -> None:
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
    if require is Selection.ELITE and not elites:
        raise typer.BadParameter(f"{require} needs --elites above 0", param_hint="--require")
    optional = (*MOMENT, "offsets", "infeasible")
    asked = _read(input, views, ("history", "candidates", "goal"), optional)
    asked |= planner.arguments() | given(numeric_mode=predictor.numeric_mode, elite_count=elites)
    asked |= given(weights=weights, kept_elites=kept_elites, temperature=temperature)
    with server.connect() as client:
        result = answered("certificate", client.certify_pool, predictor.named, **asked)
    form.answer(result, lambda: render.pool(result.answer, asked["perturbations"]))
    if require is not None:
        _demand(_met(result.answer, require), f"--require {require}", predictor.checkpoint, junit)


def plan_paired(
    *,
    input: Input,
    predictor: CheckpointChoice,
    views: ViewChoice,
    planner: PlannerChoice,
    cem: CemChoice,
    require_certified: Annotated[
        bool,
        typer.Option("--require-certified", help="Exit with 3 unless every plan provably agrees."),
    ] = False,
    junit: JunitOption = None,
    server: Server,
    form: AnswerOptions,
) -> None:
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
    asked = _read(input, views, ("history", "goal"), MOMENT)
    asked |= planner.arguments() | cem.arguments() | given(numeric_mode=predictor.numeric_mode)
    with server.connect() as client:
        result = answered("paired_plans", client.plan_paired, predictor.named, **asked)
    form.answer(result, lambda: render.paired_plans(result.answer, asked["perturbations"]))
    if require_certified:
        met = all(view.certified for view in result.answer.views)
        _demand(met, "--require-certified", predictor.checkpoint, junit)


def _read(
    path: Path, views: ViewChoice, needed: Sequence[str], optional: Sequence[str]
) -> dict[str, Any]:
    """The arrays of ``--input`` and the views, as the client's calls take them.

    Raises typer.BadParameter: Not an NPZ file, one with other arrays, or both ``--shift`` and an
    array ``views``, or neither.
    """
    try:
        arrays = read_npz(path)
    except ArgumentError as error:
        raise typer.BadParameter(error.message, param_hint="--input") from error
    missing = [name for name in needed if name not in arrays]
    unknown = [name for name in arrays if name not in (*needed, *optional, "views")]
    if missing or unknown:
        wrong = f"missing {', '.join(missing)}" if missing else f"unknown {', '.join(unknown)}"
        wanted = f"wanted {', '.join(needed)} and optionally {', '.join((*optional, 'views'))}"
        raise typer.BadParameter(f"{path}: {wrong}; {wanted}", param_hint="--input")
    if bool(views.shift) == ("views" in arrays):
        found = "both --shift and" if views.shift else "neither --shift nor"
        raise typer.BadParameter(
            f"found {found} an array views; give one of them", param_hint="--shift"
        )
    return {**dict.fromkeys(optional), **arrays, **views.read(arrays)}


def _demand(met: bool, what: str, checkpoint: str, junit: Path | None) -> None:
    message = f"{'met' if met else 'not met'}: {what}"
    case = Case(f"{checkpoint} {what}", "passed" if met else "failed", message)
    publish("acpc certify", [case], junit)
    if not met:
        render.note(message)
        raise typer.Exit(Exit.NOT_CERTIFIED)


def _met(answer: PoolCertificate, require: Selection) -> bool:
    """Tells whether ``require`` holds everywhere; not for an answer without views."""
    found = [getattr(view, require) for view in answer.views]
    return bool(found) and all(one is not None and one.certified for one in found)
