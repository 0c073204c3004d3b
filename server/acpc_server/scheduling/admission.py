"""Admission control: which requests a busy device takes on, and how it rejects the others.

Overload is RESOURCE_EXHAUSTED with RetryInfo and one of these reasons; a deadline that passes
before an admitted request is answered is DEADLINE_EXCEEDED.

    SERVER_BUSY               as many requests as the server takes are under way
    QUEUE_FULL                as many chunks as may wait for the device do
    DEADLINE_CANNOT_BE_MET    the work ahead would make this request late, or has made it so
"""

from __future__ import annotations

import math
import threading
import time
from collections import Counter
from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Protocol

from acpc_server.errors import Cancelled, DeadlineExceeded, ResourceExhausted
from acpc_server.scheduling.callers import RETRY_SECONDS, has_place
from acpc_server.scheduling.context import Priority, RequestContext
from acpc_server.scheduling.latency import LatencyModel, Work

# Time of a request whose caller sets no deadline, and the most that a deadline gives it.
MAX_REQUEST_SECONDS = 300.0
# A request is admitted only if those ahead are expected to take at most this share of its time.
MAX_WAIT_SHARE = 0.3
MIN_RETRY_SECONDS = 0.05
# An interactive chunk has to begin while this many times its estimate is left: others may share its
# call, and the answer has to arrive. It may always wait for half of its time.
START_MARGIN = 2.0


@dataclass(eq=False)
class _UnderWay:
    """A request under way; its kind is its method, and how often its device calls double."""

    method: str
    context: RequestContext
    max_wait_share: float
    kind: Hashable = ""
    units: float = 1.0  # its turn and those that it waits for


class AdmissionController:
    """Admits requests to one device; every method that computes on it is counted together.

    Callers take turns on the device, so a request waits for as many of another caller as its own
    caller has under way, itself included, and for each as long as the shorter of the two takes
    alone. Each request that ends teaches the latency model what it took alone: its time, over
    itself and those it waited for. A method has one estimate per doubling of device calls, so that
    dear requests do not count for cheap ones; a request is of the cheapest kind until its price is
    known, and is rejected then if it would be late. At most ``max_queue`` interactive chunks wait
    for the device.
    """

    def __init__(
        self,
        latency: LatencyModel | None = None,
        *,
        max_requests: int = 64,
        max_queue: int = 256,
    ) -> None:
        self.latency = latency or LatencyModel()
        self._max_requests = max_requests
        self._max_queue = max_queue
        self._under_way: dict[str, Counter[Hashable]] = {}
        self._cheapest: dict[str, Hashable] = {}  # kind, by method
        self._total = 0
        self._lock = threading.Lock()

    @property
    def under_way(self) -> int:
        """Number of requests under way."""
        return self._total

    @contextmanager
    def request(
        self, method: str, context: RequestContext, max_wait_share: float = MAX_WAIT_SHARE
    ) -> Iterator[bool]:
        """Count a request while it computes; it may wait for this share of its time.

        Yields whether it has others to wait for.
        """
        one = _UnderWay(method, context, max_wait_share)
        self._admit(one, self._cheapest.get(method, method))
        context.priced = lambda calls: self._admit(one, _kind(method, calls))
        started = time.monotonic()
        try:
            yield one.units > 1.0
            self.latency.learn(Work(one.kind, one.units), time.monotonic() - started)
            self._cheapest[method] = min(self._cheapest.get(method, one.kind), one.kind, key=_size)
        except (Cancelled, DeadlineExceeded, ResourceExhausted):
            # It would have taken longer still: this teaches only that the method is slower.
            work, elapsed = Work(one.kind, one.units), time.monotonic() - started
            if elapsed > self.latency.estimate([work]):
                self.latency.learn(work, elapsed)
            raise
        finally:
            context.priced = None
            with self._lock:
                self._count(one, -1)

    def check(self, method: str, caller: str, remaining: float | None) -> None:
        """Raise ResourceExhausted where a request that came now would be rejected."""
        with self._lock:
            kind = self._cheapest.get(method, method)
            self._turns(kind, caller, remaining, MAX_WAIT_SHARE)

    def _admit(self, one: _UnderWay, kind: Hashable) -> None:
        """Count a request; one that is counted already as of another kind."""
        context, counted = one.context, one.kind != ""
        with self._lock:
            if kind == one.kind:
                return
            if counted:
                self._count(one, -1)
            try:
                limits = context.caller, context.remaining(), one.max_wait_share
                one.units = self._turns(kind, *limits, counted=counted)
                one.kind, counted = kind, True
            finally:
                if counted:
                    self._count(one, 1)

    def _count(self, one: _UnderWay, by: int) -> None:
        own = self._under_way.setdefault(one.context.caller, Counter())
        own[one.kind] += by
        self._total += by
        if not own.total():
            del self._under_way[one.context.caller]

    def _turns(
        self,
        kind: Hashable,
        caller: str,
        remaining: float | None,
        max_wait_share: float,
        *,
        counted: bool = False,
    ) -> float:
        """Return a request's turn and those that it waits for; ResourceExhausted if too many.

        A kind that has not been measured yet counts as longer than the others, but its first
        request is not late: it is what measures the kind. One that was counted has its place.
        """
        ahead, own = self._total, self._under_way.get(caller, Counter())
        alone = self.latency.unit_seconds(kind)
        others = self._under_way.values()
        wait = sum(self._turn_seconds(counts, alone, own.total() + 1) for counts in others)
        late = False
        if remaining is not None and (alone or any(counts[kind] for counts in others)):
            late = wait > max_wait_share * remaining or wait + alone > remaining
        callers = len(others) + (not own)
        full = not has_place(self._max_requests, ahead, own=own.total(), callers=callers)
        full = full and not counted
        if full or (ahead and late):
            if late:
                self.latency.discount(kind)
            raise ResourceExhausted(
                f"{ahead} requests are under way, {own.total()} of this caller; behind them "
                f"this one would take about {wait + alone:.3f} s",
                reason="DEADLINE_CANNOT_BE_MET" if late else "SERVER_BUSY",
                retry_after=max(wait + alone, MIN_RETRY_SECONDS),
            )
        return 1.0 + (wait / alone if alone else ahead)

    def _turn_seconds(self, counts: Counter[Hashable], alone: float, turns: int) -> float:
        """Return how long a request waits for those of one caller, in so many turns."""
        every = sum(
            count * min(self.latency.unit_seconds(kind), alone or math.inf)
            for kind, count in counts.items()
        )
        return every * min(1.0, turns / counts.total())

    def chunk(
        self, work: Work, ahead: Sequence[Work], context: RequestContext, queued: int
    ) -> None:
        """Admit an interactive chunk to the device's queue, in which ``queued`` wait.

        Those in ``ahead`` have their turn first; with none the chunk is never late.
        """
        if queued >= self._max_queue:
            raise ResourceExhausted(
                f"{queued} chunks of work wait for the device, as many as may",
                reason="QUEUE_FULL",
                retry_after=max(self.latency.estimate(ahead), RETRY_SECONDS),
            )
        remaining = context.remaining()
        needed = self.latency.estimate([*ahead, work])
        if ahead and remaining is not None and needed > remaining:
            self.latency.discount(work.kind)
            raise ResourceExhausted(
                f"the work ahead and this request take about {needed:.3f} s, but the deadline is "
                f"in {max(remaining, 0.0):.3f} s; allow more time or try again later",
                reason="DEADLINE_CANNOT_BE_MET",
                retry_after=needed,
            )

    def reserve(self, work: Work, context: RequestContext) -> float:
        """Return the seconds before the deadline at which a chunk still in line is too late."""
        remaining = context.remaining()
        if remaining is None:
            return 0.0
        return min(START_MARGIN * self.latency.estimate([work]), max(0.0, remaining / 2))


def _kind(method: str, calls: float) -> Hashable:
    doublings = math.ceil(math.log2(max(1.0, calls)))
    return (method, doublings) if doublings else method


def _size(kind: Hashable) -> int:
    return kind[1] if isinstance(kind, tuple) else 0


class _Life(Protocol):
    def time_remaining(self) -> float | None: ...

    def is_active(self) -> bool: ...

    def add_callback(self, callback: Callable[[], None]) -> bool: ...

    def waits_for_others(self, waits: bool) -> None: ...


class CallRequests:
    """The requests of one RPC, which has ``life``: one of a unary call, one a message of a stream.

    A stream lives as long as its caller wants, each of its messages has its own time. All are
    cancelled when the RPC ends. An open stream was admitted once: its later messages are rejected
    only when they would be late, since a planner cannot continue without them.
    """

    def __init__(
        self, admission: AdmissionController, method: str, life: _Life, *, caller: str = ""
    ) -> None:
        self._admission = admission
        self._caller = caller
        self._method = method
        self._life = life
        self._current = RequestContext(Priority.INTERACTIVE)
        self._max_wait_share = MAX_WAIT_SHARE
        life.add_callback(lambda: self._current.cancel())  # noqa: PLW0108 - that of its time

    @contextmanager
    def admitted(self) -> Iterator[RequestContext]:
        """Count the next request while the block computes it."""
        remaining = self._life.time_remaining()
        seconds = min(MAX_REQUEST_SECONDS, MAX_REQUEST_SECONDS if remaining is None else remaining)
        context = self._current = RequestContext(Priority.INTERACTIVE, seconds, caller=self._caller)
        if not self._life.is_active():
            context.cancel()
        context.check()
        asked = self._method, context, self._max_wait_share
        with self._admission.request(*asked) as waits:
            self._max_wait_share = 1.0
            self._life.waits_for_others(waits)
            yield context

    def check(self) -> None:
        """Raise Cancelled or DeadlineExceeded when the latest request should not go on."""
        self._current.check()
