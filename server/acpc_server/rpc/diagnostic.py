"""DiagnosticService: one history under a visual change, and what a planner asks about it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, TypeVar

from acpc.contract import (
    MAX_REQUEST_ID,
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
from acpc.v1 import receipt_pb2

from acpc_server.engine import CachedCheckpoint, CheckpointCache, DeviceClient
from acpc_server.errors import AcpcError, InvalidArgument, below
from acpc_server.interactive import (
    RETURNS,
    EncodedMoment,
    Moment,
    PairComparer,
    PairedCem,
    Planner,
    check_budget,
    draw_pool,
    pool_work,
)
from acpc_server.rpc.call import Call, to_status
from acpc_server.rpc.limits import IDLE_SECONDS, ReadLimit
from acpc_server.rpc.request import load, read, require_views
from acpc_server.scheduling import WAIT_SHARE, Admission, Priority, RequestContext, Work

# Time of a request whose caller sets no deadline, and the most that a deadline gives it.
MAX_REQUEST_SECONDS = 300.0
# An open stream was admitted once: its later messages are rejected only when they would be late,
# since a planner cannot continue without them.
ADMITTED = 1.0
PAIRS_IDLE = ReadLimit(IDLE_SECONDS, "open a new stream for the next pairs", "COMPARE_IDLE")
POOLS_IDLE = ReadLimit(IDLE_SECONDS, "open a new stream for the next pools", "PLAN_IDLE")
FIRST = "the first message of a stream is its start"
T = TypeVar("T")


@dataclass(frozen=True)
class DiagnosticServicer:
    """Serves pairwise ACPC and planners."""

    _engine: DeviceClient
    _admission: Admission
    _checkpoints: CheckpointCache
    _comparison: PairComparer
    _planner: Planner

    async def ComparePair(
        self, request: pb.ComparePairRequest, call: Call
    ) -> pb.ComparePairResponse:
        """Compare one pair."""
        with self._admitted(call) as admitted:
            return await self._compare(request, call, admitted)

    async def ComparePairs(self, call: Call) -> AsyncIterator[pb.ComparePairsResponse]:
        """Compare pairs in order; a pair that is rejected is answered in place."""
        share = WAIT_SHARE
        async for request in call.messages(PAIRS_IDLE):
            answer = pb.ComparePairsResponse(pair_id=request.pair_id)
            try:
                with self._admitted(call, share) as one:
                    share = ADMITTED
                    found = await self._compare(request.pair, call, one)
                    answer.response.CopyFrom(found)
            except AcpcError as error:
                nested = call.named(error)
                if isinstance(error, InvalidArgument):
                    nested = error.below("pair")
                # Its own id may itself be at fault.
                identity = request.pair.request_id[:MAX_REQUEST_ID] or call.request_id
                answer.error.CopyFrom(to_status(nested, identity))
            yield answer

    async def CertifyPool(
        self, request: pb.CertifyPoolRequest, call: Call
    ) -> pb.CertifyPoolResponse:
        """Certify one pool."""
        with self._admitted(call) as admitted:

            def prepare(loaded: CachedCheckpoint | None) -> Work[pb.CertifyPoolResponse]:
                asked = read(PoolRequest, request)
                moment = self._prepare(asked, loaded)
                work: Work[Any] = pool_work(moment, asked.candidates, admitted, asked)
                identity = asked.request_id or call.request_id
                work.finish = partial(_written, identity, admitted, work.finish)
                return work

            return await self._answer(call, admitted, request.checkpoint, prepare)

    async def Plan(self, call: Call) -> AsyncIterator[pb.PlanResponse]:
        """Take a start, then its pools, or the next start; one that is rejected ends the stream."""
        share, identity = WAIT_SHARE, ""
        moment: EncodedMoment | None = None
        async for message in call.messages(POOLS_IDLE):
            with self._admitted(call, share) as one:
                share = ADMITTED
                if moment is None or message.WhichOneof("message") == "start":
                    moment = await call.aside(self._start, message, one)
                    identity = message.start.request_id or call.request_id
                    started = pb.PlanStarted(
                        request_id=identity,
                        receipt=moment.asked.receipt(moment.asked.selection).to_message(),
                        timing=_spent(one).to_message(),
                    )
                    answer = pb.PlanResponse(started=started)
                else:
                    answer = pb.PlanResponse()
                    prepare = partial(_next_pool, moment, message, identity, one)
                    with _of_plan():
                        found = await self._answer(call, one, None, prepare)
                    answer.certificate.CopyFrom(found)
            yield answer
        if moment is None:
            raise InvalidArgument("start", FIRST)

    async def PlanPaired(self, request: pb.PlanPairedRequest, call: Call) -> pb.PlanPairedResponse:
        """Run CEM on both histories: a clean and a perturbed run for every view."""
        with self._admitted(call) as admitted:

            def plan() -> pb.PlanPairedResponse:
                asked = read(PairedRequest, request)
                moment = self._prepare(asked)
                check_budget(moment, asked.budget)
                planner = PairedCem(
                    self._planner.encode(moment, admitted),
                    asked.budget,
                    asked.sampling_seed,
                    RETURNS[asked.returns],
                    choices=asked.choices,
                )
                identity = asked.request_id or call.request_id
                answer: pb.PlanPairedResponse = _written(identity, admitted, planner.run, admitted)
                return answer

            return await call.aside(plan)

    def _admitted(
        self, call: Call, share: float = WAIT_SHARE
    ) -> AbstractContextManager[RequestContext]:
        """Count a request while the block computes it, as :meth:`Admission.request`."""
        remaining = call.remaining()
        seconds = min(MAX_REQUEST_SECONDS, MAX_REQUEST_SECONDS if remaining is None else remaining)
        context = RequestContext(Priority.INTERACTIVE, seconds, caller=call.caller)
        return self._admission.request(call.method.name, context, share)

    async def _answer(
        self,
        call: Call,
        context: RequestContext,
        ref: receipt_pb2.CheckpointRef | None,
        prepare: Callable[[CachedCheckpoint | None], Work[T]],
    ) -> T:
        """Prepare a request's work, have the device do it, and finish the answer.

        All but the device's part is done here, on the event loop, where it takes no longer than a
        millisecond or so. A worker does it for a large message, a checkpoint ``ref`` that is to be
        loaded, and work in pieces.
        """
        loaded = None if ref is None else self._checkpoints.at_hand(ref.name, ref.weights)
        work = None
        if call.small and (ref is None or loaded is not None):
            work = prepare(loaded)
            if not self._engine.is_large(work):
                return work.finish(await self._engine.ask(work, context))
        return await call.aside(lambda: self._engine.run(work or prepare(loaded), context))

    async def _compare(
        self, request: pb.ComparePairRequest, call: Call, context: RequestContext
    ) -> pb.ComparePairResponse:
        def prepare(loaded: CachedCheckpoint | None) -> Work[pb.ComparePairResponse]:
            asked = read(PairRequest, request)
            require_views(asked.views)
            checkpoint = load(self._checkpoints, asked.checkpoint, loaded=loaded)
            work: Work[Any] = self._comparison.work(checkpoint, asked, context)
            identity = asked.request_id or call.request_id
            work.finish = partial(_written, identity, context, work.finish)
            return work

        return await self._answer(call, context, request.checkpoint, prepare)

    def _prepare(self, asked: PlannerMoment, loaded: CachedCheckpoint | None = None) -> Moment:
        require_views(asked.views)
        checkpoint = load(self._checkpoints, asked.checkpoint, loaded=loaded)
        return self._planner.prepare(checkpoint, asked)

    def _start(self, message: pb.PlanRequest, context: RequestContext) -> EncodedMoment:
        if message.WhichOneof("message") != "start":
            raise InvalidArgument("start", FIRST)
        with below("start"):
            asked = read(PlanStart, message.start)
            return self._planner.encode(self._prepare(asked), context)


def _next_pool(
    moment: EncodedMoment,
    message: pb.PlanRequest,
    identity: str,
    context: RequestContext,
    loaded: CachedCheckpoint | None,  # none is asked for
) -> Work[pb.PlanCertificate]:
    if message.WhichOneof("message") != "pool":
        raise InvalidArgument("pool", "every message after the start is a pool, or another start")
    pool, own, sampled = message.pool, None, None
    if pool.WhichOneof("pool") is None:
        raise InvalidArgument("candidates", "give candidates or a proposal")
    if pool.WhichOneof("pool") == "candidates":
        own = read(OwnPool, pool)
        candidates = own.candidates
    else:
        for field, _ in pool.ListFields():
            if field.name in ("offsets", "infeasible"):
                said = "is of candidates that are sent; a proposal has none"
                raise InvalidArgument(field.name, said)
        candidates = sampled = draw_pool(moment.asked, read(Proposal, pool.proposal, "proposal"))
    work: Work[Any] = pool_work(moment, candidates, context, own)
    finish = work.finish

    def write(measured: object) -> pb.PlanCertificate:
        return pb.PlanCertificate(
            iteration=pool.iteration,
            certificate=_written(identity, context, finish, measured),
            candidates=None if sampled is None else write_tensor(sampled),
        )

    work.finish = write
    return work


@contextmanager
def _of_plan() -> Iterator[None]:
    """Name the message of a stream of plans that an error is about: the pool or the start."""
    try:
        yield
    except InvalidArgument as error:
        ours = error.field.partition(".")[0] in (
            "pool", "candidates", "proposal", "offsets", "infeasible",
        )  # fmt: skip
        if error.field == "pool":
            raise
        raise error.below("pool" if ours else "start") from error


def _written(
    identity: str, context: RequestContext, finish: Callable[[Any], Any], measured: object
) -> Any:  # noqa: ANN401 - a message of any type
    """Finish an answer and write it, with its request's id and the seconds that it took."""
    found = finish(measured)
    return replace(found, request_id=identity, timing=_spent(context)).to_message()


def _spent(context: RequestContext) -> Timing:
    return Timing(context.queue_seconds, context.compute_seconds, context.total_seconds)
