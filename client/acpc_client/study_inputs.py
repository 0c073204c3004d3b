"""The studies of the paper as inputs; None or empty means the paper's protocol."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from acpc.contract import CemReturn, CostReduction
from acpc.v1 import study_service_pb2 as pb

from acpc_client.inputs import CemBudget, unsigned
from acpc_client.perturbations import Perturbation


@dataclass(frozen=True)
class DriftStudy:
    """Does ACPC predict how far a perturbation changes the prediction error?

    Attributes:
        shifts: The perturbations; empty: Gaussian noise of 0.02, 0.05 and 0.08.
        draws: Draws per shift; None: 2.
        seed: Seed of the draws, the swapped and the shuffled actions; None: 0.
        horizon: Predicted steps H; None: 8.
        groups: Disjoint groups of trajectories; None: 16.
    """

    shifts: Sequence[Perturbation] = ()
    draws: int | None = None
    seed: int | None = None
    horizon: int | None = None
    groups: int | None = None

    def to_fields(self) -> dict[str, Any]:
        """The ``study`` oneof of the request."""
        message = pb.DriftStudy(
            shifts=[shift.to_message() for shift in self.shifts],
            draws=unsigned(self.draws, "drift.draws"),
            seed=unsigned(self.seed, "drift.seed", 64),
            horizon=unsigned(self.horizon, "drift.horizon"),
            groups=unsigned(self.groups, "drift.groups"),
        )
        return {"drift": message}


@dataclass(frozen=True)
class PlannerStudy:
    """Does ACPC reflect what a changed plan costs?

    Attributes:
        shifts: The perturbations; empty: Gaussian noise of 0.02, 0.05 and 0.08.
        draws: Draws per shift; None: 1.
        seed: Seed of the draws; None: 0.
        budget: Size of each CEM run; None: the paper's reduced budget, 64/8/8 and 5 steps.
        sampling_seed: Seed of the common random numbers; None: 0.
        cost_reduction: Unless said otherwise the mean over coordinates.
        returns: Unless said otherwise the final mean.
        history: Newest frames the planner sees; None: 1, the current frame alone.
        goal_offset: The goal is the frame this many kept frames ahead; None: the budget's horizon.
    """

    shifts: Sequence[Perturbation] = ()
    draws: int | None = None
    seed: int | None = None
    budget: CemBudget | None = None
    sampling_seed: int | None = None
    cost_reduction: CostReduction = CostReduction.SERVER_DEFAULT
    returns: CemReturn = CemReturn.SERVER_DEFAULT
    history: int | None = None
    goal_offset: int | None = None

    def to_fields(self) -> dict[str, Any]:
        """The ``study`` oneof of the request."""
        message = pb.PlannerStudy(
            shifts=[shift.to_message() for shift in self.shifts],
            draws=unsigned(self.draws, "planner.draws"),
            seed=unsigned(self.seed, "planner.seed", 64),
            budget=None if self.budget is None else self.budget.to_message(),
            sampling_seed=unsigned(self.sampling_seed, "planner.sampling_seed", 64),
            cost_reduction=self.cost_reduction.wire,
            returns=self.returns.wire,
            history=unsigned(self.history, "planner.history"),
            goal_offset=unsigned(self.goal_offset, "planner.goal_offset"),
        )
        return {"planner": message}


@dataclass(frozen=True)
class GeometryStudy:
    """Do perturbed views of one history overlap with other histories?

    Attributes:
        shifts: The perturbations; empty: Gaussian noise of 0.01, 0.04 and 0.08.
        draws: Draws per shift; None: 6.
        seed: Seed of the draws; None: 0.
        horizon: Predicted steps H before the rollout space; None: 8.
    """

    shifts: Sequence[Perturbation] = ()
    draws: int | None = None
    seed: int | None = None
    horizon: int | None = None

    def to_fields(self) -> dict[str, Any]:
        """The ``study`` oneof of the request."""
        message = pb.GeometryStudy(
            shifts=[shift.to_message() for shift in self.shifts],
            draws=unsigned(self.draws, "geometry.draws"),
            seed=unsigned(self.seed, "geometry.seed", 64),
            horizon=unsigned(self.horizon, "geometry.horizon"),
        )
        return {"geometry": message}


@dataclass(frozen=True)
class SensitivityStudy:
    """How strongly do encoder and rollout amplify small noise?

    Attributes:
        probes: Probes per anchor and method; None: 8.
        seed: Seed of probes and noise; None: 0.
        horizon: Predicted steps H; None: 8.
        step: Standard deviation of the finite differences in [0, 1] pixel units; None: 0.001.
    """

    probes: int | None = None
    seed: int | None = None
    horizon: int | None = None
    step: float | None = None

    def to_fields(self) -> dict[str, Any]:
        """The ``study`` oneof of the request."""
        message = pb.SensitivityStudy(
            probes=unsigned(self.probes, "sensitivity.probes"),
            seed=unsigned(self.seed, "sensitivity.seed", 64),
            horizon=unsigned(self.horizon, "sensitivity.horizon"),
            step=self.step,
        )
        return {"sensitivity": message}


Study = DriftStudy | PlannerStudy | GeometryStudy | SensitivityStudy
