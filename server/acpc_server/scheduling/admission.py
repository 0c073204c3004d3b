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
from collections import Counter, OrderedDict, defaultdict
from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple, Protocol

from acpc_server.errors import Cancelled, DeadlineExceeded, ResourceExhausted
from acpc_server.scheduling.callers import RETRY_SECONDS, has_place
from acpc_server.scheduling.context import Priority, RequestContext
from acpc_server.scheduling.latency import LatencyModel, Margin, Work

# Time of a request whose caller sets no deadline, and the most that a deadline gives it.
MAX_REQUEST_SECONDS = 300.0
# A request is admitted only if those ahead are expected to take at most this share of its time.
MAX_WAIT_SHARE = 0.3
MIN_RETRY_SECONDS = 0.05
# An interactive chunk has to begin while this many times its estimate is left: others may share its
# call, and the answer has to arrive. It may always wait for half of its time.
START_MARGIN = 2.0
# A caller whose requests have ended still shares the device while its next one may come: for the
# first of these seconds and twice its latest pause between two, never longer than the second.
RETURN_SECONDS, MAX_RETURN_SECONDS = 0.05, 2.0
# For one that paused no longer than this, the device is kept from callers over their share.
SOON_SECONDS = 0.01
# Until its price is known, a request is taken for the cheapest that its caller sent within so long.
USUAL_SECONDS = 1.0


class Shares(NamedTuple):
    """Callers with more requests under way than an equal share, and the requests of all others."""

    over: frozenset[str]
    modest: int


class _ExpectedCallers:
    """Callers that have nothing under way but are expected back, judged by their latest pause."""

    def __init__(self) -> None:
        # When, until when, and until when at any moment.
        self._left: OrderedDict[str, tuple[float, float, float]] = OrderedDict()
        self._pauses: dict[str, float] = {}  # of callers that came back in time, seconds

    def leaves(self, caller: str) -> None:
        """Note that a caller's last request has ended."""
        now = time.monotonic()
        pause = self._pauses.pop(caller, 0.0)
        soon = now + 2 * pause if pause <= SOON_SECONDS else now
        self._left[caller] = (now, now + RETURN_SECONDS + 2 * pause, soon)
        while now - next(iter(self._left.values()))[0] > MAX_RETURN_SECONDS:
            self._left.popitem(last=False)

    def comes(self, caller: str) -> None:
        """Note that a caller has a request under way."""
        left, *_ = self._left.pop(caller, (-math.inf, 0.0, 0.0))
        pause = time.monotonic() - left
        if pause <= MAX_RETURN_SECONDS:
            self._pauses[caller] = pause

    def count(self) -> int:
        """Count the callers that are expected."""
        now = time.monotonic()
        return sum(
            now <= until and now - left <= MAX_RETURN_SECONDS
            for left, until, _ in self._left.values()
        )

    def soon(self) -> bool:
        """Tell whether a caller that paused for a moment may come back at any."""
        now = time.monotonic()
        return any(now < soon for *_, soon in self._left.values())


class _Usual:
    """Doublings of device calls of the cheapest recent request, by caller and method."""

    def __init__(self) -> None:
        self._seen: OrderedDict[tuple[str, str], tuple[float, int]] = OrderedDict()  # until when

    def note(self, caller: str, method: str, doublings: int) -> None:
        """Note what a request has turned out to take."""
        now, key = time.monotonic(), (caller, method)
        while self._seen and next(iter(self._seen.values()))[0] < now:
            self._seen.popitem(last=False)
        until, least = self._seen.get(key, (now + USUAL_SECONDS, doublings))
        self._seen[key] = (until, min(least, doublings))

    def get(self, caller: str, method: str) -> int | None:
        """Return the least that was noted; None after a while, for callers change."""
        until, least = self._seen.get((caller, method), (0.0, 0))
        return least if time.monotonic() <= until else None


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

    Callers take turns on the device, and so do requests of one caller: a request waits for as many
    of another caller as its own caller has under way, itself included, and for each as long as the
    shorter of the two takes alone. Each request that ends teaches the latency model what it took
    alone: its time, over itself and those it waited for. Requests of a method have one estimate per
    doubling of their device calls, so that dear ones do not count for cheap ones; until its price
    is known a request counts as its caller's cheapest of late, else as one of the cheapest: many
    that turn out to be dear would fill a busy server before they are rejected. At most
    ``max_queue`` interactive chunks wait for the device.
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
        self._cheapest: dict[str, int] = {}  # doublings, by method
        self._usual = _Usual()
        self._total = 0
        self._returning = _ExpectedCallers()
        self._margins = defaultdict[Hashable, Margin](partial(Margin, self.latency.clock))
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
        self._admit(one, self._expected(method, context.caller))
        context.priced = lambda calls: self._reprice(one, _doublings(calls))
        started = time.monotonic()
        try:
            yield one.units > 1.0
            self._learn(one, time.monotonic() - started)
            self._cheapest[method] = min(_doublings(context.calls), self._cheapest.get(method, 64))
        except (Cancelled, DeadlineExceeded, ResourceExhausted):
            # It would have taken longer still: this teaches only that the method is slower.
            elapsed = time.monotonic() - started
            if elapsed > self.latency.estimate([Work(one.kind, one.units)]):
                self._learn(one, elapsed)
            raise
        finally:
            context.priced = None
            with self._lock:
                self._count(one, -1)
                if context.caller not in self._under_way:
                    self._returning.leaves(context.caller)

    def check(self, method: str, caller: str, remaining: float | None) -> None:
        """Raise ResourceExhausted where a request that came now would be rejected."""
        with self._lock:
            kind = _kind(method, self._expected(method, caller))
            self._turns(kind, caller, remaining, MAX_WAIT_SHARE)

    def _expected(self, method: str, caller: str) -> int:
        usual = self._usual.get(caller, method)
        return self._cheapest.get(method, 0) if usual is None else usual

    def _reprice(self, one: _UnderWay, doublings: int) -> None:
        with self._lock:
            self._usual.note(one.context.caller, one.method, doublings)
        self._admit(one, doublings)

    def _learn(self, one: _UnderWay, seconds: float) -> None:
        work = Work(one.kind, one.units)
        with self._lock:
            self._margins[one.kind].learn(self.latency.estimate([work]), seconds)
        self.latency.learn(work, seconds)

    def shares(self) -> Shares:
        """Return who uses more of the device than others now."""
        with self._lock:
            counts = {caller: own.total() for caller, own in self._under_way.items()}
            active = len(self._under_way) + self._returning.count()
            share = math.ceil(self._total / max(1, active))
            over = frozenset(caller for caller, count in counts.items() if count > share)
            return Shares(over, self._total - sum(counts[caller] for caller in over))

    def expects_one(self) -> bool:
        """Tell whether a caller that has nothing under way is expected back at any moment."""
        with self._lock:
            return self._returning.soon()

    def _admit(self, one: _UnderWay, doublings: int) -> None:
        """Count a request; one that is counted already as of another kind."""
        context, kind, counted = one.context, _kind(one.method, doublings), one.kind != ""
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
            self._returning.comes(context.caller)

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
            whole = self._margins[kind].factor * (wait + alone)
            late = wait > max_wait_share * remaining or whole > remaining
        callers = len(others) + (not own)
        full = not has_place(self._max_requests, ahead, own=own.total(), callers=callers)
        full = full and not counted
        if full or (ahead and late):
            if late:
                self.latency.discount(kind)
                self._margins[kind].discount()
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


def _doublings(calls: float) -> int:
    return max(0, math.ceil(math.log2(max(1.0, calls))))


def _kind(method: str, doublings: int) -> Hashable:
    return (method, doublings) if doublings else method


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
