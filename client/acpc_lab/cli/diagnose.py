"""``acpc compare``, ``acpc certify`` and ``acpc plan-paired``."""

from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

import typer
from acpc.contract import PairedRequest, PairRequest, PerturbationSet, PlanStart
from acpc_client import CemBudget, Outcome, answered, read_npz
from acpc_client.errors import ArgumentError

from acpc_lab.cli import render
from acpc_lab.cli.command import Keys, ProtocolOption, given, keys_of, read_protocol, sets
from acpc_lab.cli.connection import Server
from acpc_lab.cli.follow import Case, settle
from acpc_lab.cli.options import CheckpointName, Junit, Printed, Shifts, checkpoint_of, read_grid

_MOMENT = ("past_blocks", "proprio", "goal_proprio")
"""What a planner's moment may have besides its history and its goal."""
_VIEWS = keys_of(PerturbationSet, ("seed", "anchor"))
_PLANNER = {
    **keys_of(PerturbationSet, ("apply_to",)),
    **keys_of(PlanStart, ("cost_reduction", "endpoint_tolerance", "objective")),
}
_POOL = keys_of(PlanStart, ("weights", "kept_elites", "temperature"))
_PAIRED = keys_of(PairedRequest, ("sampling_seed", "returns", "choices"))
_MODE = keys_of(PairRequest, ("numeric_mode",))
_BUDGET = keys_of(CemBudget, section="budget")


class _Asked(Printed, Server):
    """What every interactive command takes: a checkpoint, an input and other views.

    Attributes:
        input: NPZ file with the arrays listed above.
        needed: Arrays that the input has.
        optional: Arrays that it may have, besides ``views``.
    """

    needed: ClassVar[tuple[str, ...]]
    optional: ClassVar[tuple[str, ...]] = _MOMENT

    checkpoint: CheckpointName
    input: Annotated[Path, typer.Option(exists=True, dir_okay=False)]
    shift: Shifts = None
    draws: Annotated[int | None, sets(PerturbationSet, "draws")] = None
    protocol: ProtocolOption = None

    def settings(self) -> dict[str, Any]:
        """What the protocol and the options say, as the client's calls take it."""
        return read_protocol(self.protocol, self.keys) | given(draws=self.draws)

    def ask(self, kind: str, method: str) -> Any:  # noqa: ANN401 - any answer
        """Asks by a method of the client, and prints the answer as a result of this kind."""
        settings, arrays = self.settings(), read_npz(self.input)
        optional = (*self.optional, "views")
        missing = [name for name in self.needed if name not in arrays]
        unknown = [name for name in arrays if name not in (*self.needed, *optional)]
        if missing or unknown:
            wrong = f"missing {', '.join(missing)}" if missing else f"unknown {', '.join(unknown)}"
            wanted = f"wanted {', '.join(self.needed)} and optionally {', '.join(optional)}"
            raise ArgumentError("--input", f"{self.input}: {wrong}; {wanted}")
        if bool(self.shift) == ("views" in arrays):
            found = "both --shift and" if self.shift else "neither --shift nor"
            raise ArgumentError("--shift", f"found {found} an array views; give one of them")
        shifts = read_grid(self.shift or ())
        views = {"perturbations": shifts, "views": arrays.get("views")}
        asked = {**dict.fromkeys(self.optional), **arrays, **views, **settings}
        with self.connect() as client:
            call = getattr(client, method)
            result = answered(kind, call, checkpoint_of(self.checkpoint), **asked)
        render.answer(result, shifts)
        return result.answer

    def demand(self, met: bool, option: str, junit: Path | None) -> None:
        """Writes the JUnit file, and exits where what an option requires is not met."""
        message = f"{'met' if met else 'not met'}: {option}"
        shifts = ", ".join(self.shift or ["given views"])
        outcome = Outcome.PASSED if met else Outcome.FAILED
        case = Case(f"{self.checkpoint} under {shifts} {option}", outcome, message)
        code = settle("acpc certify", [case], junit)
        if not met:
            render.note(message)
            raise typer.Exit(code)


class Compare(_Asked):
    r"""Do two views of one history lead to the same predicted future?

    The input holds `history` uint8 (h, height, width, 3) and `action_blocks` float32
    (h + H - 1, block width), normalised; optional `observed_future` uint8 (H, height, width, 3)
    adds prediction errors; optional `views` (views, h, height, width, 3), uint8 or float32 in
    [0, 1], takes the place of `--shift`; `proprio` float32 (h, width), and `future_proprio`
    (H, width) with `observed_future`, where the checkpoint's frames come with proprioception.

    **Examples**

        acpc compare lewm-pusht --input pair.npz --draws 5 \
            --shift gaussian_noise:0.08 --shift blur:15
        acpc compare lewm-pusht --input pair.npz --shift blur:15 \
            --protocol '{weights: [0.5, 0.25, 0.125, 0.125], numeric_mode: bf16}'
        acpc compare lewm-pusht --input with_views.npz -o json
    """

    keys: ClassVar[Keys] = {**_VIEWS, **keys_of(PairRequest, ("weights",)), **_MODE}

    needed = ("history", "action_blocks")
    optional = ("observed_future", "proprio", "future_proprio")

    def __call__(self) -> None:
        self.ask("comparison", "compare_pair")


class Certify(_Asked):
    r"""Can this visual change alter the planner's choice among these candidates?

    The input holds `history` uint8 (h, height, width, 3), `candidates` float32 (candidates, H,
    block width), normalised, and `goal`, a frame uint8 (height, width, 3) or a latent float32
    (width,); `past_blocks` float32 (h - 1, block width) where h is above 1; optional `views` uint8
    (views, h, height, width, 3) takes the place of `--shift`; `offsets` float32 (candidates,) is
    added to the costs, and `infeasible` bool (candidates,) marks those that break a constraint on
    actions; `proprio` float32 (h, width) and `goal_proprio` (width,) where frames come with it.

    A certificate is a proof for the views that were drawn: their winner (or elite set) is the
    clean one. Its absence proves nothing: compare it with the winner changes beside it.

    **Examples**

        acpc certify lewm-pusht --input pool.npz \
            --shift gaussian_noise:0.02,0.05,0.08 --draws 5 --elites 30
        acpc certify lewm-pusht --input pool.npz --shift blur:15 \
            --protocol '{cost_reduction: mean, endpoint_tolerance: 0.001}'
        acpc certify lewm-pusht --input pool.npz --shift blur:15 --protocol \
            '{objective: {terms: [{norm: l1, squared: false}]}, temperature: 0.5}'
        acpc certify lewm-pusht --input pool.npz --shift blur:15 \
            --protocol '{apply_to: both}'

    A grid of severities, `kind:a,b,c`, also shows the largest one up to which every draw is
    certified. A release can stop on the exit code, 3 where `--require` is not met:

        acpc certify "$CHECKPOINT" --input pool.npz \
            --shift gaussian_noise:0.02 --draws 20 --require top1 || exit 1

    A few draws promise little about the others: the answer says how large a share of all draws may
    still change the choice, with 95 % confidence. 149 certified draws show that it is below 2 %.

    Attributes:
        require: Exit with 3 unless every view is certified.
    """

    keys: ClassVar[Keys] = {**_VIEWS, **_PLANNER, **_POOL, **_MODE}
    needed = ("history", "candidates", "goal")
    optional = (*_MOMENT, "offsets", "infeasible")

    elites: Annotated[int | None, sets(PlanStart, "elite_count", "--elites")] = None
    require: Literal["top1", "elite"] | None = None
    junit: Junit = None

    def settings(self) -> dict[str, Any]:
        return super().settings() | given(elite_count=self.elites)

    def __call__(self) -> None:
        if self.require == "elite" and not self.elites:
            raise ArgumentError("--require", "elite needs --elites above 0")
        answer = self.ask("certificate", "certify_pool")
        if self.require is not None:
            found = [getattr(view, self.require) for view in answer.views]
            met = bool(found) and all(one is not None and one.certified for one in found)
            self.demand(met, f"--require {self.require}", self.junit)


class PlanPaired(_Asked):
    r"""Does this visual change alter the plan that CEM returns?

    Plans twice with common random numbers: from the clean history and from each view. Shows at
    which iteration the elite sets part, whether the plans provably agree, and what the other plan
    costs on the clean history (the selection regret).

    The input holds `history` uint8 (h, height, width, 3) and `goal`, a frame uint8 (height, width,
    3) or a latent float32 (width,); `past_blocks` float32 (h - 1, block width), normalised, where h
    is above 1; optional `views` uint8 (views, h, height, width, 3) takes the place of `--shift`;
    `proprio` float32 (h, width) and `goal_proprio` (width,) where frames come with proprioception.

    **Examples**

        acpc plan-paired lewm-pusht --input moment.npz --shift gaussian_noise:0.02
        acpc plan-paired lewm-pusht --input moment.npz --shift blur:15 --protocol \
            '{budget: {candidates: 300, elites: 30, iterations: 30}, returns: best}'

    A release can stop on the exit code, 3 where `--require-certified` is not met:

        acpc plan-paired "$CHECKPOINT" --input moment.npz --require-certified \
            --shift gaussian_noise:0.02 --draws 5 || exit 1

    Attributes:
        require_certified: Exit with 3 unless every plan provably agrees.
    """

    keys: ClassVar[Keys] = {**_VIEWS, **_PLANNER, **_PAIRED, **_BUDGET, **_MODE}
    needed = ("history", "goal")

    require_certified: bool = False
    junit: Junit = None

    def settings(self) -> dict[str, Any]:
        read = super().settings()
        read["budget"] = CemBudget(**read.pop("budget", {}))
        return read

    def __call__(self) -> None:
        answer = self.ask("paired_plans", "plan_paired")
        if self.require_certified:
            met = all(view.certified for view in answer.views)
            self.demand(met, "--require-certified", self.junit)
