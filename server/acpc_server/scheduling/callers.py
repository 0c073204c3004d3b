"""Limits per caller: the calls that each may have under way, and its fair share of the server.

A limit that is reached is RESOURCE_EXHAUSTED with RetryInfo, a sentence that names whose limit it
is, and a reason: TOO_MANY_CALLS, _STREAMS, _WAITS or _UPLOADS.
"""

from __future__ import annotations

import enum
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from acpc_server.errors import ResourceExhausted

# Retry hint where nothing better is known.
RETRY_SECONDS = 0.5
# The last places of the server: of these, a caller gets its fair share and no more.
RESERVED_SHARE = 0.25


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


class CallerLimits:
    """Counts what callers hold; for one thread, and never waits.

    A caller's own limit applies first, then :func:`has_place` for what the server gives in all.

    Args:
        total: What the server gives in all.
        calls: What one caller may have under way; 0: no limit but its fair share.
    """

    def __init__(self, total: Quota, calls: int = 0) -> None:
        self._total = total
        self._calls = calls
        self._held: dict[Resource, Counter[str]] = {one: Counter() for one in Resource}

    def enter(self, caller: str, *what: Resource) -> Callable[[], None]:
        """Count one of each of ``what`` for a caller; returns what undoes it.

        ``caller`` is a principal's name, or the address of an unknown one.

        Raises ResourceExhausted: Over the caller's limit or its fair share; nothing is counted.
        """
        for one in what:
            self._check(caller, one)
        for one in what:
            self._held[one][caller] += 1
        return partial(self._leave, caller, what)

    def _leave(self, caller: str, what: tuple[Resource, ...]) -> None:
        for one in what:
            self._held[one][caller] -= 1
            if not self._held[one][caller]:
                del self._held[one][caller]

    def _check(self, caller: str, what: Resource) -> None:
        held = self._held[what]
        own, used, total = held[caller], held.total(), getattr(self._total, what)
        if what is Resource.CALLS and self._calls and own >= self._calls:
            why = f"this caller has {own} calls under way, and may have {self._calls}"
        elif total and not has_place(total, used, own=own, callers=len(held) + (not own)):
            why = (
                f"the server has {used} {what} under way, {own} of this caller, and takes {total}; "
                "the last are for callers that have few"
            )
        else:
            return
        raise ResourceExhausted(why, reason=f"TOO_MANY_{what.name}", retry_after=RETRY_SECONDS)
