"""Statements about all draws: what is counted, when drawing stops, and what a session spends."""

import math
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import fields

import numpy as np
import pytest
from acpc.contract import (
    CheckpointRef,
    CoverageGoal,
    CoverageOutcome,
    CoverageStatement,
    CoverageStop,
    GaussianBlur,
    GaussianNoise,
    Identity,
    Perturbation,
    PlanStart,
    PoolCertificate,
    PoolRequest,
)
from acpc_server.errors import (
    AcpcError,
    Cancelled,
    DeadlineExceeded,
    InvalidArgument,
    ResourceExhausted,
)
from acpc_server.interactive import EncodedMoment, certify_pool, cover_pool
from acpc_server.scheduling import Priority, RequestContext
from planning_world import PlanningWorld, context, drawn, moment, pool

HOLDS, FAILS, UNDECIDED = (CoverageOutcome.HOLDS, CoverageOutcome.FAILS, CoverageOutcome.UNDECIDED)
STABLE, UNSTABLE = GaussianNoise(1e-5), GaussianNoise(0.5)
GOAL = CoverageGoal(coverage=0.9, max_draws=200)
PREDICTIONS = 10**7


class Admissions:
    """Admits batches, and notes how long each may take; ``error`` is raised after some of them."""

    def __init__(self, error: AcpcError | None = None, after: int = 0) -> None:
        self.seconds: list[float] = []
        self._error, self._after = error, after

    @contextmanager
    def admit(self, seconds: float) -> Iterator[RequestContext]:
        self.seconds.append(seconds)
        if self._error is not None and len(self.seconds) > self._after:
            raise self._error
        yield RequestContext(Priority.INTERACTIVE, 60.0)


def question(*specs: Perturbation, goal: CoverageGoal | None = GOAL, draws: int = 1) -> PlanStart:
    return moment(views=drawn(*specs, draws=draws), coverage_goal=goal)


def single(*specs: Perturbation, goal: CoverageGoal = GOAL) -> PoolRequest:
    asked = question(*specs, goal=goal)
    given = {field.name: getattr(asked, field.name) for field in fields(PlanStart)}
    return PoolRequest(**given, candidates=pool())


def covered(
    session: EncodedMoment,
    candidates: np.ndarray | None = None,
    admit: Callable[[float], AbstractContextManager[RequestContext]] | None = None,
    asked: RequestContext | None = None,
) -> PoolCertificate:
    asked = asked or context()
    measured = certify_pool(session, pool() if candidates is None else candidates, asked)
    return cover_pool(measured, asked, admit or Admissions().admit)


def opened(world: PlanningWorld, request: PlanStart) -> EncodedMoment:
    return world.open(request, max_predictions=PREDICTIONS)


def test_stable_choices_hold_and_unstable_ones_fail(world: PlanningWorld) -> None:
    answer = covered(opened(world, single(UNSTABLE, STABLE)))
    assert [s.spec_index for s in answer.coverage] == [0, 1]
    unstable, stable = answer.coverage
    assert (stable.top1.outcome, stable.elite.outcome) == (HOLDS, HOLDS)
    assert stable.top1.changed == 0
    assert stable.top1.certified == stable.top1.draws == 34
    assert stable.top1.lower >= 0.9
    assert (unstable.top1.outcome, unstable.elite.outcome) == (FAILS, FAILS)
    assert unstable.top1.upper < 0.9
    assert {s.top1.stop for s in answer.coverage} == {CoverageStop.DECIDED}
    assert all(s.confidence == pytest.approx(0.95) and s.step is None for s in answer.coverage)
    assert "With 95 % confidence, at least 90 % of all draws of" in stable.top1.sentence
    assert "fewer than 90 %" in unstable.elite.sentence
    assert "the draws are independent" in stable.assumptions
    assert len(answer.views) == 2  # what `draws` asks for; the others are counted


def test_draws_are_counted_as_their_own_views_are(world: PlanningWorld) -> None:
    """So many draws of one look are the first views of a request with so many draws."""
    spec, goal = GaussianNoise(0.1), CoverageGoal(coverage=0.9, max_draws=60, one_look=True)
    (statement,) = covered(opened(world, single(spec, goal=goal))).coverage
    views = certify_pool(opened(world, question(spec, goal=None, draws=60)), pool(), context())
    answer = views.answer
    changed = sum(view.perturbed_winner != answer.clean_winner for view in answer.views)
    sets = [
        set(np.argsort(view.perturbed_costs, kind="stable")[:4].tolist()) for view in answer.views
    ]
    moved = sum(chosen != set(answer.clean_elites) for chosen in sets)
    assert (statement.top1.draws, statement.top1.looks) == (60, 1)
    # One draw may stand within rounding of another choice: batches are rounded otherwise.
    assert statement.top1.changed == pytest.approx(changed, abs=1)
    assert statement.elite.changed == pytest.approx(moved, abs=1)
    assert moved > 0
    certified = sum(view.top1.certified for view in answer.views)
    assert statement.top1.certified == pytest.approx(certified, abs=1)


def test_a_longer_run_begins_with_the_shorter_one(world: PlanningWorld) -> None:
    asked = [CoverageGoal(coverage=0.9, max_draws=most) for most in (60, 200)]
    short, long = (covered(opened(world, single(STABLE, goal=goal))).coverage for goal in asked)
    assert short[0].top1 == long[0].top1
    assert short[0].first_draw == long[0].first_draw == 0


@pytest.mark.parametrize("spec", [GaussianBlur(3), Identity(), GaussianNoise(0.0)])
def test_what_is_not_random_is_exact_and_drawn_once(
    world: PlanningWorld, spec: Perturbation
) -> None:
    admissions = Admissions()
    (statement,) = covered(opened(world, single(spec)), admit=admissions.admit).coverage
    finding = statement.top1
    assert (finding.stop, finding.draws, admissions.seconds) == (CoverageStop.EXACT, 1, [])
    assert finding.lower == finding.upper == float(not finding.changed)
    assert finding.holds is not bool(finding.changed)
    assert "is not random" in finding.sentence


def test_every_pool_of_a_session_has_draws_and_error_of_its_own(world: PlanningWorld) -> None:
    session = opened(world, question(STABLE))
    answers = [covered(session, pool(seed)) for seed in range(3)]
    statements = [answer.coverage[0] for answer in answers]
    assert [s.first_draw for s in statements] == [0, 200, 400]
    errors = [1 - s.confidence for s in statements]
    assert errors == pytest.approx([0.05 * 6 / (math.pi * k) ** 2 for k in (1, 2, 3)])
    assert sum(errors) < 0.05
    assert [s.top1.draws for s in statements] == sorted(s.top1.draws for s in statements)
    for number, statement in enumerate(statements, 1):
        assert (statement.step.pool, statement.step.confidence) == (number, 0.95)
        assert (statement.step.top1, statement.step.elite) == (HOLDS, HOLDS)
    assert "every pool of the session so far (3)" in statements[-1].step.sentence


def test_a_step_holds_no_longer_once_a_pool_does_not(world: PlanningWorld) -> None:
    session = opened(world, question(STABLE))
    assert covered(session).coverage[0].step.top1 is HOLDS
    late = DeadlineExceeded("no time")
    assert covered(session, admit=Admissions(late).admit).coverage[0].step.top1 is UNDECIDED
    (after,) = covered(session).coverage
    assert (after.top1.outcome, after.step.top1) == (HOLDS, UNDECIDED)
    assert "Not shown of the winner and the elite set" in after.step.sentence
    shaky = opened(world, question(UNSTABLE, goal=GOAL))
    assert [covered(shaky).coverage[0].step.elite for _ in range(2)] == [FAILS, FAILS]


def test_pools_beyond_those_that_share_the_error_are_not_drawn_for(world: PlanningWorld) -> None:
    goal = CoverageGoal(coverage=0.9, max_draws=200, pools=2)
    session = opened(world, question(STABLE, goal=goal))
    first, second, third = (covered(session).coverage[0] for _ in range(3))
    assert (first.confidence, second.confidence) == pytest.approx((0.975, 0.975))
    assert (third.top1.stop, third.top1.draws) == (CoverageStop.SPENT, 0)
    assert (third.top1.outcome, third.step.top1) == (UNDECIDED, UNDECIDED)


BUSY = ResourceExhausted("busy", reason="SERVER_BUSY")
LATE = ResourceExhausted("late", reason="DEADLINE_CANNOT_BE_MET")


@pytest.mark.parametrize(
    ("error", "stop"),
    [
        (DeadlineExceeded("over"), CoverageStop.DEADLINE),
        (LATE, CoverageStop.DEADLINE),
        (BUSY, CoverageStop.BUSY),
    ],
)
def test_without_time_or_room_it_is_undecided(
    world: PlanningWorld, error: AcpcError, stop: CoverageStop
) -> None:
    """The milder perturbation goes first, and keeps what was drawn until then."""
    admissions = Admissions(error, after=2)
    answer = covered(opened(world, single(GaussianNoise(2e-5), STABLE)), admit=admissions.admit)
    other, mild = (statement.top1 for statement in answer.coverage)
    assert (mild.outcome, mild.stop, mild.draws) == (UNDECIDED, stop, 8 + 16)
    assert (other.outcome, other.stop, other.draws) == (UNDECIDED, stop, 0)
    assert 0 < mild.lower < 0.9 < mild.upper
    assert len(admissions.seconds) == 3  # nothing is tried again


def test_a_cancelled_request_is_not_answered(world: PlanningWorld) -> None:
    with pytest.raises(Cancelled):
        covered(opened(world, single(STABLE)), admit=Admissions(Cancelled("gone"), after=1).admit)


@pytest.mark.parametrize(("limit", "most"), [(None, 54.0), (7.0, 7.0)])
def test_time_is_left_for_the_answer(
    world: PlanningWorld, limit: float | None, most: float
) -> None:
    goal = CoverageGoal(coverage=0.9, max_draws=200, time_limit=limit)
    admissions = Admissions()
    covered(opened(world, single(STABLE, goal=goal)), admit=admissions.admit, asked=context())
    assert admissions.seconds == sorted(admissions.seconds, reverse=True)
    assert admissions.seconds[0] <= max(most, 58.0 if limit is None else 0)


def test_a_call_whose_time_is_over_draws_nothing(world: PlanningWorld) -> None:
    session, asked = opened(world, single(STABLE)), context()
    measured = certify_pool(session, pool(), asked)
    asked.deadline = 0.0
    admissions = Admissions()
    (statement,) = cover_pool(measured, asked, admissions.admit).coverage
    assert (statement.top1.stop, statement.top1.draws) == (CoverageStop.DEADLINE, 0)
    assert not admissions.seconds


def test_it_stops_when_the_statement_is_out_of_reach(world: PlanningWorld) -> None:
    """36 draws are so few that one change is too many."""
    goal = CoverageGoal(coverage=0.9, max_draws=36)
    found: list[CoverageStatement] = []
    for sigma in (0.02, 0.05):
        found += covered(opened(world, single(GaussianNoise(sigma), goal=goal))).coverage
    stopped = [
        finding
        for statement in found
        for finding in (statement.top1, statement.elite)
        if finding.stop is CoverageStop.OUT_OF_REACH
    ]
    assert stopped
    for finding in stopped:
        assert finding.outcome is UNDECIDED
        assert finding.changed > 0
        assert finding.draws <= 36


def test_certified_severity_with_confidence(world: PlanningWorld) -> None:
    """The largest before the first that does not hold, whatever comes behind it."""
    specs = UNSTABLE, STABLE, GaussianNoise(1e-3), GaussianBlur(31), GaussianNoise(0.6)
    noise, blur = covered(opened(world, single(*specs))).certified_severities
    found = noise.kind, noise.confident_top1, noise.confident_elite
    assert found == ("gaussian_noise", 1e-3, 1e-3)
    assert blur.confident_top1 in (None, 31.0)


def test_near_ties_are_counted_by_the_tolerance(world: PlanningWorld) -> None:
    request = single(STABLE)
    object.__setattr__(request, "endpoint_tolerance", 1e3)
    (statement,) = covered(opened(world, request)).coverage
    top1 = statement.top1
    assert (top1.outcome, top1.near_ties, top1.certified) == (HOLDS, top1.draws, 0)


def test_receipts_tell_goal_and_seed(world: PlanningWorld) -> None:
    asked, plain = single(STABLE), question(STABLE, goal=None)
    receipt = covered(opened(world, asked)).receipt
    assert receipt.parameters["coverage_goal"]["max_draws"] == 200
    assert receipt.parameters["coverage_goal"]["seed"] == asked.views.seed
    without = covered(opened(world, plain))
    assert without.coverage == ()
    assert "coverage_goal" not in without.receipt.parameters
    assert without.receipt.parameters_digest != receipt.parameters_digest


def test_too_many_draws_for_one_request_are_refused(world: PlanningWorld) -> None:
    session = world.open(single(STABLE), max_predictions=5000)
    with pytest.raises(InvalidArgument) as caught:
        certify_pool(session, pool(), context())
    assert caught.value.field == "coverage_goal.max_draws"
    assert session.request.checkpoint == CheckpointRef("m0")


def test_the_time_of_draws_counts_as_the_requests(world: PlanningWorld) -> None:
    asked = context()
    session = opened(world, single(STABLE))
    measured = certify_pool(session, pool(), asked)
    before = asked.compute_seconds
    cover_pool(measured, asked, Admissions().admit)
    assert asked.compute_seconds > before
