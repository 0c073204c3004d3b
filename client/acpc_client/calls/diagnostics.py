"""ComparePair, ComparePairs and CertifyPool."""

from __future__ import annotations

from typing import Any, Unpack

from acpc.contract import (
    Array,
    CheckpointRef,
    NumericMode,
    PairComparison,
    PairRequest,
    PoolCertificate,
    PoolRequest,
)
from acpc.v1 import diagnostic_service_pb2 as pb
from acpc.v1.diagnostic_service_pb2_grpc import DiagnosticServiceStub

from acpc_client.calls.base import common, send
from acpc_client.calls.call import Call, Method
from acpc_client.calls.options import PairOptions, PoolOptions, check_options
from acpc_client.calls.scene import moment, said_of_candidates, selection, views
from acpc_client.inputs import Pair

COMPARE_PAIR = Method(DiagnosticServiceStub, "ComparePair", timeout=30.0)
COMPARE_PAIRS = Method(DiagnosticServiceStub, "ComparePairs", timeout=600.0)
CERTIFY_POOL = Method(DiagnosticServiceStub, "CertifyPool", timeout=30.0)


def compare_pair(
    checkpoint: str | CheckpointRef,
    history: Array,
    action_blocks: Array,
    **options: Unpack[PairOptions],
) -> Call[PairComparison]:
    """The call that compares one pair.

    Raises:
        ArgumentError: An argument cannot be sent as it is.
        TypeError: An unknown option.
    """
    check_options(options, PairOptions)
    weights: Any = options.get("weights", ())  # a sequence, which becomes a tuple
    request = PairRequest(
        **common(checkpoint, options),
        history=history,
        action_blocks=action_blocks,
        views=views(options),
        proprio=options.get("proprio"),
        observed_future=options.get("observed_future"),
        future_proprio=options.get("future_proprio"),
        weights=weights,
    )
    return send(COMPARE_PAIR, request, PairComparison.from_message)


def stream_item(
    checkpoint: str | CheckpointRef, pair: Pair, numeric_mode: NumericMode
) -> pb.ComparePairsRequest:
    """The message that carries one pair of a stream."""
    call = compare_pair(
        checkpoint,
        pair.history,
        pair.action_blocks,
        perturbations=pair.perturbations,
        views=pair.views,
        draws=pair.draws,
        seed=pair.seed,
        anchor=pair.anchor,
        observed_future=pair.observed_future,
        proprio=pair.proprio,
        future_proprio=pair.future_proprio,
        weights=pair.weights,
        numeric_mode=numeric_mode,
    )
    return pb.ComparePairsRequest(pair_id=pair.pair_id, pair=call.request)


def certify_pool(
    checkpoint: str | CheckpointRef,
    history: Array,
    candidates: Array,
    goal: Array,
    **options: Unpack[PoolOptions],
) -> Call[PoolCertificate]:
    """The call that certifies one pool.

    Raises:
        ArgumentError: An argument cannot be sent as it is.
        TypeError: An unknown option.
    """
    check_options(options, PoolOptions)
    request = PoolRequest(
        **moment(checkpoint, history, goal, options),
        **selection(options),
        **said_of_candidates(candidates, options.get("offsets"), options.get("infeasible")),
    )
    return send(CERTIFY_POOL, request, PoolCertificate.from_message)
