"""Admission: rejects a request that would be late when it comes, and says when to come again.

A rejection is RESOURCE_EXHAUSTED with RetryInfo and one of these reasons; a deadline that passes
before an admitted request is answered is DEADLINE_EXCEEDED.

    SERVER_BUSY               as many requests as the server takes are under way
    DEADLINE_CANNOT_BE_MET    the seconds queued ahead would make this request late, or have
"""

from __future__ import annotations

import asyncio
import math
import threading
import time
from collections import Counter, OrderedDict
from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from acpc_server.errors import Cancelled, DeadlineExceeded, ResourceExhausted
from acpc_server.scheduling.context import RequestContext

# Retry hint where nothing better is known.
RETRY_SECONDS = 0.5
MIN_RETRY_SECONDS = 0.05
# A request is admitted only if those ahead are expected to take at most this share of its time.
WAIT_SHARE = 0.3
# Weight of the newest measurement. A mean grows from 0, so that one slow first call, which loads a
# checkpoint or warms a kernel up, rejects nobody for long.
SMOOTHING = 0.1
# Seconds without a measurement after which a mean that rejects work halves. Rejected work is not
# measured, so one that is too high would otherwise never come down.
HALF_LIFE = 3.0
MAX_KINDS = 512


def most_of_one(total: int) -> int:
    """Return how many of a server's places one caller may hold: all but the last quarter."""
    return total - total // 4


@dataclass(eq=False)
class _UnderWay:
    context: RequestContext
    share: float
    kind: tuple[str, int] | None = None
    turns: float = 1.0  # its own and those that it waits for


class Admission:
    """Admits requests to one device, at most ``most`` at a time; all its methods count together.

    Callers go round, so a request waits for as many of another caller as its own caller has under
    way, itself included, and for each as long as the shorter of the two takes alone. A request
    that ends teaches what its kind takes alone: its time, over itself and those it waited for. A
    kind is a method and a size, in doublings of device calls; a request is of its method's
    cheapest kind until its price is known, and is rejected then if it would be late.

    ``on_end`` is called when a request has ended.
    """

    def __init__(self, most: int = 256, clock: Callable[[], float] = time.monotonic) -> None:
        self._lock = threading.Lock()
        self.on_end: Callable[[], object] = lambda: None
        self.under_way = 0
        self._most, self._each = most, most_of_one(most)
        self._clock = clock
        # By kind: seconds that it takes alone, and when that was changed.
        self._means: OrderedDict[Hashable, tuple[float, float]] = OrderedDict()
        self._cheapest: dict[str, tuple[str, int]] = {}  # kind, by method
        self._lines: dict[str, Counter[Hashable]] = {}  # kinds under way, by caller

    def seconds(self, kind: Hashable) -> float:
        """Return the seconds that a request of a kind takes alone; 0 for one never measured."""
        return self._means.get(kind, (0.0, 0.0))[0]

    def learn(self, kind: Hashable, seconds: float) -> None:
        """Learn that a request of a kind took so long alone."""
        known = self.seconds(kind)
        self._means[kind] = known + SMOOTHING * (seconds - known), self._clock()
        self._means.move_to_end(kind)
        if len(self._means) > MAX_KINDS:
            self._means.popitem(last=False)

    def check(self, method: str, caller: str, remaining: float | None) -> None:
        """Raise ResourceExhausted where a request that came now would be rejected."""
        with self._lock:
            self._turns(self._cheapest.get(method, (method, 0)), caller, remaining, WAIT_SHARE)

    @contextmanager
    def request(
        self, method: str, context: RequestContext, share: float = WAIT_SHARE
    ) -> Iterator[RequestContext]:
        """Count a request while the block computes it; whatever works on it then stops.

        It may wait for this share of its time.
        """
        one = _UnderWay(context, share)
        self._admit(one, self._cheapest.get(method, (method, 0)))
        context.priced = lambda calls: self._admit(
            one, (method, math.ceil(math.log2(max(1.0, calls))))
        )
        started, ended = self._clock(), False
        try:
            yield context
            ended = True
        except (Cancelled, DeadlineExceeded, ResourceExhausted, asyncio.CancelledError):
            # It would have taken longer still: this teaches only that the kind is slower.
            ended = self._clock() - started > self.seconds(one.kind) * one.turns
            raise
        finally:
            context.priced = None
            context.cancel()
            with self._lock:
                self._count(one, -1)
                if ended:
                    kind = one.kind or (method, 0)
                    self.learn(kind, (self._clock() - started) / one.turns)
                    self._cheapest[method] = min(self._cheapest.get(method, kind), kind)
            self.on_end()

    def _admit(self, one: _UnderWay, kind: tuple[str, int]) -> None:
        """Count a request; one that is counted already as of another kind."""
        with self._lock:
            if kind == one.kind:
                return
            counted = one.kind is not None
            if counted:
                self._count(one, -1)
            try:
                limits = one.context.caller, one.context.remaining(), one.share
                one.turns = self._turns(kind, *limits, counted=counted)
                one.kind, counted = kind, True
                one.context.waits, one.context.expected = one.turns > 1.0, self.seconds(kind)
            finally:
                if counted:
                    self._count(one, 1)

    def _count(self, one: _UnderWay, by: int) -> None:
        own = self._lines.setdefault(one.context.caller, Counter())
        own[one.kind] += by
        self.under_way += by
        if not own.total():
            del self._lines[one.context.caller]

    def _turns(
        self,
        kind: Hashable,
        caller: str,
        remaining: float | None,
        share: float,
        *,
        counted: bool = False,
    ) -> float:
        """Return a request's turn and those that it waits for; ResourceExhausted if too many.

        A kind that has not been measured yet counts as longer than the others, but its first
        request is not late: it is what measures the kind. One that was counted has its place.
        """
        ahead, own, lines = self.under_way, self._lines.get(caller, Counter()), self._lines.values()
        alone, turns = self.seconds(kind), own.total() + 1
        wait = 0.0
        for line in lines:
            every = sum(n * min(self.seconds(k), alone or math.inf) for k, n in line.items())
            wait += every * min(1.0, turns / line.total())
        late = False
        if remaining is not None and (alone or any(line[kind] for line in lines)):
            late = wait > share * remaining or wait + alone > remaining
        full = not counted and (ahead >= self._most or own.total() >= self._each)
        if full or (ahead and late):
            moved_at = self._means.get(kind, (0.0, math.inf))[1]
            if late and self._clock() - moved_at >= HALF_LIFE:
                self._means[kind] = 0.5 * alone, self._clock()
            raise ResourceExhausted(
                f"{ahead} requests are under way, {own.total()} of this caller; behind them "
                f"this one would take about {wait + alone:.3f} s",
                reason="DEADLINE_CANNOT_BE_MET" if late else "SERVER_BUSY",
                retry_after=max(wait + alone, MIN_RETRY_SECONDS),
            )
        return 1.0 + (wait / alone if alone else ahead)
