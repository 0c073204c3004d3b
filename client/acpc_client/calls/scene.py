"""What the diagnostics share: the views of a history, and what a planner starts from."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from acpc.contract import CostReduction, NumericMode
from acpc.v1 import diagnostic_service_pb2 as pb
from acpc.v1 import perturbation_pb2
from numpy.typing import NDArray

from acpc_client import codec
from acpc_client.calls.base import identity, reference
from acpc_client.errors import ArgumentError
from acpc_client.inputs import CheckpointRef, unsigned
from acpc_client.perturbations import Perturbation


def views_fields(
    perturbations: Perturbation | Sequence[Perturbation],
    views: NDArray[Any] | None,
    draws: int,
    seed: int,
    anchor: int,
) -> dict[str, Any]:
    """The ``perturbation`` oneof of a request.

    Raises:
        ArgumentError: Both or neither of perturbations and views, or one that cannot be sent.
    """
    specs = perturbations if isinstance(perturbations, Sequence) else (perturbations,)
    if bool(specs) == (views is not None):
        found = "both" if specs else "neither"
        raise ArgumentError("perturbations", f"found {found}, wanted perturbations or views")
    if views is not None:
        axes = "views, h, height, width, 3"
        return {"explicit_views": codec.frames(views, "views", axes)}
    message = perturbation_pb2.PerturbationSet(
        specs=[spec.to_message() for spec in specs],
        draws=unsigned(draws, "draws"),
        seed=unsigned(seed, "seed", 64),
        anchor=unsigned(anchor, "anchor", 64),
    )
    return {"perturbations": message}


def planner_fields(
    checkpoint: str | CheckpointRef,
    history: NDArray[Any],
    goal: NDArray[Any],
    past_blocks: NDArray[Any] | None,
    cost_reduction: CostReduction,
    numeric_mode: NumericMode,
    request_id: str | None,
) -> dict[str, Any]:
    """The fields every request about a planner has.

    Raises:
        ArgumentError: An argument cannot be sent as it is.
    """
    past = None
    if past_blocks is not None:
        past = codec.floats(past_blocks, "past_blocks", "h - 1, block width")
    return {
        "request_id": identity(request_id),
        "checkpoint": reference(checkpoint),
        "history": codec.frames(history, "history", "h, height, width, 3"),
        "past_blocks": past,
        "goal": _goal(goal),
        "cost_reduction": cost_reduction.wire,
        "numeric_mode": numeric_mode.wire,
    }


def _goal(goal: NDArray[Any]) -> pb.Goal:
    """A frame when uint8, a point of the projected latent space when floating."""
    values = np.asarray(goal)
    if values.dtype == np.uint8:
        return pb.Goal(frame=codec.frames(values, "goal", "height, width, 3"))
    if values.dtype.kind != "f":
        wanted = "uint8 (height, width, 3) or float32 (latent width,)"
        raise ArgumentError("goal", f"found {values.dtype} {values.shape}, wanted {wanted}")
    return pb.Goal(latent=codec.floats(values, "goal", "latent width"))
