"""What a planner minimises."""

from __future__ import annotations

from dataclasses import dataclass

from acpc.contract.enums import Norm
from acpc.contract.errors import ArgumentError
from acpc.contract.fields import bounded, sized
from acpc.contract.messages import Wire
from acpc.contract.requests import MAX_HORIZON, Request
from acpc.v1 import diagnostic_service_pb2 as pb

LEAST, MOST = 1e-30, 1e30


def _check_weights(name: str, weights: tuple[float, ...]) -> None:
    wrong = next((at for at, w in enumerate(weights) if w and not LEAST <= w <= MOST), None)
    if wrong is not None:
        found = f"found {weights[wrong]!r}, wanted 0, or from {LEAST:g} to {MOST:g}"
        raise ArgumentError(f"{name}[{wrong}]", found)
    if weights and not any(weights):
        raise ArgumentError(name, "are all 0; leave them out, or give one above 0")


@dataclass(frozen=True)
class DistanceTerm(Request, Wire[pb.DistanceTerm]):
    """A distance of predicted latents to the goal, summed over predicted steps.

    Every weight is 0 or from 1e-30 to 1e30.
    """

    norm: Norm = Norm.L2
    squared: bool = True
    weight: float = bounded(1.0, ge=LEAST, le=MOST)
    step_weights: tuple[float, ...] = sized((), most=MAX_HORIZON)
    coordinate_weights: tuple[float, ...] = sized((), most=2**18)

    def check_rules(self) -> None:
        """Weights are in range, and one of each list is above 0."""
        _check_weights("step_weights", self.step_weights)
        _check_weights("coordinate_weights", self.coordinate_weights)


@dataclass(frozen=True)
class Objective(Request, Wire[pb.Objective]):
    """A planner's objective: distances to the goal, and a penalty on the actions."""

    terms: tuple[DistanceTerm, ...] = sized((), most=16)
    control_weights: tuple[float, ...] = sized((), most=65536)

    def check_rules(self) -> None:
        """Weights are in range, and one of them is above 0."""
        _check_weights("control_weights", self.control_weights)
