"""DiagnosticService: one history under a visual change, in milliseconds."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import replace

import grpc
from acpc import contract
from acpc.v1 import diagnostic_service_pb2 as pb
from acpc.v1 import diagnostic_service_pb2_grpc as pb_grpc

from acpc_server.engine import CheckpointCache
from acpc_server.errors import AcpcError, InvalidArgument
from acpc_server.interactive import PairComparer, PairRequest
from acpc_server.rpc import codec
from acpc_server.rpc.planner import PlannerRpcs
from acpc_server.rpc.request import (
    StreamContexts,
    load,
    open_context,
    read,
    read_mode,
    read_views,
    request_id,
    shown_id,
)
from acpc_server.rpc.status import to_status
from acpc_server.scheduling import RequestContext


class DiagnosticServicer(pb_grpc.DiagnosticServiceServicer):
    """Serves pairwise ACPC, and hands planners' questions to :class:`PlannerRpcs`."""

    def __init__(
        self, checkpoints: CheckpointCache, comparison: PairComparer, planner: PlannerRpcs
    ) -> None:
        self._checkpoints = checkpoints
        self._comparison = comparison
        self._planner = planner

    def ComparePair(
        self, request: pb.ComparePairRequest, context: grpc.ServicerContext
    ) -> pb.ComparePairResponse:
        """Compare one pair."""
        return self._compare(request, open_context(context))

    def ComparePairs(
        self, request_iterator: Iterator[pb.ComparePairsRequest], context: grpc.ServicerContext
    ) -> Iterator[pb.ComparePairsResponse]:
        """Compare pairs in order; a refused pair is answered in place."""
        contexts = StreamContexts(context)
        for request in request_iterator:
            work = contexts.renew()
            answer = pb.ComparePairsResponse(pair_id=request.pair_id)
            try:
                work.check()
                answer.response.CopyFrom(self._compare(request.pair, work))
            except AcpcError as error:
                work.check()
                nested = error.below("pair") if isinstance(error, InvalidArgument) else error
                answer.error.CopyFrom(to_status(nested, shown_id(request.pair)))
            yield answer

    def CertifyPool(
        self, request: pb.CertifyPoolRequest, context: grpc.ServicerContext
    ) -> pb.CertifyPoolResponse:
        """Certify one pool."""
        return self._planner.certify_pool(request, open_context(context))

    def Plan(
        self, request_iterator: Iterator[pb.PlanRequest], context: grpc.ServicerContext
    ) -> Iterator[pb.PlanResponse]:
        """Certify pools as a planner makes them."""
        return self._planner.plan(request_iterator, StreamContexts(context))

    def PlanPaired(
        self, request: pb.PlanPairedRequest, context: grpc.ServicerContext
    ) -> pb.PlanPairedResponse:
        """Run CEM on both histories."""
        return self._planner.plan_paired(request, open_context(context))

    def _compare(
        self, request: pb.ComparePairRequest, work: RequestContext
    ) -> pb.ComparePairResponse:
        started = time.perf_counter()
        asked = read(contract.PairRequest, request)
        identity = request_id(asked)
        pair = PairRequest(
            history=asked.history,
            action_blocks=asked.action_blocks,
            perturbation=read_views(asked.views),
            observed_future=asked.observed_future,
            weights=asked.weights,
            numeric_mode=read_mode(asked.numeric_mode),
        )
        answer = self._comparison.compare(load(self._checkpoints, asked.checkpoint), pair, work)
        timing = codec.spent(work, started)
        return replace(answer, request_id=identity, timing=timing).to_message()
