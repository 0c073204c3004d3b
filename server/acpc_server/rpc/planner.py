"""CertifyPool, Plan and PlanPaired: a planner's questions, in and out of the wire's messages."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from typing import NamedTuple, TypeAlias

import numpy as np
import torch
from acpc.v1 import diagnostic_service_pb2 as pb
from acpc.v1 import tensor_pb2

from acpc_server.encoding import check_block_width
from acpc_server.engine import CheckpointCache
from acpc_server.errors import InvalidArgument
from acpc_server.interactive import (
    CemBudget,
    PairedCem,
    Planner,
    PlanningRequest,
    PlanningSession,
    Returns,
    certify_pool,
    check_pool,
    selection_parameters,
)
from acpc_server.numerics import Proposal, Reduction, pool_normals, sample_pool
from acpc_server.rpc import codec
from acpc_server.rpc.request import StreamContexts, load, request_id
from acpc_server.rpc.streams import within
from acpc_server.scheduling import RequestContext

REDUCTIONS: dict[int, Reduction] = {
    pb.COST_REDUCTION_UNSPECIFIED: "sum",
    pb.COST_REDUCTION_SUM: "sum",
    pb.COST_REDUCTION_MEAN: "mean",
}
RETURNS: dict[int, Returns] = {
    pb.CEM_RETURN_UNSPECIFIED: "mean",
    pb.CEM_RETURN_MEAN: "mean",
    pb.CEM_RETURN_BEST: "best",
}
Selecting: TypeAlias = pb.CertifyPoolRequest | pb.PlanStart
Planning: TypeAlias = Selecting | pb.PlanPairedRequest


class _Selection(NamedTuple):
    elite_count: int = 0
    endpoint_tolerance: float = 0.0
    weights: tuple[float, ...] = ()


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
        started = time.perf_counter()
        identity = request_id(request)
        candidates = _read_candidates(request.candidates)
        session = self._prepare(request, _read_selection(request))
        check_pool(session, candidates.shape)  # before anything is computed
        self._planner.encode(session, context)
        answer = certify_pool(session, candidates, context)
        timing = codec.spent(context, started)
        return replace(answer, request_id=identity, timing=timing).to_message()

    def plan(
        self, requests: Iterator[pb.PlanRequest], contexts: StreamContexts
    ) -> Iterator[pb.PlanResponse]:
        """One session, then a pool a message; the first refusal ends the stream."""
        limited = within(
            requests,
            self._idle_seconds,
            hint="open a new stream for the next pools",
            reason="PLAN_IDLE",
        )
        with closing(limited) as messages:
            yield from self._plan(messages, contexts)

    def _plan(
        self, messages: Iterator[pb.PlanRequest], contexts: StreamContexts
    ) -> Iterator[pb.PlanResponse]:
        message = next(messages, pb.PlanRequest())
        started, context = time.perf_counter(), contexts.renew()
        if message.WhichOneof("message") != "start":
            raise InvalidArgument("start", "the first message of a stream is its start")
        try:
            identity = request_id(message.start)
            session = self._prepare(message.start, _read_selection(message.start))
            self._planner.encode(session, context)
        except InvalidArgument as error:
            raise error.below("start") from error
        yield pb.PlanResponse(
            started=pb.PlanStarted(
                request_id=identity,
                receipt=session.receipt(selection_parameters(session.request)).to_message(),
                timing=codec.spent(context, started).to_message(),
            )
        )
        for message in messages:
            started, context = time.perf_counter(), contexts.renew()
            context.check()
            if message.WhichOneof("message") != "pool":
                raise InvalidArgument("pool", "every message after the start is a pool")
            try:
                certificate = _certify_next(session, message.pool, identity, context, started)
            except InvalidArgument as error:
                head = error.field.partition(".")[0]
                ours = head in ("candidates", "proposal")
                raise error.below("pool" if ours else "start") from error
            yield pb.PlanResponse(certificate=certificate)

    def plan_paired(
        self, request: pb.PlanPairedRequest, context: RequestContext
    ) -> pb.PlanPairedResponse:
        """A clean and a perturbed CEM run for every view."""
        started = time.perf_counter()
        identity = request_id(request)
        budget, returns = read_budget(request.budget), read_returns(request.returns)
        session = self._prepare(request, _Selection())
        runs = PairedCem(session, budget, request.sampling_seed, returns)
        self._planner.encode(session, context)
        plans, _ = runs.run(context)
        timing = codec.spent(context, started)
        return replace(plans, request_id=identity, timing=timing).to_message()

    def _prepare(self, request: Planning, selection: _Selection) -> PlanningSession:
        history = codec.read_frames(request.history, "history", "frames")
        reduction = REDUCTIONS.get(request.cost_reduction)
        if reduction is None:
            raise InvalidArgument("cost_reduction", f"unknown reduction {request.cost_reduction}")
        moment = PlanningRequest(
            history=history,
            past_blocks=_read_past(request),
            goal=_read_goal(request, history),
            views=codec.read_views(request, history),
            elite_count=selection.elite_count,
            reduction=reduction,
            endpoint_tolerance=selection.endpoint_tolerance,
            weights=selection.weights,
            numeric_mode=codec.read_mode(request.numeric_mode),
        )
        return self._planner.prepare(load(self._checkpoints, request.checkpoint), moment)


def _certify_next(
    session: PlanningSession,
    pool: pb.PlanPool,
    identity: str,
    context: RequestContext,
    started: float,
) -> pb.PlanCertificate:
    kind = pool.WhichOneof("pool")
    if kind is None:
        raise InvalidArgument("candidates", "give candidates or a proposal")
    sampled = kind == "proposal"
    candidates = _sample(session, pool.proposal) if sampled else _read_candidates(pool.candidates)
    answer = certify_pool(session, candidates, context)
    answer = replace(answer, request_id=identity, timing=codec.spent(context, started))
    return pb.PlanCertificate(
        iteration=pool.iteration,
        certificate=answer.to_message(),
        candidates=codec.write_tensor(candidates) if sampled else None,
    )


def _sample(session: PlanningSession, message: pb.GaussianProposal) -> np.ndarray:
    """A pool that depends on the proposal and its seed only."""
    mean = codec.read_floats(message.mean, "proposal.mean", "H, block width")
    std = codec.read_floats(message.std, "proposal.std", "H, block width")
    check_block_width(session.card, mean.shape[1], "proposal.mean")
    if std.shape != mean.shape:
        raise InvalidArgument(
            "proposal.std.shape", f"{list(std.shape)}, but the mean is {list(mean.shape)}"
        )
    if (std < 0).any():
        raise InvalidArgument("proposal.std.data", "holds a negative standard deviation")
    # Before anything is sampled: a few bytes may ask for billions of candidates.
    try:
        check_pool(session, (message.candidates, *mean.shape))
    except InvalidArgument as error:
        if error.field != "candidates.shape":
            raise
        raise InvalidArgument(
            "proposal.candidates", error.description, reason=error.reason
        ) from error
    normals = pool_normals(
        message.seed,
        0,
        candidates=message.candidates,
        horizon=mean.shape[0],
        width=mean.shape[1],
    )
    proposal = Proposal(torch.from_numpy(mean.copy()), torch.from_numpy(std.copy()))
    candidates = sample_pool(proposal, normals).numpy()
    if not np.isfinite(candidates).all():
        raise InvalidArgument("proposal.std.data", "a candidate overflows float32; lower it")
    return candidates


def _read_candidates(tensor: tensor_pb2.Tensor) -> np.ndarray:
    return codec.read_floats(tensor, "candidates", "candidates, H, block width")


def _read_selection(request: Selecting) -> _Selection:
    return _Selection(request.elite_count, request.endpoint_tolerance, tuple(request.weights))


def _read_past(request: Planning) -> np.ndarray | None:
    if not request.HasField("past_blocks"):
        return None
    blocks = codec.read_floats(request.past_blocks, "past_blocks", "h - 1, block width")
    return blocks if len(blocks) else None


def _read_goal(request: Planning, history: np.ndarray) -> np.ndarray:
    kind = request.goal.WhichOneof("goal")
    if kind is None:
        raise InvalidArgument("goal", "give a frame or a latent")
    if kind == "frame":
        return codec.read_matching_frames(request.goal.frame, "goal.frame", "", history)
    return codec.read_floats(request.goal.latent, "goal.latent", "latent width")


def read_budget(message: pb.CemBudget) -> CemBudget:
    """A zero stands for the default of its field."""
    given = {field.name: value for field, value in message.ListFields()}
    return CemBudget(**given)


def read_returns(value: int) -> Returns:
    """What a run returns; InvalidArgument when there is no such kind."""
    returns = RETURNS.get(value)
    if returns is None:
        raise InvalidArgument("returns", f"unknown kind of plan {value}")
    return returns
