"""What the diagnostics share: the views of a history, and what a planner starts from."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from acpc.v1 import diagnostic_service_pb2 as pb
from acpc.v1 import perturbation_pb2
from numpy.typing import NDArray

from acpc_client import codec
from acpc_client.calls.base import call_fields
from acpc_client.calls.options import CertifyOptions, PairOptions, PlannerOptions, ViewOptions
from acpc_client.errors import ArgumentError
from acpc_client.inputs import CheckpointRef, unsigned


def common_fields(checkpoint: str | CheckpointRef, options: ViewOptions) -> dict[str, Any]:
    """The fields of a call, and its ``perturbation`` oneof.

    Raises:
        ArgumentError: Both or neither of perturbations and views, or one that cannot be sent.
    """
    fields = call_fields(checkpoint, options)
    given = options.get("perturbations", ())
    specs = given if isinstance(given, Sequence) else (given,)
    views = options.get("views")
    if bool(specs) == (views is not None):
        found = "both" if specs else "neither"
        raise ArgumentError("perturbations", f"found {found}, wanted perturbations or views")
    if views is not None:
        axes = "views, h, height, width, 3"
        return {**fields, "explicit_views": codec.frames(views, "views", axes)}
    fields["perturbations"] = perturbation_pb2.PerturbationSet(
        specs=[spec.to_message() for spec in specs],
        draws=unsigned(options.get("draws", 1), "draws"),
        seed=unsigned(options.get("seed", 0), "seed", 64),
        anchor=unsigned(options.get("anchor", 0), "anchor", 64),
    )
    return fields


def planner_fields(
    checkpoint: str | CheckpointRef,
    history: NDArray[Any],
    goal: NDArray[Any],
    options: PlannerOptions,
) -> dict[str, Any]:
    """The fields every request about a planner has.

    Raises:
        ArgumentError: An argument cannot be sent as it is.
    """
    fields = common_fields(checkpoint, options)
    fields["history"] = codec.frames(history, "history", "h, height, width, 3")
    fields["goal"] = _goal(goal)
    past = options.get("past_blocks")
    if past is not None:
        fields["past_blocks"] = codec.floats(past, "past_blocks", "h - 1, block width")
    if "cost_reduction" in options:
        fields["cost_reduction"] = options["cost_reduction"].wire
    return fields


def selection_fields(options: CertifyOptions) -> dict[str, Any]:
    """What is certified of a pool.

    Raises:
        ArgumentError: A number cannot be sent as it is.
    """
    return {
        "elite_count": unsigned(options.get("elite_count", 0), "elite_count"),
        "endpoint_tolerance": options.get("endpoint_tolerance", 0.0),
        "weights": options.get("weights", ()),
    }


def future_fields(options: PairOptions) -> dict[str, Any]:
    """The observed future of a pair, and its horizon weights.

    Raises:
        ArgumentError: The frames cannot be sent as they are.
    """
    fields: dict[str, Any] = {"weights": options.get("weights", ())}
    future = options.get("observed_future")
    if future is not None:
        axes = "H, height, width, 3"
        fields["observed_future"] = codec.frames(future, "observed_future", axes)
    return fields


def _goal(goal: NDArray[Any]) -> pb.Goal:
    """A frame when uint8, a point of the projected latent space when floating."""
    values = np.asarray(goal)
    if values.dtype == np.uint8:
        return pb.Goal(frame=codec.frames(values, "goal", "height, width, 3"))
    if values.dtype.kind != "f":
        wanted = "uint8 (height, width, 3) or float32 (latent width,)"
        raise ArgumentError("goal", f"found {values.dtype} {values.shape}, wanted {wanted}")
    return pb.Goal(latent=codec.floats(values, "goal", "latent width"))
