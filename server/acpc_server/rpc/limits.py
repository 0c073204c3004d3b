"""What callers may hold: calls in flight, messages that are being read, bytes of those that were.

While a read is under way gRPC takes in up to a whole message; without one it takes no more than a
stream's window, 64 KiB. So each read takes a slot, which bounds the bytes of messages that are
being received. Open streams, which may be silent, need none: there are as few as their largest
messages have room for together.
"""

from __future__ import annotations

import asyncio
import mmap
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias
from weakref import WeakValueDictionary

from acpc_server.errors import DeadlineExceeded, HostShortage, ResourceExhausted
from acpc_server.scheduling import RETRY_SECONDS, most_of_one

# For what is not asked about.
RESERVE_BYTES = 128 * 1024 * 1024


# The next message of a call; None after the last.
Receive: TypeAlias = Callable[[], Awaitable[bytes | None]]


@dataclass(frozen=True)
class ReadLimit:
    """How long a message may take from when the server is ready for it, and the error then."""

    seconds: float
    hint: str = "send the whole message at once"
    reason: str = "MESSAGE_LATE"

    def error(self) -> DeadlineExceeded:
        """The error of a message that is late."""
        problem = f"no message for {self.seconds:g} seconds; {self.hint}"
        return DeadlineExceeded(problem, reason=self.reason)


class Places:
    """Places that callers hold, one of them at most ``each``: what leaves the others theirs."""

    def __init__(self, total: int) -> None:
        self.total, self.each, self.used = total, most_of_one(total), 0
        self.of: Counter[str] = Counter()

    def has_room(self, caller: str) -> bool:
        """Whether a caller gets one more."""
        return self.used < self.total and self.of[caller] < self.each

    def take(self, caller: str) -> None:
        """Give a caller one, whether or not there is room."""
        self.used += 1
        self.of[caller] += 1

    def leave(self, caller: str) -> None:
        """Take one back."""
        self.used -= 1
        self.of[caller] -= 1
        if not self.of[caller]:
            del self.of[caller]


class Limits:
    """Limits of one event loop's calls.

    Args:
        places: What the server gives in all, by what it is: ``calls`` above all. A limit that is
            reached is RESOURCE_EXHAUSTED with the reason TOO_MANY_CALLS and so on.
        slots: Messages being received at a time, of one caller at most half as many.
        message_bytes: What a message may take; while it is received twice as much.
        held_bytes: What the messages of all calls under way may take before no other is read.
        limit: Of the time that a message may take.
        grace: Seconds that a read keeps its slot while another caller waits for one.
    """

    def __init__(
        self,
        places: Mapping[str, int],
        *,
        slots: int = 4,
        message_bytes: int = 0,
        held_bytes: int = 2**40,
        limit: ReadLimit = ReadLimit(10.0),
        grace: float = 1.0,
    ) -> None:
        self.limit = limit
        self.held_bytes = 0
        self._places = {name: Places(total) for name, total in places.items()}
        self._message_bytes, self._most_bytes = message_bytes, held_bytes
        self._grace = grace
        self._slots, self._each = asyncio.Semaphore(slots), max(1, slots // 2)
        self._own = WeakValueDictionary[str, asyncio.Semaphore]()  # the slots of each caller
        # When each read ends where others wait, the oldest first.
        self._reads: dict[asyncio.Timeout, float] = {}

    def enter(self, caller: str, what: Sequence[str]) -> None:
        """Count one of each of ``what`` that has a limit for a caller.

        ``caller`` is a principal's name, or the address of an unknown one.

        Raises ResourceExhausted: Over the caller's limit or the server's; nothing is counted.
        """
        counted = [(name, self._places[name]) for name in what if name in self._places]
        for name, places in counted:
            if not places.has_room(caller):
                raise ResourceExhausted(
                    f"the server has {places.used} {name} under way, {places.of[caller]} of this "
                    f"caller, and takes {places.total}, {places.each} of one caller",
                    reason=f"TOO_MANY_{name.upper()}",
                    retry_after=RETRY_SECONDS,
                )
        for _, places in counted:
            places.take(caller)

    def leave(self, caller: str, what: Sequence[str]) -> None:
        """Undo an :meth:`enter` that did not raise."""
        for name in what:
            if name in self._places:
                self._places[name].leave(caller)

    async def read(
        self, caller: str, receive: Receive, limit: ReadLimit | None = None
    ) -> bytes | None:
        """Receive the first message of a caller's call; None when it has sent all.

        Raises DeadlineExceeded: It is late; ResourceExhausted: No slot was free in that time, the
        message was not whole after a while and others wait, or those of other calls fill memory.
        """
        limit = limit or self.limit
        own = self._own.setdefault(caller, asyncio.Semaphore(self._each))
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(limit.seconds) as ends, own:
                if self._slots.locked():  # the oldest, if none is about to end, makes room
                    oldest = next(iter(self._reads), None)
                    if oldest is not None and not oldest.expired():
                        oldest.reschedule(self._reads.pop(oldest))
                async with self._slots:
                    self._reads[ends] = loop.time() + self._grace
                    ends.reschedule(loop.time() + limit.seconds)
                    return await self._received(receive)
        except TimeoutError:
            if ends in self._reads:
                raise limit.error() from None
            raise ResourceExhausted(
                "others wait to send, and this message was not there in time; send it whole",
                reason="MESSAGE_CROWDED_OUT",
                retry_after=RETRY_SECONDS,
            ) from None
        finally:
            self._reads.pop(ends, None)

    async def listen(self, receive: Receive, limit: ReadLimit) -> bytes | None:
        """Receive the next message of an open stream, which may be silent without a slot."""
        try:
            async with asyncio.timeout(limit.seconds):
                return await self._received(receive)
        except TimeoutError:
            raise limit.error() from None

    async def _received(self, receive: Receive) -> bytes | None:
        if self.held_bytes > self._most_bytes:
            raise ResourceExhausted(
                f"messages of {self.held_bytes} bytes are being worked on, over the limit of "
                f"{self._most_bytes}",
                reason="MEMORY_BUSY",
                retry_after=RETRY_SECONDS,
            )
        if wrong := memory_short(2 * self._message_bytes * max(1, len(self._reads))):
            problem = f"the host is short of memory: {wrong}"
            raise HostShortage(problem, retry_after=RETRY_SECONDS)
        return await receive()


def memory_short(wanted: int = 0) -> str:
    """Return what is wrong when so many bytes, and a reserve, cannot be had; '' when they can.

    Maps address space and touches none of it: gRPC ends the process where it gets no memory.
    """
    wanted += RESERVE_BYTES
    try:
        mmap.mmap(-1, wanted).close()
    except (OSError, MemoryError):
        return f"{wanted // 2**20} MiB of memory cannot be had"
    return ""
