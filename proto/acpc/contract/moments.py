"""Interactive requests: one history under a visual change, and what a planner asks about it."""

from __future__ import annotations

from dataclasses import field
from typing import Annotated, ClassVar, TypeAlias

import numpy as np

from acpc.contract.enums import ApplyTo, CemReturn, CostReduction, Norm, NumericMode
from acpc.contract.errors import ArgumentError
from acpc.contract.fields import UINT32, bounded, seed_field
from acpc.contract.messages import Codec, Wire
from acpc.contract.plain import to_plain
from acpc.contract.requests import (
    MAX_HORIZON,
    MAX_REQUEST_ID,
    CemBudget,
    CheckpointRef,
    PerturbationSet,
    Request,
)
from acpc.contract.tensor import FLOAT32, Array, Axes, floats, frames, read_tensor, tensor_fields
from acpc.v1 import diagnostic_service_pb2 as pb

Views: TypeAlias = PerturbationSet | Array
"""The other views of a history: drawn, or a caller's, uint8 (views, h, height, width, 3)."""


def applied_to(views: Views | None) -> ApplyTo:
    """Returns what views change; those of a caller's own are of the history."""
    return views.apply_to if isinstance(views, PerturbationSet) else ApplyTo.HISTORY


_VIEWS = Axes("views, h, height, width, 3", of_frames=True)
_FLOAT_VIEWS = Axes(_VIEWS.names, of_frames=False)
GOALS = {
    "frame": Axes("height, width, 3", of_frames=True),
    "latent": Axes("latent width", of_frames=False),
}


def goal_kind(goal: Array) -> str:
    """Returns ``"frame"`` for a goal of integers, ``"latent"`` for one of real values."""
    return "latent" if goal.dtype.kind == "f" else "frame"


def _load_goal(message: pb.Goal, *, strict: bool) -> Array:
    kind = message.WhichOneof("goal")
    if kind is None:
        raise ArgumentError("", "give a frame or a latent")
    goal = read_tensor(getattr(message, kind), kind)
    goal = GOALS[kind].converted(goal)
    GOALS[kind].check(goal, kind)
    return goal


def _dump_goal(goal: Array) -> dict[str, object]:
    return {goal_kind(goal): tensor_fields(goal)}


Goal: TypeAlias = Annotated[Array, Codec(_load_goal, _dump_goal)]


class _Moment(Request, eq=False, kw_only=True):
    """Fields of every interactive request."""

    float_views: ClassVar[bool] = False
    checkpoint: CheckpointRef
    history: Array = frames("h, height, width, 3")
    views: Views | None = field(metadata={"wire": "perturbation"})
    proprio: Array | None = floats("h, proprio width", None)
    numeric_mode: NumericMode = NumericMode.SERVER_DEFAULT
    request_id: str = bounded("", most=MAX_REQUEST_ID)

    def check_rules(self) -> None:
        """Views are given, and of the history's shape."""
        if self.views is None:
            raise ArgumentError("perturbations", "give perturbations or explicit_views")
        _check_rows("proprio", self.proprio, len(self.history))
        if isinstance(self.views, np.ndarray):
            real = self.float_views and self.views.dtype.kind == "f"
            (_FLOAT_VIEWS if real else _VIEWS).check(self.views, "explicit_views")
            _check_same("explicit_views", self.views.shape[1:], self.history.shape)
            if real and not len(self.views):
                raise ArgumentError("explicit_views.shape", "found no view, wanted one or more")
            if real and (self.views.min() < 0 or self.views.max() > 1):
                found = f"found {self.views.min():.9g} to {self.views.max():.9g}"
                raise ArgumentError(
                    "explicit_views.data", f"{found}, wanted float32 pixels in [0, 1]"
                )


def _check_rows(name: str, proprio: Array | None, frames: int) -> None:
    if proprio is not None and len(proprio) != frames:
        raise ArgumentError(f"{name}.shape", f"{len(proprio)} rows, but there are {frames} frames")


def _check_same(name: str, found: tuple[int, ...], wanted: tuple[int, ...]) -> None:
    if found != wanted:
        raise ArgumentError(
            f"{name}.shape", f"found frames of {list(found)}, wanted the history's {list(wanted)}"
        )


class PairRequest(_Moment, Wire[pb.ComparePairRequest], kw_only=True):
    float_views: ClassVar[bool] = True
    action_blocks: Array = floats("h + H - 1, block width")
    observed_future: Array | None = frames("H, height, width, 3", None)
    future_proprio: Array | None = floats("H, proprio width", None)
    weights: tuple[float, ...] = bounded((), most=MAX_HORIZON)

    def check_rules(self) -> None:
        """The blocks leave a horizon, and frames have one size."""
        blocks, history = len(self.action_blocks), len(self.history)
        if not 1 <= blocks - history + 1 <= MAX_HORIZON:
            raise ArgumentError(
                "action_blocks.shape",
                f"{blocks} blocks for {history} history frames give a horizon of "
                f"{blocks - history + 1}; H steps (1 to {MAX_HORIZON}) need history + H - 1 blocks",
            )
        if self.observed_future is not None:
            _check_same("observed_future", self.observed_future.shape[1:], self.history.shape[1:])
        future = 0 if self.observed_future is None else len(self.observed_future)
        _check_rows("future_proprio", self.future_proprio, future)
        if applied_to(self.views).goal:
            raise ArgumentError(
                "perturbations.apply_to",
                f"found {applied_to(self.views)}, but a comparison has no goal; only what is asked "
                "of a planner has one",
            )
        super().check_rules()


LEAST, MOST = 1e-30, 1e30


def _check_weights(name: str, weights: tuple[float, ...]) -> None:
    wrong = next((at for at, w in enumerate(weights) if w and not LEAST <= w <= MOST), None)
    if wrong is not None:
        found = f"found {weights[wrong]!r}, wanted 0, or from {LEAST:g} to {MOST:g}"
        raise ArgumentError(f"{name}[{wrong}]", found)
    if weights and not any(weights):
        raise ArgumentError(name, "are all 0; leave them out, or give one above 0")


class DistanceTerm(Request, Wire[pb.DistanceTerm]):
    norm: Norm = Norm.L2
    squared: bool = True
    weight: float = bounded(1.0, ge=LEAST, le=MOST)
    step_weights: tuple[float, ...] = bounded((), most=MAX_HORIZON)
    coordinate_weights: tuple[float, ...] = bounded((), most=2**18)

    def check_rules(self) -> None:
        """Weights are in range, and one of each list is above 0."""
        _check_weights("step_weights", self.step_weights)
        _check_weights("coordinate_weights", self.coordinate_weights)


class Objective(Request, Wire[pb.Objective]):
    terms: tuple[DistanceTerm, ...] = bounded((), most=16)
    control_weights: tuple[float, ...] = bounded((), most=65536)

    def check_rules(self) -> None:
        """Weights are in range, and one of them is above 0."""
        _check_weights("control_weights", self.control_weights)


class PlannerMoment(_Moment, kw_only=True):
    """A planner's history and goal."""

    goal: Goal
    goal_proprio: Array | None = floats("proprio width", None)
    past_blocks: Array | None = floats("h - 1, block width", None)
    cost_reduction: CostReduction = CostReduction.SUM
    endpoint_tolerance: float = bounded(0.0, ge=0)
    objective: Objective | None = None

    @property
    def costs(self) -> dict[str, object]:
        """The objective as a receipt keeps it; empty for the squared distance."""
        given = self.objective not in (None, Objective())
        return {"objective": to_plain(self.objective)} if given else {}

    def __post_init__(self) -> None:
        super().__post_init__()
        goal = np.asarray(self.goal)
        object.__setattr__(self, "goal", GOALS[goal_kind(goal)].converted(goal))
        past = self.past_blocks
        if past is not None and past.dtype == FLOAT32 and past.ndim == 2 and not len(past):
            object.__setattr__(self, "past_blocks", None)

    def check_rules(self) -> None:
        """A goal's frame has the size of the history's."""
        kind = goal_kind(self.goal)
        GOALS[kind].check(self.goal, f"goal.{kind}")
        if kind == "frame":
            _check_same("goal.frame", self.goal.shape, self.history.shape[1:])
        elif applied_to(self.views).goal:
            raise ArgumentError(
                "perturbations.apply_to",
                f"found {applied_to(self.views)}, but goal.latent has no frame to change; give "
                "goal.frame, or apply it to the history",
            )
        super().check_rules()


class PlanStart(PlannerMoment, Wire[pb.PlanStart], kw_only=True):
    elite_count: int = bounded(0, ge=0, le=UINT32)
    weights: tuple[float, ...] = bounded((), most=MAX_HORIZON)
    kept_elites: int = bounded(0, ge=0, le=UINT32)
    temperature: float | None = bounded(None, gt=0)

    def check_rules(self) -> None:
        """What is kept is elite."""
        super().check_rules()
        if self.kept_elites > self.elite_count:
            raise ArgumentError(
                "kept_elites", f"found {self.kept_elites} of {self.elite_count} elites, keep fewer"
            )


class PairedRequest(PlannerMoment, Wire[pb.PlanPairedRequest], kw_only=True):
    budget: CemBudget = CemBudget()
    sampling_seed: int = seed_field()
    returns: CemReturn = CemReturn.MEAN
    choices: bool = False


MAX_CANDIDATES = 2**20


class CandidatePool(Request, eq=False, kw_only=True):
    """Candidates, and what is known of each beside its predictions."""

    candidates: Array = floats("candidates, H, block width")
    offsets: Array | None = floats("candidates", None)
    infeasible: tuple[int, ...] = bounded((), ge=0, le=UINT32, most=MAX_CANDIDATES)

    @property
    def arrays(self) -> list[tuple[str, Array]]:
        """The arrays beside the candidates, for a receipt."""
        out = np.unique(np.array(self.infeasible, np.int64))
        found = {"offsets": self.offsets, "infeasible": out if len(out) else None}
        return [(name, array) for name, array in found.items() if array is not None]

    def check_rules(self) -> None:
        """Each candidate has an offset, or none has."""
        if isinstance(self, PlanStart):
            PlanStart.check_rules(self)
        if self.offsets is not None and self.offsets.shape != self.candidates.shape[:1]:
            found, wanted = list(self.offsets.shape), list(self.candidates.shape[:1])
            raise ArgumentError("offsets.shape", f"found {found}, wanted {wanted}")


class PoolRequest(CandidatePool, PlanStart, Wire[pb.CertifyPoolRequest], kw_only=True):
    """Can this visual change alter the planner's choice among these candidates?"""


class OwnPool(CandidatePool, Wire[pb.PlanPool], kw_only=True):
    iteration: int = bounded(0, ge=0, le=UINT32)


class Proposal(Request, Wire[pb.GaussianProposal], eq=False, kw_only=True):
    mean: Array = floats("H, block width")
    std: Array = floats("H, block width")
    candidates: int = bounded(ge=0, le=UINT32)
    seed: int = seed_field()

    def check_rules(self) -> None:
        """Deviations are not negative; that they have the mean's shape, the server checks."""
        if (self.std < 0).any():
            raise ArgumentError("std.data", "holds a negative standard deviation")
