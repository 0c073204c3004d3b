"""Planners' messages as a caller sends them. Nothing of the client."""

from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np
import wire
from acpc.arrays import NDArray
from acpc.v1 import diagnostic_service_pb2 as pb
from acpc.v1 import tensor_pb2

CANDIDATES, HORIZON, ELITES = 12, 3, 3


def pool(count: int = CANDIDATES, *, horizon: int = HORIZON, seed: int = 4) -> NDArray[np.float32]:
    """Random float32 candidates (count, horizon, block width)."""
    shape = (count, horizon, wire.WIDTH)
    return np.random.default_rng(seed).standard_normal(shape, np.float32)


def moment() -> dict[str, Any]:
    """The fields that every planner's request has."""
    return {
        "checkpoint": wire.checkpoint(),
        "history": wire.tensor(wire.frames(wire.HISTORY)),
        "past_blocks": wire.tensor(wire.blocks(wire.HISTORY - 1)),
        "goal": pb.Goal(frame=wire.tensor(wire.frames(1, seed=8)[0])),
        "perturbations": wire.several(wire.noise(1e-4), wire.noise(0.05), draws=2, seed=3),
    }


Message = TypeVar("Message")


def _made(
    kind: Callable[..., Message], fields: dict[str, Any], changed: dict[str, object]
) -> Message:
    if "explicit_views" in changed:
        fields.pop("perturbations")
    given = {name: value for name, value in {**fields, **changed}.items() if value is not None}
    return kind(**given)


def certify(**changed: object) -> pb.CertifyPoolRequest:
    """A good CertifyPoolRequest; None leaves a field out."""
    own = {"candidates": wire.tensor(pool()), "elite_count": ELITES}
    return _made(pb.CertifyPoolRequest, {**moment(), **own}, changed)


def start(**changed: object) -> pb.PlanRequest:
    """A good first message of a Plan stream."""
    fields = {**moment(), "elite_count": ELITES}
    return pb.PlanRequest(start=_made(pb.PlanStart, fields, changed))


def explicit(candidates: NDArray[np.float32], iteration: int = 0) -> pb.PlanRequest:
    """A pool made by the caller."""
    return pb.PlanRequest(pool=pb.PlanPool(iteration=iteration, candidates=wire.tensor(candidates)))


def proposed(iteration: int = 0, **changed: object) -> pb.PlanRequest:
    """A pool the server is to sample."""
    shape = (HORIZON, wire.WIDTH)
    fields = {
        "mean": wire.tensor(np.full(shape, 0.5, np.float32)),
        "std": wire.tensor(np.full(shape, 2.0, np.float32)),
        "candidates": CANDIDATES,
        "seed": 6,
    }
    proposal = _made(pb.GaussianProposal, fields, changed)
    return pb.PlanRequest(pool=pb.PlanPool(iteration=iteration, proposal=proposal))


def paired(**changed: object) -> pb.PlanPairedRequest:
    """A good PlanPairedRequest with a small budget."""
    budget = pb.CemBudget(candidates=12, elites=3, iterations=3, horizon=HORIZON)
    return _made(pb.PlanPairedRequest, {**moment(), "budget": budget, "sampling_seed": 1}, changed)


def array(tensor: tensor_pb2.Tensor) -> NDArray[np.number]:
    """The array of a Tensor message."""
    names = {code: name for name, code in wire.CODES.items()}
    return np.frombuffer(tensor.data, names[tensor.dtype]).reshape(tuple(tensor.shape))
