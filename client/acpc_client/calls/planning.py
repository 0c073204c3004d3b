"""Plan and PlanPaired."""

from __future__ import annotations

from typing import Any, Unpack

from acpc.contract import (
    Array,
    CemBudget,
    CemReturn,
    CheckpointRef,
    OwnPool,
    PairedPlans,
    PairedRequest,
    PlanFrame,
    PlanStart,
    Proposal,
)
from acpc.v1 import diagnostic_service_pb2 as pb
from acpc.v1.diagnostic_service_pb2_grpc import DiagnosticServiceStub

from acpc_client.calls.base import message, send
from acpc_client.calls.call import Call, Method
from acpc_client.calls.options import CertifyOptions, PairedOptions, check_options
from acpc_client.calls.scene import moment, said_of_candidates, selection
from acpc_client.errors import MalformedAnswer

# One deadline covers a session; a planner that runs longer names its own.
PLAN = Method(DiagnosticServiceStub, "Plan", timeout=600.0)
PLAN_PAIRED = Method(DiagnosticServiceStub, "PlanPaired", timeout=300.0)
MESSAGE_TIMEOUT_S = 30.0


def start(
    checkpoint: str | CheckpointRef,
    history: Array,
    goal: Array,
    **options: Unpack[CertifyOptions],
) -> pb.PlanStart:
    """The first message of a session.

    Raises:
        ArgumentError: An argument cannot be sent as it is.
        TypeError: An unknown option.
    """
    check_options(options, CertifyOptions)
    return message(PlanStart(**moment(checkpoint, history, goal, options), **selection(options)))


def frame(
    history: Array,
    *,
    keep: int,
    past_blocks: Array | None,
    goal: Array | None,
    views: Array | None,
    proprio: Array | None,
    goal_proprio: Array | None,
) -> pb.PlanRequest:
    """The message that moves a session on.

    Raises:
        ArgumentError: An argument cannot be sent as it is.
    """
    moved = PlanFrame(
        history=history,
        keep=keep,
        past_blocks=past_blocks,
        goal=goal,
        goal_proprio=goal_proprio,
        proprio=proprio,
        explicit_views=views,
    )
    return pb.PlanRequest(frame=message(moved))


# What a frame may change of a start.
_WHOLE = ("past_blocks", "explicit_views", "proprio")
_MOVING = {"request_id", "history", "goal", "goal_proprio", *_WHOLE}


def frame_between(before: pb.PlanStart, after: pb.PlanStart) -> pb.PlanRequest | None:
    """The message that moves a session from one start to another; None: they differ too much."""

    def rest(start: pb.PlanStart) -> list[tuple[str, Any]]:
        return [(f.name, value) for f, value in start.ListFields() if f.name not in _MOVING]

    old, new = before.history, after.history
    if rest(before) != rest(after) or old.shape[1:] != new.shape[1:] or not new.shape[0]:
        return None
    each, count = len(new.data) // new.shape[0], new.shape[0]
    most = min(old.shape[0], count - 1)
    keep = next(k for k in range(most, -1, -1) if old.data.endswith(new.data[: k * each]))
    newest = type(new)(
        dtype=new.dtype, shape=[count - keep, *new.shape[1:]], data=new.data[keep * each :]
    )
    stays = before.goal == after.goal and before.goal_proprio == after.goal_proprio
    moved = pb.PlanFrame(history=newest, keep=keep, goal=None if stays else after.goal)
    whole = _WHOLE if stays else (*_WHOLE, "goal_proprio")
    for given, value in after.ListFields():
        if given.name in whole:
            getattr(moved, given.name).CopyFrom(value)
    return pb.PlanRequest(frame=moved)


def pool(
    candidates: Array,
    offsets: Array | None = None,
    infeasible: Array | None = None,
) -> pb.PlanPool:
    """The message that carries a pool of the caller's own; its iteration is set when it is sent.

    Raises:
        ArgumentError: The candidates cannot be sent as they are.
    """
    return message(OwnPool(**said_of_candidates(candidates, offsets, infeasible)))


def proposal(mean: Array, std: Array, candidates: int, seed: int) -> pb.PlanPool:
    """The message that has the server sample a pool.

    Raises:
        ArgumentError: An argument cannot be sent as it is.
    """
    drawn = Proposal(mean=mean, std=std, candidates=candidates, seed=seed)
    return pb.PlanPool(proposal=message(drawn))


def started(answer: pb.PlanResponse | None) -> pb.PlanStarted:
    """The answer to the first message.

    Raises:
        MalformedAnswer: It is another one, or none.
    """
    if answer is None or answer.WhichOneof("message") != "started":
        raise MalformedAnswer("Plan: the stream did not begin with its receipt")
    return answer.started


def certificate(answer: pb.PlanResponse | None, iteration: int) -> pb.PlanCertificate:
    """The answer to the pool of an iteration.

    Raises:
        MalformedAnswer: It is another one, or none.
    """
    if answer is None or answer.WhichOneof("message") != "certificate":
        raise MalformedAnswer(f"Plan: no certificate for iteration {iteration}")
    if answer.certificate.iteration != iteration:
        found = answer.certificate.iteration
        raise MalformedAnswer(f"Plan: a certificate for iteration {found}, wanted {iteration}")
    return answer.certificate


def plan_paired(
    checkpoint: str | CheckpointRef,
    history: Array,
    goal: Array,
    budget: CemBudget,
    **options: Unpack[PairedOptions],
) -> Call[PairedPlans]:
    """The call that plans twice with common random numbers.

    Raises:
        ArgumentError: An argument cannot be sent as it is.
        TypeError: An unknown option.
    """
    check_options(options, PairedOptions)
    request = PairedRequest(
        **moment(checkpoint, history, goal, options),
        budget=budget,
        sampling_seed=options.get("sampling_seed", 0),
        returns=options.get("returns", CemReturn.SERVER_DEFAULT),
        choices=options.get("choices", False),
    )
    return send(PLAN_PAIRED, request, PairedPlans.from_message)
