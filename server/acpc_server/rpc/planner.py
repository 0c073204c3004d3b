"""CertifyPool, Plan and PlanPaired: a planner's questions, in and out of the wire's messages."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace

from acpc.contract import (
    OwnPool,
    PairedRequest,
    PlannerMoment,
    PlanStart,
    PoolRequest,
    Proposal,
    write_tensor,
)
from acpc.v1 import diagnostic_service_pb2 as pb

from acpc_server.engine import CheckpointCache
from acpc_server.errors import InvalidArgument
from acpc_server.interactive import (
    REDUCTIONS,
    RETURNS,
    PairedCem,
    Planner,
    PlanningRequest,
    PlanningSession,
    certify_pool,
    check_pool,
    draw_pool,
    selection_parameters,
)
from acpc_server.rpc.request import load, read, read_mode, read_views, request_id, spent
from acpc_server.scheduling import CallRequests, RequestContext, read_until_idle


class PlannerRpcs:
    """Answers planners.

    Args:
        checkpoints: The loaded checkpoints.
        planner: Opens planning sessions.
        idle_seconds: How long a Plan stream may stay silent.
    """

    def __init__(
        self, checkpoints: CheckpointCache, planner: Planner, *, idle_seconds: float
    ) -> None:
        self._checkpoints = checkpoints
        self._planner = planner
        self._idle_seconds = idle_seconds

    def certify_pool(
        self, request: pb.CertifyPoolRequest, context: RequestContext
    ) -> pb.CertifyPoolResponse:
        """One pool."""
        asked = read(PoolRequest, request)
        identity, candidates = request_id(asked), asked.candidates
        session = self._prepare(asked)
        check_pool(session, candidates.shape)  # before anything is computed
        self._planner.encode(session, context)
        answer = certify_pool(session, candidates, context)
        timing = spent(context)
        return replace(answer, request_id=identity, timing=timing).to_message()

    def plan(
        self, messages: Iterator[pb.PlanRequest], requests: CallRequests
    ) -> Iterator[pb.PlanResponse]:
        """One session, then a pool a message; the first that is rejected ends the stream."""
        limited = read_until_idle(
            messages,
            self._idle_seconds,
            hint="open a new stream for the next pools",
            reason="PLAN_IDLE",
        )
        with closing(limited):
            message = next(limited, pb.PlanRequest())
            with requests.admitted() as context:
                session, started = self._start(message, context)
            yield pb.PlanResponse(started=started)
            for message in limited:
                with requests.admitted() as context:
                    certificate = _certify_next(session, message, started.request_id, context)
                yield pb.PlanResponse(certificate=certificate)

    def _start(
        self, message: pb.PlanRequest, context: RequestContext
    ) -> tuple[PlanningSession, pb.PlanStarted]:
        if message.WhichOneof("message") != "start":
            raise InvalidArgument("start", "the first message of a stream is its start")
        try:
            asked = read(PlanStart, message.start)
            identity, session = request_id(asked), self._prepare(asked)
            self._planner.encode(session, context)
        except InvalidArgument as error:
            raise error.below("start") from error
        return session, pb.PlanStarted(
            request_id=identity,
            receipt=session.receipt(selection_parameters(session.request)).to_message(),
            timing=spent(context).to_message(),
        )

    def plan_paired(
        self, request: pb.PlanPairedRequest, context: RequestContext
    ) -> pb.PlanPairedResponse:
        """A clean and a perturbed CEM run for every view."""
        asked = read(PairedRequest, request)
        identity, session = request_id(asked), self._prepare(asked)
        runs = PairedCem(session, asked.budget, asked.sampling_seed, RETURNS[asked.returns])
        self._planner.encode(session, context)
        plans, _ = runs.run(context)
        timing = spent(context)
        return replace(plans, request_id=identity, timing=timing).to_message()

    def _prepare(self, asked: PlannerMoment) -> PlanningSession:
        selecting = asked if isinstance(asked, PlanStart) else None
        moment = PlanningRequest(
            history=asked.history,
            past_blocks=asked.past_blocks,
            goal=asked.goal,
            views=read_views(asked.views),
            elite_count=selecting.elite_count if selecting else 0,
            reduction=REDUCTIONS[asked.cost_reduction],
            endpoint_tolerance=selecting.endpoint_tolerance if selecting else 0.0,
            weights=selecting.weights if selecting else (),
            numeric_mode=read_mode(asked.numeric_mode),
        )
        return self._planner.prepare(load(self._checkpoints, asked.checkpoint), moment)


def _certify_next(
    session: PlanningSession, message: pb.PlanRequest, identity: str, context: RequestContext
) -> pb.PlanCertificate:
    if message.WhichOneof("message") != "pool":
        raise InvalidArgument("pool", "every message after the start is a pool")
    pool = message.pool
    try:
        kind = pool.WhichOneof("pool")
        if kind is None:
            raise InvalidArgument("candidates", "give candidates or a proposal")
        sampled = kind == "proposal"
        candidates = (
            draw_pool(session, read(Proposal, pool.proposal, "proposal"))
            if sampled
            else read(OwnPool, pool).candidates
        )
        answer = certify_pool(session, candidates, context)
    except InvalidArgument as error:
        ours = error.field.partition(".")[0] in ("candidates", "proposal")
        raise error.below("pool" if ours else "start") from error
    answer = replace(answer, request_id=identity, timing=spent(context))
    return pb.PlanCertificate(
        iteration=pool.iteration,
        certificate=answer.to_message(),
        candidates=write_tensor(candidates) if sampled else None,
    )
