"""The diagnostics: ComparePair, ComparePairs, CertifyPool, Plan and PlanPaired."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Unpack

import numpy as np
from acpc.contract import (
    ArgumentError,
    Array,
    CemBudget,
    CheckpointRef,
    NumericMode,
    OwnPool,
    PairComparison,
    PairedPlans,
    PairedRequest,
    PairRequest,
    Perturbation,
    PerturbationSet,
    PlanStart,
    PoolCertificate,
    PoolRequest,
    Proposal,
    Views,
    VisualChange,
)
from acpc.v1 import diagnostic_service_pb2 as pb
from acpc.v1.diagnostic_service_pb2_grpc import DiagnosticServiceStub

from acpc_client.calls.call import (
    CertifyOptions,
    Method,
    PairedOptions,
    PairOptions,
    PlannerOptions,
    PoolOptions,
    PreparedCall,
    ViewOptions,
    check_options,
    common,
    message,
    send,
)
from acpc_client.errors import MalformedAnswer
from acpc_client.inputs import Pair

_MOMENT = (
    "proprio", "goal_proprio", "past_blocks", "cost_reduction", "endpoint_tolerance", "objective",
)  # fmt: skip
_SELECTION = ("elite_count", "weights", "kept_elites", "temperature")


def views(options: ViewOptions) -> Views:
    """The other views of a history.

    Raises ArgumentError: Both or neither of perturbations and views, or something else.
    """
    given = options.get("perturbations")
    specs = () if given is None else perturbations(given)
    own = options.get("views")
    if bool(specs) == (own is not None):
        found = "both" if specs else "neither"
        raise ArgumentError("perturbations", f"found {found}, wanted perturbations or views")
    if own is not None:
        return own
    numbers: list[Any] = [options.get(name) for name in ("draws", "seed", "anchor")]
    return PerturbationSet(specs, *numbers)


def perturbations(given: object) -> tuple[Perturbation, ...]:
    """One or several perturbations as a tuple; raises ArgumentError for anything else."""
    if not isinstance(given, Sequence) or isinstance(given, str | bytes):
        given = (given,)
    return tuple(only_perturbation(spec, "perturbations") for spec in given)


def only_perturbation(given: object, name: str) -> Perturbation:
    """``given`` itself; raises ArgumentError, which names the argument, when it is none."""
    if not isinstance(given, VisualChange):
        raise ArgumentError(
            name, f"found {given!r:.80}, wanted a perturbation, for example GaussianNoise(0.08)"
        )
    checked: Perturbation = given  # type: ignore[assignment]
    return checked


def moment(
    checkpoint: str | CheckpointRef,
    history: Array,
    goal: Array,
    options: PlannerOptions,
    *more: str,
) -> dict[str, Any]:
    """Collects what every planner request has, and ``more`` options; raises as ``views``."""
    return {
        **common(checkpoint, options, *_MOMENT, *more),
        "history": history,
        "goal": goal,
        "views": views(options),
    }


def said_of_candidates(
    candidates: Array, offsets: Array | None, infeasible: Array | None
) -> dict[str, Any]:
    """A pool with what is known of each candidate.

    Raises ArgumentError: The mask is none of bools, one for each candidate.
    """
    mask = None if infeasible is None else np.asarray(infeasible)
    if mask is not None and (mask.dtype != bool or mask.shape != np.shape(candidates)[:1]):
        found = f"found {mask.dtype} {list(mask.shape)}"
        raise ArgumentError("infeasible", f"{found}, wanted bool, one for each candidate")
    indices = () if mask is None else tuple(np.flatnonzero(mask).tolist())
    return {"candidates": candidates, "offsets": offsets, "infeasible": indices}


COMPARE_PAIR = Method(DiagnosticServiceStub, "ComparePair", timeout=30.0)
COMPARE_PAIRS = Method(DiagnosticServiceStub, "ComparePairs", timeout=600.0)
CERTIFY_POOL = Method(DiagnosticServiceStub, "CertifyPool", timeout=30.0)


def compare_pair(
    checkpoint: str | CheckpointRef,
    history: Array,
    action_blocks: Array,
    **options: Unpack[PairOptions],
) -> PreparedCall[PairComparison]:
    """The call that compares one pair.

    Raises ArgumentError: An argument cannot be sent as it is; TypeError: An unknown option.
    """
    check_options(options, PairOptions)
    own = common(checkpoint, options, "proprio", "observed_future", "future_proprio", "weights")
    request = PairRequest(**own, history=history, action_blocks=action_blocks, views=views(options))
    return send(COMPARE_PAIR, request, PairComparison.from_message)


def stream_item(
    checkpoint: str | CheckpointRef, pair: Pair, numeric_mode: NumericMode
) -> pb.ComparePairsRequest:
    """Makes the message that carries one pair of a stream."""
    asked = {name: value for name, value in vars(pair).items() if name != "pair_id"}
    call = compare_pair(checkpoint, numeric_mode=numeric_mode, **asked)
    return pb.ComparePairsRequest(pair_id=pair.pair_id, pair=call.request)


def certify_pool(
    checkpoint: str | CheckpointRef,
    history: Array,
    candidates: Array,
    goal: Array,
    **options: Unpack[PoolOptions],
) -> PreparedCall[PoolCertificate]:
    """Makes the call that certifies one pool.

    Raises ArgumentError: An argument cannot be sent as it is; TypeError: An unknown option.
    """
    check_options(options, PoolOptions)
    request = PoolRequest(
        **moment(checkpoint, history, goal, options, *_SELECTION),
        **said_of_candidates(candidates, options.get("offsets"), options.get("infeasible")),
    )
    return send(CERTIFY_POOL, request, PoolCertificate.from_message)


# One deadline covers a session; a planner that runs longer names its own.
PLAN = Method(DiagnosticServiceStub, "Plan", timeout=600.0)
PLAN_PAIRED = Method(DiagnosticServiceStub, "PlanPaired", timeout=300.0)
MESSAGE_TIMEOUT_S = 30.0


def start(
    checkpoint: str | CheckpointRef, history: Array, goal: Array, **options: Unpack[CertifyOptions]
) -> pb.PlanStart:
    """The message that begins a moment of a session.

    Raises ArgumentError: An argument cannot be sent as it is; TypeError: An unknown option.
    """
    check_options(options, CertifyOptions)
    return message(PlanStart(**moment(checkpoint, history, goal, options, *_SELECTION)))


def pool(
    candidates: Array, offsets: Array | None = None, infeasible: Array | None = None
) -> pb.PlanPool:
    """The message that carries a pool of the caller's own; its iteration is set when it is sent.

    Raises ArgumentError: The candidates cannot be sent as they are.
    """
    return message(OwnPool(**said_of_candidates(candidates, offsets, infeasible)))


def proposal(mean: Array, std: Array, candidates: int, seed: int) -> pb.PlanPool:
    """The message that has the server sample a pool.

    Raises ArgumentError: An argument cannot be sent as it is.
    """
    drawn = Proposal(mean=mean, std=std, candidates=candidates, seed=seed)
    return pb.PlanPool(proposal=message(drawn))


def started(answer: pb.PlanResponse | None) -> pb.PlanStarted:
    """The answer to a start. Raises MalformedAnswer: It is another one, or none."""
    if answer is None or answer.WhichOneof("message") != "started":
        raise MalformedAnswer("Plan: the stream did not begin with its receipt")
    return answer.started


def certificate(answer: pb.PlanResponse | None, iteration: int) -> pb.PlanCertificate:
    """The answer to the pool of an iteration.

    Raises MalformedAnswer: It is another one, or none.
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
) -> PreparedCall[PairedPlans]:
    """The call that plans twice with common random numbers.

    Raises ArgumentError: An argument cannot be sent as it is; TypeError: An unknown option.
    """
    check_options(options, PairedOptions)
    own = moment(checkpoint, history, goal, options, "sampling_seed", "returns", "choices")
    request = PairedRequest(**own, budget=budget)
    return send(PLAN_PAIRED, request, PairedPlans.from_message)
