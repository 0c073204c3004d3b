"""Limits per caller: the calls that each may have under way, and its fair share of the server.

A limit that is reached is RESOURCE_EXHAUSTED with RetryInfo, a sentence that names whose limit it
is, and a reason: TOO_MANY_CALLS, _STREAMS, _WAITS or _UPLOADS.
"""

from __future__ import annotations

import enum
import threading
import time
from collections import Counter, OrderedDict
from collections.abc import Callable
from dataclasses import dataclass

from acpc_server.errors import ResourceExhausted

# Retry hint where nothing better is known.
RETRY_SECONDS = 0.5
# The last places of the server: of these, a caller gets its fair share and no more.
RESERVED_SHARE = 0.25
# Callers whose pace is remembered until it no longer matters.
MAX_RESTING = 10_000


class Resource(enum.StrEnum):
    """A resource that a caller occupies during a call; each is a field of :class:`Quota`."""

    CALLS = "calls"
    STREAMS = "streams"
    WAITS = "waits"
    UPLOADS = "uploads"


@dataclass(frozen=True)
class Quota:
    """What the server takes at a time; 0: no limit."""

    calls: int = 0  # streams and waits included
    streams: int = 0
    waits: int = 0  # calls that wait for a job
    uploads: int = 0  # of anchors


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

    A caller's own limit applies first, then :func:`has_place` for what the server gives in all. A
    caller that has left is forgotten.

    Args:
        total: What the server gives in all.
        calls: What one caller may have under way; 0: no limit but its fair share.
    """

    def __init__(self, total: Quota, calls: int = 0) -> None:
        self._total = total
        self._calls = calls
        self._callers: dict[str, Counter[Resource]] = {}
        self._used: Counter[Resource] = Counter()
        self._holders: Counter[Resource] = Counter()  # callers that have any
        self._lock = threading.Lock()

    def enter(self, caller: str, *what: Resource) -> Callable[[], None]:
        """Count one of each of ``what`` for a caller; returns what calls :meth:`leave`.

        ``caller`` is a principal's name, or the address of an unknown one.

        Raises ResourceExhausted: Over the caller's limit or its fair share; nothing is counted.
        """
        with self._lock:
            held = self._callers.get(caller) or Counter()
            for one in what:
                self._check(held, one)
            self._callers[caller] = held
            for one in what:
                self._holders[one] += not held[one]
                held[one] += 1
                self._used[one] += 1
        return lambda: self.leave(caller, *what)

    def leave(self, caller: str, *what: Resource) -> None:
        """Undo an :meth:`enter`."""
        with self._lock:
            held = self._callers[caller]
            for one in what:
                held[one] -= 1
                self._used[one] -= 1
                self._holders[one] -= not held[one]
            if not any(held.values()):
                del self._callers[caller]

    @property
    def known(self) -> int:
        """Number of callers that are remembered."""
        return len(self._callers)

    def used(self, what: Resource) -> int:
        """Return what all callers hold."""
        return self._used[what]

    def _check(self, held: Counter[Resource], what: Resource) -> None:
        own, used = held[what], self._used[what]
        total: int = getattr(self._total, what)
        callers = self._holders[what] + (not own)
        if what is Resource.CALLS and self._calls and own >= self._calls:
            why = f"this caller has {own} calls under way, and may have {self._calls}"
        elif total and not has_place(total, used, own=own, callers=callers):
            why = (
                f"the server has {used} {what} under way, {own} of this caller, and takes {total}; "
                "the last are for callers that have few"
            )
        else:
            return
        raise ResourceExhausted(why, reason=f"TOO_MANY_{what.name}", retry_after=RETRY_SECONDS)
