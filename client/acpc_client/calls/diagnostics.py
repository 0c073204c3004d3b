"""ComparePair, ComparePairs and CertifyPool."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from acpc.v1 import diagnostic_service_pb2 as pb
from acpc.v1 import perturbation_pb2
from acpc.v1.diagnostic_service_pb2_grpc import DiagnosticServiceStub
from numpy.typing import NDArray

from acpc_client import codec
from acpc_client.calls.base import Call, Method, identity, reference
from acpc_client.errors import ArgumentError
from acpc_client.inputs import CheckpointRef, CostReduction, NumericMode, Pair, unsigned
from acpc_client.perturbations import Perturbation
from acpc_client.results import PairComparison, PoolCertificate

COMPARE_PAIR = Method(DiagnosticServiceStub, "ComparePair", timeout=30.0)
COMPARE_PAIRS = Method(DiagnosticServiceStub, "ComparePairs", timeout=600.0)
CERTIFY_POOL = Method(DiagnosticServiceStub, "CertifyPool", timeout=30.0)


def compare_pair(
    checkpoint: str | CheckpointRef,
    pair: Pair,
    numeric_mode: NumericMode = NumericMode.SERVER_DEFAULT,
    request_id: str | None = None,
) -> Call[PairComparison]:
    """The call that compares one pair.

    Raises:
        ArgumentError: An argument cannot be sent as it is.
    """
    future = pair.observed_future
    request = pb.ComparePairRequest(
        request_id=identity(request_id),
        checkpoint=reference(checkpoint),
        history=codec.frames(pair.history, "history", "h, height, width, 3"),
        action_blocks=codec.floats(pair.action_blocks, "action_blocks", "h + H - 1, block width"),
        observed_future=None
        if future is None
        else codec.frames(future, "observed_future", "H, height, width, 3"),
        weights=pair.weights,
        numeric_mode=numeric_mode.wire,
        **_views(pair.perturbations, pair.views, pair.draws, pair.seed, pair.anchor),
    )
    return Call(COMPARE_PAIR, request, PairComparison.from_message, request.request_id)


def stream_item(
    checkpoint: str | CheckpointRef, pair: Pair, numeric_mode: NumericMode
) -> pb.ComparePairsRequest:
    """The message that carries one pair of a stream."""
    call = compare_pair(checkpoint, pair, numeric_mode)
    return pb.ComparePairsRequest(pair_id=pair.pair_id, pair=call.request)


def certify_pool(
    checkpoint: str | CheckpointRef,
    history: NDArray[Any],
    candidates: NDArray[Any],
    goal: NDArray[Any],
    *,
    past_blocks: NDArray[Any] | None,
    perturbations: Perturbation | Sequence[Perturbation],
    views: NDArray[Any] | None,
    draws: int,
    seed: int,
    anchor: int,
    elite_count: int,
    cost_reduction: CostReduction,
    endpoint_tolerance: float,
    weights: Sequence[float],
    numeric_mode: NumericMode,
    request_id: str | None,
) -> Call[PoolCertificate]:
    """The call that certifies one pool.

    Raises:
        ArgumentError: An argument cannot be sent as it is.
    """
    past = None
    if past_blocks is not None:
        past = codec.floats(past_blocks, "past_blocks", "h - 1, block width")
    request = pb.CertifyPoolRequest(
        request_id=identity(request_id),
        checkpoint=reference(checkpoint),
        history=codec.frames(history, "history", "h, height, width, 3"),
        past_blocks=past,
        goal=_goal(goal),
        candidates=codec.floats(candidates, "candidates", "candidates, H, block width"),
        elite_count=unsigned(elite_count, "elite_count"),
        cost_reduction=cost_reduction.wire,
        endpoint_tolerance=endpoint_tolerance,
        weights=weights,
        numeric_mode=numeric_mode.wire,
        **_views(perturbations, views, draws, seed, anchor),
    )
    return Call(CERTIFY_POOL, request, PoolCertificate.from_message, request.request_id)


def _goal(goal: NDArray[Any]) -> pb.Goal:
    """A frame when uint8, a point of the projected latent space when floating."""
    values = np.asarray(goal)
    if values.dtype == np.uint8:
        return pb.Goal(frame=codec.frames(values, "goal", "height, width, 3"))
    if values.dtype.kind != "f":
        wanted = "uint8 (height, width, 3) or float32 (latent width,)"
        raise ArgumentError("goal", f"found {values.dtype} {values.shape}, wanted {wanted}")
    return pb.Goal(latent=codec.floats(values, "goal", "latent width"))


def _views(
    perturbations: Perturbation | Sequence[Perturbation],
    views: NDArray[Any] | None,
    draws: int,
    seed: int,
    anchor: int,
) -> dict[str, Any]:
    """The ``perturbation`` oneof of a request."""
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
