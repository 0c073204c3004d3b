"""A policy's decisions: what it asks the server, what it does with the answers, and without any."""

# ruff: noqa: ANN401 - a side is either client

from collections.abc import Generator
from dataclasses import dataclass
from typing import Any

import grpc
import numpy as np
import pytest
from acpc.contract import GaussianNoise
from acpc_client import AcpcClient, ControlStep, CoverageGoal
from acpc_client.errors import ArgumentError, DeadlineExceeded, Unavailable
from acpc_client.planning import AsyncPolicy, Decision, Policy
from client_counterparty import Counterparty
from client_messages import status
from waiting import GENEROUS_SECONDS

ACCEPT, SHRINK, REFINE, EARLIER, REPLAN, BRAKE = Decision
AWAY = status(grpc.StatusCode.UNAVAILABLE, "connection lost")
GENEROUS_MS = 1000 * GENEROUS_SECONDS


def pool(count: int) -> np.ndarray:
    """Candidates (count, 3, 2); the first wins, and candidate j's actions are j's."""
    return np.broadcast_to(np.arange(count, dtype=np.float32)[:, None, None], (count, 3, 2)).copy()


class Moment:
    """A control step: what was observed, and one plan after another by the sizes of its pools."""

    def __init__(self, history: np.ndarray, *plans: tuple[int, ...], **options: Any) -> None:
        self.observed = 0
        self.answered: list[int] = []
        self._history = history
        self._plans = iter(plans)
        self._options = options

    def __call__(self, client: Any) -> tuple[Any, Any, Any]:
        return self.observe, lambda frame, **given: self.look(client, frame, given), self.pools

    def observe(self) -> np.ndarray:
        self.observed += 1
        return self._history + np.uint8(self.observed)

    def look(self, client: Any, frame: np.ndarray, given: dict[str, Any]) -> Any:
        scene = {"goal": np.zeros(6, np.float32), "perturbations": GaussianNoise(0.08), "draws": 2}
        return client.plan("a", frame, **{**scene, **self._options, **given})

    def pools(self) -> Generator[np.ndarray, Any, None]:
        for size in next(self._plans):
            answer = yield pool(size)
            self.answered.append(len(answer.clean_costs))


@dataclass
class Scene:
    """A side, the counterparty that it asks, and what is observed."""

    side: Any
    party: Counterparty
    history: np.ndarray

    def moment(self, *plans: tuple[int, ...], **options: Any) -> Moment:
        return Moment(self.history, *plans, **options)

    def step(self, rule: dict[str, Any], *plans: tuple[int, ...], **options: Any) -> ControlStep:
        """The one step of a policy at one moment."""
        _, (step,) = self.side.decide(rule, self.moment(*plans, **options))
        return step

    @property
    def sizes(self) -> list[int]:
        """Of all pools that arrived."""
        return [m.pool.candidates.shape[0] for m in self.party.requests["PlanPool"]]


@pytest.fixture
def at(side: Any, counterparty: Counterparty, history: np.ndarray) -> Scene:
    return Scene(side, counterparty, history)


def rule(*remedies: Decision, **changed: Any) -> dict[str, Any]:
    return {"remedies": remedies, "budget_ms": GENEROUS_MS, "same_action": 1.0, **changed}


def test_a_certified_choice_is_accepted(at: Scene) -> None:
    policy, (step,) = at.side.decide(rule(SHRINK, REPLAN), at.moment((5, 4)))
    assert step.decision is ACCEPT
    assert np.array_equal(step.plan, pool(4)[0])
    (attempt,) = step.attempts
    assert (attempt.remedy, attempt.certified, attempt.candidates) == (ACCEPT, True, 4)
    assert (attempt.margin, attempt.unchanged) == (0.5, 1.0)
    assert (step.pools, step.error) == (2, None)
    assert 0 < step.seconds < GENEROUS_SECONDS
    assert (policy.decided, policy.failed) == ({ACCEPT: 1}, {})
    assert step.to_dict()["decision"] == "accept"


def test_a_denied_choice_without_remedies_brakes(at: Scene) -> None:
    """One view of two is enough; the planner may act on what it is told, knowing that."""
    at.party.uncertified = {(0, 1)}
    policy, (step,) = at.side.decide(rule(), at.moment((5,)))
    assert (step.decision, step.plan, step.error) == (BRAKE, None, None)
    assert (step.attempts[0].margin, step.attempts[0].unchanged) == (-0.25, 0.5)
    assert step.pool.shape == (5, 3, 2)
    assert step.certificate.clean_winner == 0
    assert policy.decided == {BRAKE: 1}
    assert at.sizes == [5]


def test_shrinking_asks_about_those_that_act_otherwise(at: Scene) -> None:
    """Candidates 0 to 4 act on 0, 2, 4, 6, 8; those within 4 of the winner's are its equals."""
    at.party.largest_certified = 3
    changed = {"same_action": 4.0, "acted": lambda pool: 2 * pool[:, -1]}
    step = at.step(rule(SHRINK, **changed), (5,))
    assert step.decision is SHRINK
    assert at.sizes == [5, 3]
    assert step.pool[:, 0, 0].tolist() == [0, 3, 4]
    assert np.array_equal(step.plan, pool(1)[0])
    assert len(at.party.requests["Plan"]) == 1


def test_a_pool_too_small_for_the_elite_set_is_asked_about_without_one(at: Scene) -> None:
    at.party.largest_certified = 3
    asked = at.moment((5,), elite_count=3)
    _, (step,) = at.side.decide(rule(SHRINK), asked)
    assert (step.decision, asked.observed) == (BRAKE, 1)  # four are left, enough for three
    asked = at.moment((5,), elite_count=3)
    _, (step,) = at.side.decide(rule(SHRINK, same_action=2.0), asked)
    assert (step.decision, asked.observed) == (SHRINK, 1)
    counts = [m.start.elite_count for m in at.party.requests["Plan"]]
    assert counts == [3, 3, 0]


def test_a_pool_without_equals_is_not_asked_about_again(at: Scene) -> None:
    at.party.largest_certified = 0
    step = at.step(rule(SHRINK, same_action=0.5), (5,))
    assert (step.decision, len(step.attempts)) == (BRAKE, 1)
    assert at.sizes == [5]


def test_refining_looks_closer_at_the_same_frame_and_pool(at: Scene) -> None:
    """The bounds deny every view, and the statement about all draws holds."""
    at.party.largest_certified = 0
    closer = {"coverage_goal": CoverageGoal(0.95, 0.9), "draws": 1}
    _, (step,) = at.side.decide(rule(REFINE, closer=closer), asked := at.moment((6, 5)))
    assert (step.decision, asked.observed) == (REFINE, 1)
    assert [attempt.margin for attempt in step.attempts] == [-0.25, -0.25]
    assert step.certificate.coverage[0].top1.holds
    first, closer = (m.start for m in at.party.requests["Plan"])
    assert (first.HasField("coverage_goal"), closer.coverage_goal.coverage) == (False, 0.9)
    assert (first.perturbations.draws, closer.perturbations.draws) == (2, 1)
    assert first.history.data == closer.history.data
    assert at.sizes == [6, 5, 5]


@pytest.mark.parametrize("select", ["top1", "elite"])
def test_with_a_goal_of_coverage_its_statement_decides(select: str, at: Scene) -> None:
    """All drawn views are certified; the statement fails on others."""
    at.party.uncovered = True
    goal = {"coverage_goal": CoverageGoal(), "elite_count": 2}
    step = at.step(rule(select=select), (5,), **goal)
    assert (step.decision, step.attempts[0].margin) == (BRAKE, 0.5)


def test_an_earlier_pool_of_the_plan_needs_no_question(at: Scene) -> None:
    at.party.largest_certified = 4
    step = at.step(rule(EARLIER), (3, 4, 5))
    assert (step.decision, step.pools) == (EARLIER, 3)
    assert step.pool.shape[0] == 4


def test_replanning_begins_again_with_a_new_frame(at: Scene) -> None:
    at.party.largest_certified = 2
    _, (step,) = at.side.decide(rule(REPLAN), asked := at.moment((5,), (4, 3), (2,)))
    assert (step.decision, step.pools, asked.observed) == (REPLAN, 4, 3)
    assert [attempt.remedy for attempt in step.attempts] == [ACCEPT, REPLAN, REPLAN]
    assert asked.answered == [5, 4, 3, 2]
    starts = [m.start.history.data for m in at.party.requests["Plan"]]
    assert len(set(starts)) == 3


def test_remedies_go_in_order_and_end_with_the_attempts(at: Scene) -> None:
    at.party.largest_certified = 0
    asked = at.moment((5,), (5,), (5,))
    given = rule(SHRINK, EARLIER, REPLAN, attempts=4)
    policy, (step,) = at.side.decide(given, asked)
    assert [attempt.remedy for attempt in step.attempts] == [ACCEPT, SHRINK, REPLAN, SHRINK]
    assert step.decision is BRAKE
    assert at.sizes == [5, 4, 5, 4]
    assert step.pool.shape[0] == 4  # the last that was answered
    assert policy.decided == {BRAKE: 1}


def test_an_elite_set_must_hold_in_every_pool(at: Scene) -> None:
    at.party.largest_certified = 5
    given = rule(REPLAN, select="elite")
    step = at.step(given, (6, 5), (5, 4), elite_count=2)
    assert [attempt.margin for attempt in step.attempts] == [-0.25, 0.5]
    assert step.decision is REPLAN
    with pytest.raises(ArgumentError, match="elite_count"):
        at.step(given, (5,))


def test_a_late_server_brakes(at: Scene) -> None:
    at.party.stalled.set()
    policy, (late,) = at.side.decide({"budget_ms": 100.0}, at.moment((5,)))
    assert (late.decision, late.plan, late.pool) == (BRAKE, None, None)
    assert isinstance(late.error, DeadlineExceeded)
    assert late.seconds < GENEROUS_SECONDS
    assert policy.failed == {"DEADLINE_EXCEEDED": 1}


def test_a_step_without_an_answer_leaves_the_next_one_alone(at: Scene) -> None:
    at.party.refusals["PlanPool"].append(AWAY)
    policy, (first, second) = at.side.decide(rule(SHRINK), at.moment((5,)), at.moment((5,)))
    assert (first.decision, second.decision) == (BRAKE, ACCEPT)
    assert isinstance(first.error, Unavailable)
    assert policy.decided == {BRAKE: 1, ACCEPT: 1}
    assert policy.failed == {"UNAVAILABLE": 1}


def test_a_server_that_is_down_brakes(at: Scene, side_of: Any, unused_target: str) -> None:
    policy, (step,) = side_of(unused_target).decide(rule(REPLAN), at.moment((5,)))
    assert (step.decision, step.pools, step.attempts) == (BRAKE, 0, ())
    assert isinstance(step.error, Unavailable)
    assert policy.failed == {"UNAVAILABLE": 1}


def test_what_was_certified_before_the_server_went_can_be_acted_on(at: Scene) -> None:
    class Lost(Moment):
        def pools(self) -> Generator[np.ndarray, Any, None]:
            yield pool(4)
            at.party.refusals["PlanPool"].append(AWAY)
            yield pool(5)

    policy, (step,) = at.side.decide(rule(EARLIER), Lost(at.history))
    assert (step.decision, step.pool.shape[0]) == (EARLIER, 4)
    assert isinstance(step.error, Unavailable)
    assert policy.failed == {"UNAVAILABLE": 1}


def test_a_spent_budget_asks_nothing_more(at: Scene) -> None:
    """The clock moves a second whenever it is read: at the start, and before each question."""
    at.party.largest_certified = 0
    clock = iter(range(100))
    given = rule(SHRINK, budget_ms=3500.0, clock=lambda: float(next(clock)))
    step = at.step(given, (5, 5, 5))
    assert at.sizes == [5, 5]
    assert (step.decision, step.pools) == (BRAKE, 2)
    assert "3500 ms" in str(step.error)


def test_what_the_caller_raises_goes_on_up_and_ends_the_session(at: Scene, target: str) -> None:
    asked = at.moment()  # no plan at all
    with AcpcClient(target) as client, pytest.raises(RuntimeError, match="StopIteration"):
        Policy().step(*asked(client))
    with AcpcClient(target) as client, pytest.raises(ArgumentError, match="pools: found none"):
        Policy().step(*at.moment(())(client))
    assert at.party.goodbyes.acquire(timeout=GENEROUS_SECONDS)


@pytest.mark.parametrize(
    ("changed", "named"),
    [
        ({"budget_ms": 0.0}, "budget_ms"),
        ({"budget_ms": float("nan")}, "budget_ms"),
        ({"attempts": 0}, "attempts"),
        ({"same_action": -1.0}, "same_action"),
        ({"remedies": (BRAKE,)}, "remedies"),
        ({"remedies": (REFINE,)}, "closer"),
        ({"remedies": (SHRINK,), "select": "elite"}, "remedies"),
    ],
)
@pytest.mark.parametrize("kind", [Policy, AsyncPolicy])
def test_a_rule_that_can_never_work_is_rejected(
    kind: type, changed: dict[str, Any], named: str
) -> None:
    with pytest.raises(ArgumentError) as caught:
        kind(**changed)
    assert caught.value.argument == named
