"""One control step without I/O: what to ask, and what the answers lead to."""

from __future__ import annotations

import math
from collections.abc import Callable, Generator
from dataclasses import dataclass
from typing import Any

import numpy as np
from acpc.contract import PoolCertificate

from acpc_client.errors import AcpcError, ArgumentError, DeadlineExceeded
from acpc_client.planning.rule import Attempt, Candidates, ControlStep, Decision, PolicyRule

Pools = Callable[[], Generator[Candidates, PoolCertificate, object]]
"""One plan: yields pools, float32 (candidates, H, block width), and is sent the answer to each,
with whose clean costs it may plan. The winner of the last is acted on; a planner with costs of
its own yields that pool alone."""


@dataclass(frozen=True)
class Look:
    """Open a session, on a new frame or on the one before."""

    fresh: bool
    options: dict[str, Any]


@dataclass(frozen=True)
class Ask:
    """Certify a pool in the session that is open."""

    pool: Candidates
    timeout: float


Command = Look | Ask
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
        """The step, from its first look to its record."""
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
                if (yield from self._tried(remedy)):
                    return True
            else:
                return False
            led_here = Decision.REPLAN

    def _tried(self, remedy: Decision) -> _Asking:
        match remedy:
            case Decision.SHRINK:
                return (yield from self._shrunk())
            case Decision.REFINE:
                return (yield from self._refined())
            case _:
                return self._earlier(self._plan[:-1])

    def _planned(self) -> Generator[Command, Any, None]:
        """Has the planner make one plan, its pools certified as they come."""
        self._plan = []
        yield self._look(fresh=True)
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
        acted = self._rule.acted(pool).reshape(len(pool), -1)
        kept = np.abs(acted - acted[answer.clean_winner]).max(axis=1) > self._rule.same_action
        kept[answer.clean_winner] = True
        if kept.all():
            return False
        fewer = pool[kept]
        if len(fewer) <= len(answer.clean_elites):  # too few for the session's elite set
            yield self._look(fresh=False, elite_count=0)
        return self._judge(Decision.SHRINK, [(fewer, (yield from self._ask(fewer)))])

    def _refined(self) -> _Asking:
        yield self._look(fresh=False, **(self._rule.closer or {}))
        again = []
        for pool, _ in self._decisive(self._plan):
            again.append((pool, (yield from self._ask(pool))))
        return self._judge(Decision.REFINE, again)

    def _earlier(self, plan: list[_Asked]) -> bool:
        """Whether a pool of the plan was certified; the latest one counts."""
        if self._rule.select == "elite":
            return False
        certified = (asked for asked in reversed(plan) if _certified(asked[1], "top1"))
        asked = next(certified, None)
        return asked is not None and self._judge(Decision.EARLIER, [asked])

    def _decisive(self, plan: list[_Asked]) -> list[_Asked]:
        """The pools that must be certified for the choice to be."""
        return plan if self._rule.select == "elite" else plan[-1:]

    def _judge(self, remedy: Decision, asked: list[_Asked]) -> bool:
        select = self._rule.select
        pool, answer = asked[-1]
        same = [view.perturbed_winner == answer.clean_winner for view in answer.views]
        margins = [_margin(certificate, select) for _, certificate in asked]
        attempt = Attempt(
            remedy=remedy,
            certified=all(_certified(certificate, select) for _, certificate in asked),
            margin=min((margin for margin in margins if margin is not None), default=None),
            unchanged=sum(same) / len(same),
            candidates=len(pool),
        )
        self._attempts.append(attempt)
        if attempt.certified:
            self._chosen = pool, answer
        return attempt.certified

    def _look(self, *, fresh: bool, **options: object) -> Look:
        left = self._left()
        return Look(fresh, {"timeout": left, "message_timeout": left, **options})

    def _ask(self, pool: Candidates) -> Generator[Command, Any, PoolCertificate]:
        answer: PoolCertificate = yield Ask(pool, self._left())
        self._asked += 1
        self._last = pool, answer
        return answer

    def _left(self) -> float:
        """Seconds left of the budget.

        Raises:
            DeadlineExceeded: None.
        """
        left = self._rule.budget_ms / 1000 - (self._rule.clock() - self._begun)
        if left <= 0:
            said = f"the control step has spent its {self._rule.budget_ms:g} ms"
            raise DeadlineExceeded(said, reason="")
        return left


def _chosen(answer: PoolCertificate, select: str) -> list[Any]:
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
