"""Pools that wait together share no device call: each has the bits it has alone."""

from functools import partial

import numpy as np
import pytest
from acpc.arrays import NDArray
from acpc.contract import (
    GaussianBlur,
    GaussianNoise,
    Identity,
    PlanStart,
    PoolCertificate,
    RandomShift,
)
from acpc_server.errors import AcpcError
from acpc_server.interactive import Moment, Planner
from planning_world import PlanningWorld, certify_pool, context, drawn, moment, pool
from shared_call import together

Question = tuple[PlanStart, NDArray[np.float32]]


def prepared(world: PlanningWorld, request: PlanStart) -> Moment:
    """A session that has nothing encoded yet, as CertifyPool has it."""
    planner = Planner(world.engine, max_frames=1000, max_predictions=100_000)
    return planner.prepare(world.checkpoint(), request)


def alone(world: PlanningWorld, question: Question) -> PoolCertificate:
    request, candidates = question
    return certify_pool(prepared(world, request), candidates, context())


# The last two do not fit the frames.
KINDS = (
    GaussianNoise(sigma=0.1), GaussianNoise(sigma=0.0), GaussianBlur(kernel_size=5), Identity(),
    RandomShift(pixels=29), GaussianBlur(kernel_size=59),
)  # fmt: skip


def mixed(rng: np.random.Generator) -> Question:
    """A pool of some shape under views of any kinds, of frames and draws that others may have."""
    kinds = rng.choice(len(KINDS), size=rng.integers(1, 4), p=(0.3, 0.2, 0.2, 0.2, 0.05, 0.05))
    views = drawn(*(KINDS[place] for place in kinds), draws=2, seed=int(rng.integers(2)))
    seed = int(rng.integers(3))
    request = moment(seed, views=views, elite_count=int(rng.integers(3, 5)))
    candidates = pool(seed, horizon=3 if rng.random() < 0.8 else 2)
    if rng.random() < 0.1:
        candidates[0] = 1e30
    return request, candidates


@pytest.mark.parametrize(
    "seed",
    [
        pytest.param(0, marks=pytest.mark.process),
        1,
        *(pytest.param(n, marks=pytest.mark.nightly) for n in range(2, 12)),
    ],
)
def test_whatever_pools_wait_together_are_answered_as_they_are_alone(
    world: PlanningWorld, seed: int
) -> None:
    """Broken ones too, and each error names the perturbation by its own request's index."""
    rng = np.random.default_rng(seed)
    questions = [mixed(rng) for _ in range(14)]
    asks = [partial(certify_pool, prepared(world, request), own) for request, own in questions]
    found = together(world.engine, asks)
    for question, answer in zip(questions, found, strict=True):
        error = answer.exception(0)
        if error is None:
            assert answer.result(0) == alone(world, question)
            continue
        with pytest.raises(AcpcError) as apart:
            alone(world, question)
        assert repr(apart.value) == repr(error)
