"""Limits per caller: what each may hold at a time and ask for per second, and its fair share.

A limit that is reached is RESOURCE_EXHAUSTED with RetryInfo, a sentence that names whose limit it
is, and a reason: TOO_MANY_CALLS, _STREAMS, _WAITS or _UPLOADS when the caller, or the server, has
as many as it may, CALL_RATE when the caller makes more calls per second than it may.
"""

from __future__ import annotations

import enum
import math
import threading
import time
from collections import Counter, OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field

from acpc_server.errors import ResourceExhausted

# Retry hint where nothing better is known.
RETRY_SECONDS = 0.5
# The last places of the server: of these, a caller gets its fair share and no more.
RESERVED_SHARE = 0.25
# Seconds in which a caller that was silent may use up the calls of as many seconds at once.
BURST_SECONDS = 1.0
# Callers without anything open whose rate is remembered until it no longer matters.
MAX_RESTING = 10_000


class Resource(enum.StrEnum):
    """A resource that a caller occupies during a call; each is a field of :class:`Quota`."""

    CALLS = "calls"
    STREAMS = "streams"
    WAITS = "waits"
    UPLOADS = "uploads"


@dataclass(frozen=True)
class Quota:
    """Limits of one caller, or of the server in all; 0: no limit."""

    calls: int = 0  # at a time, streams and waits included
    streams: int = 0  # at a time
    waits: int = 0  # calls at a time that wait for a job
    uploads: int = 0  # of anchors, at a time
    calls_per_second: float = 0.0  # averaged over about a second
    queued_jobs: int = 0  # of its tenant
    stored_bytes: int = 0  # of its tenant's anchor sets and unfinished uploads


NO_QUOTA = Quota()


@dataclass
class _Caller:
    """Usage of a caller; ``next_call`` is the theoretical arrival time of its rate limit (GCRA)."""

    held: Counter[Resource] = field(default_factory=Counter)
    next_call: float = 0.0


def has_place(total: int, used: int, *, own: int, callers: int) -> bool:
    """Whether a caller that has ``own`` of the ``used`` places of a server gets one more.

    Until three quarters are taken, everybody does. Of the last quarter a caller gets its first, or
    what keeps it within an equal share of the ``callers``, itself included, and of one that may
    come: nobody takes the last places from the others.
    """
    if used < total - int(total * RESERVED_SHARE):
        return True
    return used < total and (not own or own < total // (callers + 1))


class Pace:
    """Spreads out what one caller does often: ``rate`` a second begin, and ``burst`` at once.

    Nothing begins more than ``most`` seconds late. For one thread.
    """

    def __init__(
        self,
        rate: float,
        burst: int,
        most: float,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._interval, self._burst, self._most = 1.0 / rate, burst / rate, most
        self._clock = clock
        self._next: OrderedDict[str, float] = OrderedDict()

    def pause(self, caller: str) -> float:
        """Count one; returns the seconds until it may begin."""
        now = self._clock()
        following = max(self._next.pop(caller, now), now) + self._interval
        following = min(following, now + self._burst + self._most)
        for _ in range(2):
            oldest = next(iter(self._next), None)
            if oldest is not None and (self._next[oldest] <= now or len(self) > MAX_RESTING):
                del self._next[oldest]
        self._next[caller] = following
        return max(0.0, following - now - self._burst)

    def __len__(self) -> int:
        return len(self._next)


class CallerLimits:
    """Counts what callers hold; safe to use from any thread, and never waits.

    A caller's own quota applies first, then :func:`has_place` for what the server gives in all. A
    caller that has left is forgotten; its rate is, as soon as that no longer limits it.

    Args:
        total: What the server gives in all.
        each: The quota of a caller that comes without one of its own.
    """

    def __init__(
        self,
        total: Quota = NO_QUOTA,
        each: Quota = NO_QUOTA,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._total = total
        self._each = each
        self._clock = clock
        self._callers: dict[str, _Caller] = {}
        self._resting: OrderedDict[str, None] = OrderedDict()
        self._used: Counter[Resource] = Counter()
        self._holders: Counter[Resource] = Counter()
        self._lock = threading.Lock()

    def enter(self, caller: str, *what: Resource, quota: Quota | None = None) -> Callable[[], None]:
        """Count one of each of ``what`` for a caller; returns what calls :meth:`leave`.

        ``caller`` is a principal's name, or the address of an unknown one.

        Raises ResourceExhausted: Over the caller's quota or its fair share; nothing is counted.
        """
        quota = quota or self._each
        with self._lock:
            self._forget_rested()
            state = self._callers.get(caller) or _Caller()
            for one in what:
                self._check(state, one, quota)
            if Resource.CALLS in what and quota.calls_per_second:
                state.next_call = self._check_rate(state, quota.calls_per_second)
            self._callers[caller] = state
            self._resting.pop(caller, None)
            for one in what:
                self._holders[one] += not state.held[one]
                state.held[one] += 1
                self._used[one] += 1
        return lambda: self.leave(caller, *what)

    def leave(self, caller: str, *what: Resource) -> None:
        """Undo an :meth:`enter`."""
        with self._lock:
            state = self._callers[caller]
            for one in what:
                state.held[one] -= 1
                self._used[one] -= 1
                self._holders[one] -= not state.held[one]
            if any(state.held.values()):
                return
            if state.next_call <= self._clock():
                del self._callers[caller]
                return
            self._resting[caller] = None
            if len(self._resting) > MAX_RESTING:
                del self._callers[self._resting.popitem(last=False)[0]]

    @property
    def known(self) -> int:
        """Number of callers that are remembered."""
        return len(self._callers)

    def used(self, what: Resource) -> int:
        """Return what all callers hold."""
        return self._used[what]

    def _check(self, state: _Caller, what: Resource, quota: Quota) -> None:
        own, used = state.held[what], self._used[what]
        limit: int = getattr(quota, what)
        total: int = getattr(self._total, what)
        callers = self._holders[what] + (not own)
        if limit and own >= limit:
            why = (
                f"this caller has {own} {what} under way, and its quota is {limit}; wait for some "
                "to end"
            )
        elif total and not has_place(total, used, own=own, callers=callers):
            why = (
                f"the server has {used} {what} under way, {own} of this caller, and takes {total}; "
                "the last are for callers that have few"
            )
        else:
            return
        raise ResourceExhausted(why, reason=f"TOO_MANY_{what.name}", retry_after=RETRY_SECONDS)

    def _check_rate(self, state: _Caller, rate: float) -> float:
        """Return the time by which the caller's calls, this one included, are made at its rate."""
        now = self._clock()
        following = max(state.next_call, now) + 1.0 / rate
        early = following - now - max(BURST_SECONDS, 1.0 / rate)
        if early > 1e-9:
            raise ResourceExhausted(
                f"this caller's quota is {rate:g} calls per second; wait {early:.3f} s",
                reason="CALL_RATE",
                retry_after=math.ceil(early * 1e3) / 1e3,
            )
        return following

    def _forget_rested(self) -> None:
        """Drop up to two idle callers per call, so the table shrinks faster than it grows."""
        for _ in range(2):
            caller = next(iter(self._resting), None)
            if caller is None or self._callers[caller].next_call > self._clock():
                return
            del self._resting[caller], self._callers[caller]
