"""Plan and PlanPaired."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from acpc.contract import CemReturn, CostReduction, NumericMode
from acpc.v1 import diagnostic_service_pb2 as pb
from acpc.v1.diagnostic_service_pb2_grpc import DiagnosticServiceStub
from numpy.typing import NDArray

from acpc_client import codec
from acpc_client.calls import scene
from acpc_client.calls.base import Call, Method
from acpc_client.errors import MalformedAnswer
from acpc_client.inputs import CemBudget, CheckpointRef, unsigned
from acpc_client.perturbations import Perturbation
from acpc_client.results import PairedPlans

# One deadline covers a session; a planner that runs longer names its own.
PLAN = Method(DiagnosticServiceStub, "Plan", timeout=600.0)
PLAN_PAIRED = Method(DiagnosticServiceStub, "PlanPaired", timeout=300.0)
MESSAGE_TIMEOUT_S = 30.0


def start(
    checkpoint: str | CheckpointRef,
    history: NDArray[Any],
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
) -> pb.PlanStart:
    """The first message of a session.

    Raises:
        ArgumentError: An argument cannot be sent as it is.
    """
    return pb.PlanStart(
        **scene.planner_fields(
            checkpoint, history, goal, past_blocks, cost_reduction, numeric_mode, request_id
        ),
        elite_count=unsigned(elite_count, "elite_count"),
        endpoint_tolerance=endpoint_tolerance,
        weights=weights,
        **scene.views_fields(perturbations, views, draws, seed, anchor),
    )


def pool(candidates: NDArray[Any]) -> pb.PlanPool:
    """The message that carries a pool of the caller's own; its iteration is set when it is sent.

    Raises:
        ArgumentError: The candidates cannot be sent as they are.
    """
    return pb.PlanPool(
        candidates=codec.floats(candidates, "candidates", "candidates, H, block width")
    )


def proposal(mean: NDArray[Any], std: NDArray[Any], candidates: int, seed: int) -> pb.PlanPool:
    """The message that has the server sample a pool.

    Raises:
        ArgumentError: An argument cannot be sent as it is.
    """
    axes = "H, block width"
    return pb.PlanPool(
        proposal=pb.GaussianProposal(
            mean=codec.floats(mean, "mean", axes),
            std=codec.floats(std, "std", axes),
            candidates=unsigned(candidates, "candidates"),
            seed=unsigned(seed, "seed", 64),
        )
    )


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
    history: NDArray[Any],
    goal: NDArray[Any],
    budget: CemBudget,
    *,
    past_blocks: NDArray[Any] | None,
    perturbations: Perturbation | Sequence[Perturbation],
    views: NDArray[Any] | None,
    draws: int,
    seed: int,
    anchor: int,
    sampling_seed: int,
    returns: CemReturn,
    cost_reduction: CostReduction,
    numeric_mode: NumericMode,
    request_id: str | None,
) -> Call[PairedPlans]:
    """The call that plans twice with common random numbers.

    Raises:
        ArgumentError: An argument cannot be sent as it is.
    """
    request = pb.PlanPairedRequest(
        **scene.planner_fields(
            checkpoint, history, goal, past_blocks, cost_reduction, numeric_mode, request_id
        ),
        budget=budget.to_message(),
        sampling_seed=unsigned(sampling_seed, "sampling_seed", 64),
        returns=returns.wire,
        **scene.views_fields(perturbations, views, draws, seed, anchor),
    )
    return Call(PLAN_PAIRED, request, PairedPlans.from_message, request.request_id)
