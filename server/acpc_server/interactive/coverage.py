"""Draws until a bound on the share of all draws that leave a planner's choice unchanged is known.

The choice is computed again under every draw, so that no bound is needed; the certificate of each
draw is counted beside it. Draws come in batches. Each is admitted, queued and cancelled as a
request of its own, so that others have their turn in between, and its time is learned apart from
that of plain certificates.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace

import torch
from acpc.contract import (
    CertifiedSeverity,
    CoverageFinding,
    CoverageGoal,
    CoverageOutcome,
    CoverageStatement,
    CoverageStop,
    PoolCertificate,
    PoolRequest,
    StepCoverage,
    VisualChange,
    grids,
)
from torch import Tensor

from acpc_server.encoding import View
from acpc_server.errors import DeadlineExceeded, ResourceExhausted
from acpc_server.evidence import CoverageSequence, CoverageTest, error_share
from acpc_server.interactive.certificates import largest_severity
from acpc_server.interactive.certify import MeasuredPool
from acpc_server.interactive.moment import EncodedMoment
from acpc_server.interactive.pieces import (
    bounds_of,
    group_size,
    pieces_of,
    pool_calls,
    room_for,
    share_clean,
    shared_rows,
    within,
)
from acpc_server.interactive.words import CHOICES, about_step, assumptions, sentence
from acpc_server.numerics import cost_bounds
from acpc_server.perturb import is_stochastic
from acpc_server.scheduling import RequestContext

Admit = Callable[[float], AbstractContextManager[RequestContext]]
"""Admits a request that may take so many seconds."""

# Draws of the first batch and of the largest. Few draws tell an unstable choice; each later batch
# is twice as large.
FIRST_BATCH, LARGEST_BATCH = 8, 64
# Share of the time left that is kept for the answer, and its least and most seconds.
ANSWER_SHARE, ANSWER_LEAST, ANSWER_LONGEST = 0.1, 0.1, 2.0
# A batch is begun when so many times what its draws took so far is left.
HEADROOM = 1.5


@dataclass
class _Choice:
    """Counts how draws change the winner, or the elite set, until that is decided."""

    what: str  # which of the two, as ``CHOICES`` names it
    clean: list[int]  # candidates chosen from the clean history, ascending
    sequence: CoverageSequence
    certified: int = 0  # draws under which the choice provably stays
    near_ties: int = 0  # unchanged ones that the tolerance leaves open

    def add(self, costs: Tensor, certified: Sequence[bool], moved: Tensor) -> None:
        """Count further draws: their costs (draws, J), which are certified, and near ties."""
        size = len(self.clean)
        chosen = cost_bounds.elite_indices(costs, size).sort(dim=-1).values
        same = (chosen == chosen.new_tensor(self.clean)).all(dim=-1)  # (draws,)
        self.certified += sum(certified)
        self.near_ties += int((same & cost_bounds.open_choice(costs, moved, size)).sum())
        self.sequence.add(len(same), int((~same).sum()))


def cover_pool(pool: MeasuredPool, context: RequestContext, admit: Admit) -> PoolCertificate:
    """Add statements about all draws of each perturbation to a pool's answer, if asked for.

    ``context`` is that of the request that measured the pool; the time of the draws is added to its
    times. Where time or room ends, the statements say so. Raises FailedPrecondition: A prediction
    is not finite; Cancelled, Unavailable: From the engine.
    """
    moment, goal, answer = pool.moment, pool.moment.coverage_goal, pool.answer
    if goal is None:
        return answer
    left = context.remaining()
    assert left is not None  # noqa: S101 - every interactive request has a deadline
    left -= min(max(ANSWER_SHARE * left, ANSWER_LEAST), ANSWER_LONGEST)
    drawing = _DrawLoop(pool, goal, context, admit, min(left, goal.time_limit or math.inf))
    specs = moment.drawn_views.specs
    levels = [level or 0.0 for _, level in grids(specs)]
    mild_first = sorted(range(len(specs)), key=levels.__getitem__)
    statements = {index: drawing.statement(index) for index in mild_first}
    coverage = tuple(_with_step(moment, goal, statements[index]) for index in range(len(specs)))
    moment.tally.count_statements(coverage)
    severities = tuple(
        _with_confidence(specs, one, coverage) for one in answer.certified_severities
    )
    return replace(answer, coverage=coverage, certified_severities=severities)


class _DrawLoop:
    """Draws for one pool, perturbation by perturbation, for so many seconds."""

    def __init__(
        self,
        pool: MeasuredPool,
        goal: CoverageGoal,
        context: RequestContext,
        admit: Admit,
        seconds: float,
    ) -> None:
        self._goal = goal
        self._pool = pool
        self._moment = moment = pool.moment
        self._context = context
        self._admit = admit
        self._ends = time.monotonic() + seconds
        self._halted: CoverageStop | None = None
        self._draw_seconds = 0.0  # that a draw took in the slowest batch so far
        pools, number = goal.pools, moment.tally.pools
        if isinstance(moment.request, PoolRequest):
            pools = max(1, pools)
        self._error = error_share(goal.error, number, pools)
        # A pool may depend on earlier answers, so it has draws that those have not seen.
        self._first = (number - 1) * max(goal.max_draws, moment.drawn_views.draws)

    def statement(self, index: int) -> CoverageStatement:
        """Make the statement about one perturbation."""
        spec = self._moment.drawn_views.specs[index]
        exact = spec.changes_nothing or not is_stochastic(spec)
        top1, *others = self._exact(index) if exact else self._drawn(index)
        return CoverageStatement(
            spec_index=index,
            top1=top1,
            elite=others[0] if others else None,
            first_draw=self._first,
            confidence=1.0 - self._error,
            coverage=self._goal.coverage,
            assumptions=assumptions(spec, self._moment.mode),
        )

    def _choices(self) -> list[_Choice]:
        """Begin to count the winner and, where asked for, the elite set."""
        answer, goal = self._pool.answer, self._goal
        test = CoverageTest(goal.coverage, self._error or goal.error, goal.max_draws, goal.one_look)
        clean = [[answer.clean_winner], sorted(answer.clean_elites)]
        return [
            _Choice(what, chosen, CoverageSequence(test))
            for what, chosen in zip(CHOICES, clean, strict=True)
            if chosen
        ]

    def _exact(self, index: int) -> list[CoverageFinding]:
        """Decide a perturbation without chance, whose one view was measured with the pool."""
        view = next(view for view in self._pool.answer.views if view.spec_index == index)
        choices = self._choices()
        for choice, certificate in zip(choices, (view.top1, view.elite), strict=False):
            assert certificate is not None  # noqa: S101 - there with the elite set
            costs, bounds = (torch.from_numpy(x[None]) for x in (view.perturbed_costs, view.bounds))
            self._add(choice, costs, [certificate.certified], bounds)
        return [self._finding(index, choice, CoverageStop.EXACT) for choice in choices]

    def _drawn(self, index: int) -> list[CoverageFinding]:
        """Decide one with chance, from as many draws as it takes."""
        choices = self._choices()
        done, size = 0, FIRST_BATCH
        while undecided := [choice for choice in choices if self._stop(choice) is None]:
            wanted = max(choice.sequence.wanted() for choice in undecided)
            count = self._batch(min(size, wanted))
            first = self._first + done
            self._look([View(index, draw) for draw in range(first, first + count)], undecided)
            done, size = done + count, min(2 * size, LARGEST_BATCH)
        stops = [self._stop(choice) or CoverageStop.UNSPECIFIED for choice in choices]
        return [self._finding(index, *pair) for pair in zip(choices, stops, strict=True)]

    def _stop(self, choice: _Choice) -> CoverageStop | None:
        """Return why a choice needs no more draws; None: it does."""
        seen = choice.sequence
        if not self._error:
            return CoverageStop.SPENT
        if seen.outcome is not CoverageOutcome.UNDECIDED:
            return CoverageStop.DECIDED
        if seen.draws == self._goal.max_draws:
            return CoverageStop.MAX_DRAWS
        return self._halted if seen.wanted() else CoverageStop.OUT_OF_REACH

    def _batch(self, wanted: int) -> int:
        """Return how many draws to make at once; 0 where there is no time for one."""
        candidates, horizon = self._pool.candidates.shape[:2]
        count: int = min(wanted, group_size(self._moment, candidates, horizon))
        if self._draw_seconds:
            left = self._ends - time.monotonic()
            count = min(count, int(max(0.0, left) / (HEADROOM * self._draw_seconds)))
        return count

    def _look(self, which: Sequence[View], choices: Sequence[_Choice]) -> None:
        """Draw views and count what they change, or note why there was no time or room."""
        seconds = self._ends - time.monotonic()
        if not which or seconds <= 0:
            self._halted = CoverageStop.DEADLINE
            return
        begun = time.monotonic()
        try:
            with self._admit(seconds) as batch:
                bounds = self._measure(which, batch)
        except DeadlineExceeded:
            self._halted = CoverageStop.DEADLINE
            return
        except ResourceExhausted as error:
            late = error.reason == "DEADLINE_CANNOT_BE_MET"
            self._halted = CoverageStop.DEADLINE if late else CoverageStop.BUSY
            return
        self._draw_seconds = max(self._draw_seconds, (time.monotonic() - begun) / len(which))
        self._context.queue_seconds += batch.queue_seconds
        self._context.compute_seconds += batch.compute_seconds
        certificates = {"top1": cost_bounds.top1_certificate(bounds)}
        if k := self._moment.elite_count:
            certificates["elite"] = cost_bounds.elite_certificate(bounds, k)
        for choice in choices:
            certified = certificates[choice.what].certified.flatten().tolist()
            self._add(choice, bounds.perturbed_costs, certified, bounds.bounds)

    def _measure(self, which: Sequence[View], context: RequestContext) -> cost_bounds.PoolBounds:
        """Compute costs and bounds of the pool under draws."""
        moment, candidates, known, _, cost = self._pool
        assert known is not None  # noqa: S101 - there is a coverage goal
        pool = torch.from_numpy(candidates)
        pieces = pieces_of(moment, len(which), *pool.shape[:2])
        found = []
        rows, horizon = len(which) * len(pool), pool.shape[1]
        context.price(pool_calls(moment, rows, horizon))
        room = room_for(moment, rows, horizon, context)
        with room, moment.slot(context):
            histories = moment.draw(which, context)
            for part in pieces:
                clean = known[part]  # (J, steps, dim)
                rollouts = moment.rollout(histories, pool[None, part], context)
                rollouts = rollouts[..., -clean.shape[1] :, :]
                rollouts = share_clean(histories, moment.clean, rollouts, clean)
                rolled = clean[None], rollouts[None], moment.goal[None]
                found.append(bounds_of(moment, cost and cost.of(part), rolled))
        return cost_bounds.join_bounds(found, shared_rows(pieces, pool))

    def _add(
        self, choice: _Choice, costs: Tensor, certified: Sequence[bool], bounds: Tensor
    ) -> None:
        costs, bounds = (part.flatten(0, -2) for part in (costs, bounds))  # (draws, J)
        moved = within(self._moment, self._pool.cost, costs, bounds)
        choice.add(costs, certified, moved)

    def _finding(self, index: int, choice: _Choice, stop: CoverageStop) -> CoverageFinding:
        seen = choice.sequence
        if stop is CoverageStop.EXACT:
            seen.lower = seen.upper = 0.0 if seen.changed else 1.0
        spec = self._moment.drawn_views.specs[index]
        return CoverageFinding(
            outcome=seen.outcome,
            draws=seen.draws,
            changed=seen.changed,
            certified=choice.certified,
            near_ties=choice.near_ties,
            lower=seen.lower,
            upper=seen.upper,
            stop=stop,
            looks=seen.looks,
            sentence=sentence(choice.what, spec, self._goal, 1.0 - self._error, seen, stop),
        )


def _with_step(
    moment: EncodedMoment, goal: CoverageGoal, statement: CoverageStatement
) -> CoverageStatement:
    """Add to a statement of a session's pool what all pools so far show together."""
    if isinstance(moment.request, PoolRequest):
        return statement
    index, step = statement.spec_index, moment.tally.step
    for what in CHOICES:
        finding: CoverageFinding | None = getattr(statement, what)
        if finding is not None:
            before = step.get((index, what), CoverageOutcome.HOLDS)
            both = {before, finding.outcome}
            worse = (CoverageOutcome.FAILS, CoverageOutcome.UNDECIDED)
            step[index, what] = next((x for x in worse if x in both), CoverageOutcome.HOLDS)
    outcomes = {what: step[index, what] for what in CHOICES if (index, what) in step}
    together = StepCoverage(
        pool=moment.tally.pools,
        confidence=goal.confidence,
        top1=outcomes["top1"],
        elite=outcomes.get("elite", CoverageOutcome.UNSPECIFIED),
        sentence=about_step(moment.tally.pools, moment.drawn_views.specs[index], goal, outcomes),
    )
    return replace(statement, step=together)


def _with_confidence(
    specs: Sequence[VisualChange],
    severity: CertifiedSeverity,
    coverage: Sequence[CoverageStatement],
) -> CertifiedSeverity:
    """Add the largest severities of one kind up to which the statements hold.

    From mild to strong each is tested at the full error and the first that does not hold ends the
    sequence, so that the error is not split (fixed-sequence testing).
    """
    points = grids(specs)
    own = [
        (level, one)
        for one in coverage
        for name, level in [points[one.spec_index]]
        if name == severity.kind and level is not None
    ]
    return replace(
        severity,
        confident_top1=largest_severity([(level, one.top1.holds) for level, one in own]),
        confident_elite=largest_severity(
            [(level, one.elite is not None and one.elite.holds) for level, one in own]
        ),
    )
