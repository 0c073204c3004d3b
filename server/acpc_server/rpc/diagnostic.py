"""DiagnosticService: one history under a visual change, and what a planner asks about it."""

from __future__ import annotations

from dataclasses import dataclass, replace

from acpc.contract import (
    OwnPool,
    PairedRequest,
    PairRequest,
    PlannerMoment,
    PlanStart,
    PoolRequest,
    Proposal,
    Timing,
    write_tensor,
)
from acpc.v1 import diagnostic_service_pb2 as pb

from acpc_server.engine import CheckpointCache
from acpc_server.errors import AcpcError, InvalidArgument, below
from acpc_server.interactive import (
    RETURNS,
    EncodedMoment,
    Moment,
    PairComparer,
    PairedCem,
    Planner,
    certify_pool,
    check_budget,
    draw_pool,
)
from acpc_server.rpc.call import Call, Conversation, Dialogue, ReadLimit
from acpc_server.rpc.request import load, read, request_id, require_views, shown_id, to_status
from acpc_server.scheduling import AdmissionController, CallRequests, RequestContext


@dataclass(frozen=True)
class DiagnosticServicer:
    """Serves pairwise ACPC and planners; a stream may stay silent for ``idle_seconds``."""

    _admission: AdmissionController
    _checkpoints: CheckpointCache
    _comparison: PairComparer
    _planner: Planner
    idle_seconds: float

    def check(self, call: Call) -> None:
        """Raise ResourceExhausted for a unary call that would not be admitted now."""
        self._admission.check(call.method.name, call.caller, call.life.time_remaining())

    def ComparePair(self, request: pb.ComparePairRequest, context: Call) -> pb.ComparePairResponse:
        """Compare one pair."""
        with self._requests("ComparePair", context).admitted() as admitted:
            return self._compare(request, admitted)

    def ComparePairs(self, _messages: None, context: Call) -> Conversation:
        """Compare pairs in order; a pair that is rejected is answered in place."""
        hint = "open a new stream for the next pairs"
        limit = ReadLimit(self.idle_seconds, hint, "COMPARE_IDLE")
        return Conversation(self._compared(context), limit)

    def _compared(self, context: Call) -> Dialogue:
        requests = self._requests("ComparePairs", context)
        request = yield None
        while request is not None:
            answer = pb.ComparePairsResponse(pair_id=request.pair_id)
            try:
                with requests.admitted() as admitted:
                    answer.response.CopyFrom(self._compare(request.pair, admitted))
            except AcpcError as error:
                requests.check()
                nested = context.named(error)
                if isinstance(error, InvalidArgument):
                    nested = error.below("pair")
                answer.error.CopyFrom(to_status(nested, shown_id(request.pair)))
            request = yield answer
        return None

    def CertifyPool(self, request: pb.CertifyPoolRequest, context: Call) -> pb.CertifyPoolResponse:
        """Certify one pool."""
        with self._requests("CertifyPool", context).admitted() as admitted:
            asked = read(PoolRequest, request)
            identity, moment = request_id(asked), self._prepare(asked)
            answer = certify_pool(moment, asked.candidates, admitted, asked)
            return replace(answer, request_id=identity, timing=_spent(admitted)).to_message()

    def Plan(self, _messages: None, context: Call) -> Conversation:
        """Take a start, then its pools, or the next start; one that is rejected ends the stream."""
        hint = "open a new stream for the next pools"
        limit = ReadLimit(self.idle_seconds, hint, "PLAN_IDLE")
        return Conversation(self._planned(context), limit)

    def _planned(self, context: Call) -> Dialogue:
        requests = self._requests("Plan", context)
        message = (yield None) or pb.PlanRequest()
        moment: EncodedMoment | None = None
        identity = ""
        while message is not None:
            answer = pb.PlanResponse()
            with requests.admitted() as admitted:
                if moment is None or message.WhichOneof("message") == "start":
                    identity, moment = self._start(message, admitted)
                    answer.started.CopyFrom(_started(moment.asked, identity, admitted))
                else:
                    answer.certificate.CopyFrom(_certify_next(moment, message, admitted, identity))
            message = yield answer
        return None

    def PlanPaired(self, request: pb.PlanPairedRequest, context: Call) -> pb.PlanPairedResponse:
        """Run CEM on both histories: a clean and a perturbed run for every view."""
        with self._requests("PlanPaired", context).admitted() as admitted:
            asked = read(PairedRequest, request)
            identity, moment = request_id(asked), self._prepare(asked)
            check_budget(moment, asked.budget)
            plans = PairedCem(
                self._planner.encode(moment, admitted),
                asked.budget,
                asked.sampling_seed,
                RETURNS[asked.returns],
                choices=asked.choices,
            ).run(admitted)
            return replace(plans, request_id=identity, timing=_spent(admitted)).to_message()

    def _requests(self, method: str, context: Call) -> CallRequests:
        return CallRequests(self._admission, method, context.life, caller=context.caller)

    def _compare(
        self, request: pb.ComparePairRequest, context: RequestContext
    ) -> pb.ComparePairResponse:
        asked = read(PairRequest, request)
        identity = request_id(asked)
        require_views(asked.views)
        checkpoint = load(self._checkpoints, asked.checkpoint)
        answer = self._comparison.compare(checkpoint, asked, context)
        return replace(answer, request_id=identity, timing=_spent(context)).to_message()

    def _prepare(self, asked: PlannerMoment) -> Moment:
        require_views(asked.views)
        return self._planner.prepare(load(self._checkpoints, asked.checkpoint), asked)

    def _start(self, message: pb.PlanRequest, context: RequestContext) -> tuple[str, EncodedMoment]:
        if message.WhichOneof("message") != "start":
            raise InvalidArgument("start", "the first message of a stream is its start")
        with below("start"):
            asked = read(PlanStart, message.start)
            return request_id(asked), self._planner.encode(self._prepare(asked), context)


def _started(moment: Moment, identity: str, context: RequestContext) -> pb.PlanStarted:
    return pb.PlanStarted(
        request_id=identity,
        receipt=moment.receipt(moment.selection).to_message(),
        timing=_spent(context).to_message(),
    )


def _certify_next(
    moment: EncodedMoment, message: pb.PlanRequest, context: RequestContext, identity: str
) -> pb.PlanCertificate:
    if message.WhichOneof("message") != "pool":
        raise InvalidArgument("pool", "every message after the start is a pool, or another start")
    pool, sampled = message.pool, None
    try:
        if pool.WhichOneof("pool") is None:
            raise InvalidArgument("candidates", "give candidates or a proposal")
        if pool.WhichOneof("pool") == "candidates":
            own = read(OwnPool, pool)
            answer = certify_pool(moment, own.candidates, context, own)
        else:
            for name in ("offsets", "infeasible"):
                if name in {field.name for field, _ in pool.ListFields()}:
                    said = "is of candidates that are sent; a proposal has none"
                    raise InvalidArgument(name, said)
            sampled = draw_pool(moment.asked, read(Proposal, pool.proposal, "proposal"))
            answer = certify_pool(moment, sampled, context)
    except InvalidArgument as error:
        ours = error.field.partition(".")[0] in (
            "candidates", "proposal", "offsets", "infeasible",
        )  # fmt: skip
        raise error.below("pool" if ours else "start") from error
    return pb.PlanCertificate(
        iteration=pool.iteration,
        certificate=replace(answer, request_id=identity, timing=_spent(context)).to_message(),
        candidates=None if sampled is None else write_tensor(sampled),
    )


def _spent(context: RequestContext) -> Timing:
    """Return the seconds that a request waited and computed so far."""
    return Timing(context.queue_seconds, context.compute_seconds, context.total_seconds)
