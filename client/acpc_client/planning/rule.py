"""The rule of a policy, and one control step without I/O: what to ask, and what follows."""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Callable, Generator
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Literal

import numpy as np
from acpc.arrays import NDArray
from acpc.contract import Array, PoolCertificate, Record, SelectionCertificate

from acpc_client.calls import CertifyOptions
from acpc_client.errors import AcpcError, ArgumentError, DeadlineExceeded

Candidates = NDArray[np.float32]


class Decision(StrEnum):
    """The outcome of a control step.

    Attributes:
        ACCEPT: The choice was certified at once.
        SHRINK: Certified among the candidates that act differently from the winner: the change may
            alter which of the others wins, and not what is done.
        REFINE: Certified by a closer look at the same pool.
        EARLIER: The choice of an earlier pool of the same plan, which was certified.
        REPLAN: A choice of a later plan of this step, from a new frame.
        BRAKE: Nothing was certified within the budget, or the server did not answer.
    """

    ACCEPT = "accept"
    SHRINK = "shrink"
    REFINE = "refine"
    EARLIER = "earlier"
    REPLAN = "replan"
    BRAKE = "brake"


@dataclass(frozen=True, repr=False, eq=False)
class Attempt(Record):
    """One judgement of a choice.

    Attributes:
        remedy: What led to it: ACCEPT for the first, or the remedy that was tried.
        certified: Whether the choice may be acted on.
        margin: The smallest margin over views, in units of the clean gap: 1 where nothing moves, 0
            or less without a proof. None where there is no finite gap to measure by.
        unchanged: Fraction of the drawn views that choose the same winner, proven or not.
        candidates: Size of the pool.
    """

    remedy: Decision
    certified: bool
    margin: float | None
    unchanged: float
    candidates: int


@dataclass(frozen=True, repr=False, eq=False)
class ControlStep(Record):
    """A policy's decision at one control step, its attempts and its time.

    Attributes:
        decision: How the step ended; that of the attempt that was certified.
        plan: The certified winner, float32 (H, block width); None: brake.
        pool: The pool it won, float32 (candidates, H, block width); of a step that brakes the last
            one that was answered, None where none was.
        certificate: The server's answer to that pool.
        attempts: Every judgement, in order.
        pools: Pools that the server was asked about.
        seconds: From the call to the decision.
        error: Why the server gave no answer; the choice may still be an EARLIER one.
    """

    decision: Decision
    plan: Candidates | None
    pool: Candidates | None
    certificate: PoolCertificate | None
    attempts: tuple[Attempt, ...]
    pools: int
    seconds: float
    error: AcpcError | None


_REMEDIES = {*Decision} - {Decision.ACCEPT, Decision.BRAKE}


@dataclass
class Episode:
    """State that a ``with`` block around control steps carries from one to the next.

    Attributes:
        lasts: Whether one is under way.
        session: The one to move to the next frame.
    """

    lasts: bool = False
    session: Any = None


@dataclass(frozen=True)
class PolicyRule:
    """The rule of a policy, and what it has decided so far.

    A choice is certified when every drawn view leaves it unchanged by proof. In a session with a
    goal of coverage it is the statement with confidence that must hold instead, which speaks of
    views that were not drawn.

    A denied choice goes through the remedies in their order, each at most once a plan, until one is
    certified, the attempts or the milliseconds are spent, or none is left; then the step brakes.
    REPLAN begins again with a new frame.

    Attributes:
        remedies: What to try, in this order. None: a denied choice brakes.
        select: What must not change: the winner of a plan's last pool (``"top1"``), or the elite
            set of every pool (``"elite"``), by which CEM moves; SHRINK and EARLIER are for winners.
        budget_ms: Milliseconds of one control step, on the client's clock.
        attempts: Judgements of one control step, the first among them.
        acted: What a candidate does before the next control step, (candidates, ...) of a pool;
            the first block.
        same_action: SHRINK takes a candidate for the winner's equal when no entry of ``acted``
            differs by more; in its units.
        closer: What REFINE adds to the options of ``look``: a goal of coverage, with its draws.
        clock: Seconds, monotonic.
        decided: Control steps by decision.
        failed: Control steps without an answer, by the code of the error.
        episode: The stream that is kept, in a ``with`` block.

    Raises ArgumentError: A number or a remedy that can never work.
    """

    remedies: tuple[Decision, ...] = ()
    select: Literal["top1", "elite"] = "top1"
    budget_ms: float = 200.0
    attempts: int = 4
    acted: Callable[[Candidates], Array] = field(default=lambda pool: pool[:, 0], repr=False)
    same_action: float = 0.0
    closer: CertifyOptions | None = None
    clock: Callable[[], float] = field(default=time.perf_counter, repr=False)
    decided: Counter[Decision] = field(default_factory=Counter, init=False)
    failed: Counter[str] = field(default_factory=Counter, init=False)
    episode: Episode = field(default_factory=Episode, init=False, repr=False)

    def __post_init__(self) -> None:
        for name, least in (("budget_ms", 0.0), ("attempts", 0)):
            if not getattr(self, name) > least:
                raise ArgumentError(name, f"found {getattr(self, name)}, wanted more than {least}")
        if not self.same_action >= 0.0:
            raise ArgumentError("same_action", f"found {self.same_action}, wanted 0 or more")
        for remedy in self.remedies:
            if remedy not in _REMEDIES:
                raise ArgumentError("remedies", f"{remedy} is no remedy")
        if Decision.REFINE in self.remedies and not self.closer:
            raise ArgumentError("closer", "REFINE needs the options of the closer look")
        if self.select == "elite" and {Decision.SHRINK, Decision.EARLIER} & set(self.remedies):
            raise ArgumentError("remedies", "SHRINK and EARLIER are for select='top1'")

    def count(self, step: ControlStep) -> ControlStep:
        """Takes note of a control step, and returns it."""
        self.decided[step.decision] += 1
        if step.error is not None:
            self.failed[step.error.code] += 1
        return step


Pools = Callable[[], Generator[Candidates, PoolCertificate, object]]
"""One plan: yields pools, float32 (candidates, H, block width), and is sent the answer to each,
with whose clean costs it may plan. The winner of the last is acted on; a planner with costs of
its own yields that pool alone."""


@dataclass(frozen=True)
class OpenSession:
    """Open a session, on a new frame or on the one before."""

    fresh: bool
    options: dict[str, object]


@dataclass(frozen=True)
class Ask:
    """Certify a pool in the session that is open."""

    pool: Candidates
    timeout: float


Command = OpenSession | Ask
_Asking = Generator[Command, Any, bool]
_Asked = tuple[Candidates, PoolCertificate]


class Control:
    """One control step without I/O: yields what to ask, and is sent answers or thrown errors."""

    def __init__(self, rule: PolicyRule, pools: Pools) -> None:
        self._rule = rule
        self._pools = pools
        self._begun = rule.clock()
        self._plan: list[_Asked] = []  # pools of the plan under way, with their answers
        self._last: _Asked | None = None  # what was answered last
        self._asked = 0
        self._attempts: list[Attempt] = []
        self._chosen: _Asked | None = None

    def steps(self) -> Generator[Command, Any, ControlStep]:
        """The step, from its first session to its record."""
        error = None
        try:
            yield from self._remedied()
        except ArgumentError:
            raise
        except AcpcError as raised:
            error = raised
            if Decision.EARLIER in self._rule.remedies:
                self._earlier(self._plan)
        chosen = self._chosen
        pool, certificate = chosen or self._last or (None, None)
        return ControlStep(
            decision=self._attempts[-1].remedy if chosen else Decision.BRAKE,
            plan=chosen[0][chosen[1].clean_winner] if chosen else None,
            pool=pool,
            certificate=certificate,
            attempts=tuple(self._attempts),
            pools=self._asked,
            seconds=self._rule.clock() - self._begun,
            error=error,
        )

    def _remedied(self) -> _Asking:
        """Whether a choice is certified, after as many remedies as it takes."""
        led_here = Decision.ACCEPT
        while True:
            yield from self._planned()
            if self._judge(led_here, self._decisive(self._plan)):
                return True
            for remedy in self._rule.remedies:
                if len(self._attempts) >= self._rule.attempts:
                    return False
                if remedy is Decision.REPLAN:
                    break
                tried = {Decision.SHRINK: self._shrunk, Decision.REFINE: self._refined}.get(remedy)
                if (yield from tried()) if tried else self._earlier(self._plan[:-1]):
                    return True
            else:
                return False
            led_here = Decision.REPLAN

    def _planned(self) -> Generator[Command, Any, None]:
        """Has the planner make one plan, its pools certified as they come."""
        self._plan = []
        yield self._open(fresh=True)
        pools = self._pools()
        pool = next(pools, None)
        while pool is not None:
            answer = yield from self._ask(pool)
            self._plan.append((pool, answer))
            try:
                pool = pools.send(answer)
            except StopIteration:
                break
        if not self._plan:
            raise ArgumentError("pools", "found none, wanted one or more")

    def _shrunk(self) -> _Asking:
        pool, answer = self._plan[-1]
        acted, best = self._rule.acted(pool).reshape(len(pool), -1), answer.clean_winner
        kept = np.abs(acted - acted[best]).max(axis=1) > self._rule.same_action
        kept[best] = True
        if kept.all():
            return False
        fewer = pool[kept]
        if len(fewer) <= len(answer.clean_elites):  # too few for the session's elite set
            yield self._open(fresh=False, elite_count=0)
        return self._judge(Decision.SHRINK, [(fewer, (yield from self._ask(fewer)))])

    def _refined(self) -> _Asking:
        yield self._open(fresh=False, **(self._rule.closer or {}))
        again = []
        for pool, _ in self._decisive(self._plan):
            again.append((pool, (yield from self._ask(pool))))
        return self._judge(Decision.REFINE, again)

    def _earlier(self, plan: list[_Asked]) -> bool:
        """Whether a pool of the plan was certified; the latest one counts."""
        if self._rule.select == "elite":
            return False
        certified = (asked for asked in reversed(plan) if _certified(asked[1], "top1"))
        return any(self._judge(Decision.EARLIER, [asked]) for asked in certified)

    def _decisive(self, plan: list[_Asked]) -> list[_Asked]:
        """The pools that must be certified for the choice to be."""
        return plan if self._rule.select == "elite" else plan[-1:]

    def _judge(self, remedy: Decision, asked: list[_Asked]) -> bool:
        select, (pool, answer) = self._rule.select, asked[-1]
        same = [view.perturbed_winner == answer.clean_winner for view in answer.views]
        margins = [_margin(certificate, select) for _, certificate in asked]
        margin = min((margin for margin in margins if margin is not None), default=None)
        certified = all(_certified(certificate, select) for _, certificate in asked)
        unchanged = sum(same) / len(same)
        self._attempts.append(Attempt(remedy, certified, margin, unchanged, len(pool)))
        if certified:
            self._chosen = pool, answer
        return certified

    def _open(self, *, fresh: bool, **options: object) -> OpenSession:
        left = self._left()
        return OpenSession(fresh, {"timeout": left, "message_timeout": left, **options})

    def _ask(self, pool: Candidates) -> Generator[Command, Any, PoolCertificate]:
        answer: PoolCertificate = yield Ask(pool, self._left())
        self._asked += 1
        self._last = pool, answer
        return answer

    def _left(self) -> float:
        """Seconds left of the budget; raises DeadlineExceeded where there are none."""
        left = self._rule.budget_ms / 1000 - (self._rule.clock() - self._begun)
        if left <= 0:
            spent = f"the control step has spent its {self._rule.budget_ms:g} ms"
            raise DeadlineExceeded(spent, reason="")
        return left


def _chosen(answer: PoolCertificate, select: str) -> list[SelectionCertificate]:
    found = [getattr(view, select) for view in answer.views]
    if None in found:
        raise ArgumentError("elite_count", "found 0, wanted the planner's: select='elite'")
    return found


def _certified(answer: PoolCertificate, select: str) -> bool:
    """Whether the statements with confidence hold; without any, whether every view is certified."""
    chosen = _chosen(answer, select)
    if answer.coverage:
        return all(getattr(statement, select).holds for statement in answer.coverage)
    return all(certificate.certified for certificate in chosen)


def _margin(answer: PoolCertificate, select: str) -> float | None:
    gap = getattr(answer.clean_gaps, select, None)
    smallest = min(certificate.margin for certificate in _chosen(answer, select))
    return smallest / gap if gap and math.isfinite(gap) else None
