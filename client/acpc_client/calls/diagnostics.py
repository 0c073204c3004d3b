"""ComparePair, ComparePairs and CertifyPool."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from acpc.contract import CostReduction, NumericMode
from acpc.v1 import diagnostic_service_pb2 as pb
from acpc.v1.diagnostic_service_pb2_grpc import DiagnosticServiceStub
from numpy.typing import NDArray

from acpc_client import codec
from acpc_client.calls import scene
from acpc_client.calls.base import Call, Method, identity, reference
from acpc_client.inputs import CheckpointRef, Pair, unsigned
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
        **scene.views_fields(pair.perturbations, pair.views, pair.draws, pair.seed, pair.anchor),
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
    request = pb.CertifyPoolRequest(
        **scene.planner_fields(
            checkpoint, history, goal, past_blocks, cost_reduction, numeric_mode, request_id
        ),
        candidates=codec.floats(candidates, "candidates", "candidates, H, block width"),
        elite_count=unsigned(elite_count, "elite_count"),
        endpoint_tolerance=endpoint_tolerance,
        weights=weights,
        **scene.views_fields(perturbations, views, draws, seed, anchor),
    )
    return Call(CERTIFY_POOL, request, PoolCertificate.from_message, request.request_id)
