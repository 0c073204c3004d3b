"""A policy through a real server: what it decides is what the certificates of its pools say."""

# ruff: noqa: ANN401 - options pass through

from collections.abc import Generator
from typing import Any

import numpy as np
import pytest
import wire
from acpc.arrays import NDArray
from acpc.contract import GaussianNoise, Identity, Perturbation
from acpc_client import AcpcClient, CoverageGoal, Decision, PlanSession, Policy, PoolCertificate
from acpc_client.errors import NotFound
from waiting import GENEROUS_SECONDS

CANDIDATES, HORIZON, DRAWS, ELITES = 16, 3, 3, 4
Frames = NDArray[np.uint8]
Blocks = NDArray[np.float32]


def pools() -> Generator[Blocks, PoolCertificate, None]:
    """Two pools; the second is the first, without what came last."""
    pool = wire.blocks(CANDIDATES * HORIZON, seed=11).reshape(CANDIDATES, HORIZON, -1)
    answer = yield pool
    yield pool[np.argsort(answer.clean_costs, kind="stable")[:-2]]


class Scene:
    """One frame of one checkpoint under one visual change."""

    def __init__(
        self, client: AcpcClient, change: Perturbation, checkpoint: str = "lewm", **options: Any
    ) -> None:
        self._client = client
        self._checkpoint = checkpoint
        self._view = {"perturbations": change, "draws": DRAWS, "elite_count": ELITES, **options}

    def decide(self, *remedies: Decision, **rule: Any) -> Any:
        policy = Policy(remedies, budget_ms=1000 * GENEROUS_SECONDS, **rule)
        return policy.step(lambda: wire.frames(1), self.look, pools)

    def look(self, frame: Frames, **options: Any) -> PlanSession:
        goal = wire.frames(1, seed=5)[0]
        return self._client.plan(self._checkpoint, frame, goal, **{**self._view, **options})


@pytest.mark.parametrize("select", ["top1", "elite"])
def test_nothing_moves_without_a_change(client: AcpcClient, select: Any) -> None:
    step = Scene(client, Identity()).decide(select=select)
    assert step.decision is Decision.ACCEPT
    assert np.array_equal(step.plan, step.pool[0])
    (attempt,) = step.attempts
    assert attempt.margin == pytest.approx(1.0, abs=1e-3)
    assert attempt.unchanged == 1.0


def test_a_denied_choice_brakes_and_shows_its_margin(client: AcpcClient) -> None:
    step = Scene(client, GaussianNoise(0.5)).decide(Decision.EARLIER)
    assert (step.decision, step.plan) == (Decision.BRAKE, None)
    views = step.certificate.views
    margin = min(view.top1.margin for view in views) / step.certificate.clean_gaps.top1
    assert step.attempts[0].margin == margin < 0
    winners = [view.perturbed_winner for view in views]
    assert step.attempts[0].unchanged == winners.count(0) / DRAWS


def test_among_equals_there_is_nothing_left_to_change(client: AcpcClient) -> None:
    """All candidates act alike within infinity, so that a pool of one is left."""
    step = Scene(client, GaussianNoise(0.5)).decide(Decision.SHRINK, same_action=np.inf)
    assert step.decision is Decision.SHRINK
    assert step.pool.shape[0] == 1
    assert [attempt.certified for attempt in step.attempts] == [False, True]
    assert step.attempts[1].margin is None


@pytest.mark.parametrize("change", [Identity(), GaussianNoise(0.5)])
def test_a_closer_look_goes_by_what_all_draws_leave_unchanged(
    client: AcpcClient, change: Perturbation
) -> None:
    """The tolerance denies every certificate; the choice of each draw is made anew all the same."""
    goal = CoverageGoal(0.95, 0.9, max_draws=60)
    scene = Scene(client, change, endpoint_tolerance=100.0)
    step = scene.decide(Decision.REFINE, closer={"coverage_goal": goal})
    first, closer = step.attempts
    assert not first.certified
    (statement,) = step.certificate.coverage
    assert closer.certified == statement.top1.holds == (change == Identity())
    assert step.decision is (Decision.REFINE if closer.certified else Decision.BRAKE)


def test_a_checkpoint_that_is_not_there_brakes_and_says_so(client: AcpcClient) -> None:
    step = Scene(client, Identity(), "nowhere").decide()
    assert step.decision is Decision.BRAKE
    assert isinstance(step.error, NotFound)
