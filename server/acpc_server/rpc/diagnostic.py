"""DiagnosticService: one history under a visual change, in milliseconds."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import grpc
from acpc import contract
from acpc.v1 import diagnostic_service_pb2 as pb
from acpc.v1 import diagnostic_service_pb2_grpc as pb_grpc

from acpc_server.engine import CheckpointCache
from acpc_server.errors import AcpcError, InvalidArgument
from acpc_server.interactive import PairComparer, PairRequest
from acpc_server.rpc.planner import PlannerRpcs
from acpc_server.rpc.request import load, read, read_mode, read_views, request_id, shown_id, spent
from acpc_server.rpc.status import to_status
from acpc_server.scheduling import AdmissionController, CallRequests, RequestContext


class DiagnosticServicer(pb_grpc.DiagnosticServiceServicer):
    """Serves pairwise ACPC, and hands planners' questions to :class:`PlannerRpcs`.

    Args:
        admission: Admits every request: each unary call, and each message of a stream.
        checkpoints: The loaded checkpoints.
        comparison: Compares pairs.
        planner: Answers planners.
    """

    def __init__(
        self,
        admission: AdmissionController,
        checkpoints: CheckpointCache,
        comparison: PairComparer,
        planner: PlannerRpcs,
    ) -> None:
        self._admission = admission
        self._checkpoints = checkpoints
        self._comparison = comparison
        self._planner = planner

    def ComparePair(
        self, request: pb.ComparePairRequest, context: grpc.ServicerContext
    ) -> pb.ComparePairResponse:
        """Compare one pair."""
        with self._requests("ComparePair", context).admitted() as admitted:
            return self._compare(request, admitted)

    def ComparePairs(
        self, request_iterator: Iterator[pb.ComparePairsRequest], context: grpc.ServicerContext
    ) -> Iterator[pb.ComparePairsResponse]:
        """Compare pairs in order; a pair that is rejected is answered in place."""
        requests = self._requests("ComparePairs", context)
        for request in request_iterator:
            answer = pb.ComparePairsResponse(pair_id=request.pair_id)
            try:
                with requests.admitted() as admitted:
                    answer.response.CopyFrom(self._compare(request.pair, admitted))
            except AcpcError as error:
                requests.check()
                nested = error.below("pair") if isinstance(error, InvalidArgument) else error
                answer.error.CopyFrom(to_status(nested, shown_id(request.pair)))
            yield answer

    def CertifyPool(
        self, request: pb.CertifyPoolRequest, context: grpc.ServicerContext
    ) -> pb.CertifyPoolResponse:
        """Certify one pool."""
        with self._requests("CertifyPool", context).admitted() as admitted:
            return self._planner.certify_pool(request, admitted)

    def Plan(
        self, request_iterator: Iterator[pb.PlanRequest], context: grpc.ServicerContext
    ) -> Iterator[pb.PlanResponse]:
        """Certify pools as a planner makes them."""
        return self._planner.plan(request_iterator, self._requests("Plan", context))

    def PlanPaired(
        self, request: pb.PlanPairedRequest, context: grpc.ServicerContext
    ) -> pb.PlanPairedResponse:
        """Run CEM on both histories."""
        with self._requests("PlanPaired", context).admitted() as admitted:
            return self._planner.plan_paired(request, admitted)

    def _requests(self, method: str, context: grpc.ServicerContext) -> CallRequests:
        return CallRequests(self._admission, method, context)

    def _compare(
        self, request: pb.ComparePairRequest, context: RequestContext
    ) -> pb.ComparePairResponse:
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
        answer = self._comparison.compare(load(self._checkpoints, asked.checkpoint), pair, context)
        timing = spent(context)
        return replace(answer, request_id=identity, timing=timing).to_message()
