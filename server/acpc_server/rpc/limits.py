"""What callers may hold: calls in flight, messages that are being read, bytes of those that were.

While a read is under way gRPC takes in up to a whole message; without one it takes no more than a
stream's window, 64 KiB. So each read takes a slot, which bounds the bytes of messages that are
being received. Open streams, which may be silent, need none: there are as few as their largest
messages have room for together.
"""

from __future__ import annotations

import asyncio
import mmap
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from acpc_server.errors import AcpcError, DeadlineExceeded, HostShortage, ResourceExhausted
from acpc_server.scheduling import RETRY_SECONDS, has_place

# For what is not asked about: gRPC ends the process by a signal where it gets no memory.
RESERVE_BYTES = 128 * 1024 * 1024
# A look for free memory holds for so long, and for no more messages than it was for.
LOOK_SECONDS = 0.02


class Read(Protocol):
    """A call whose next message is to be read."""

    caller: str

    async def receive(self) -> bytes | None:
        """The next message; None after the last."""

    def interrupt(self, error: AcpcError) -> None:
        """End it with an error."""


@dataclass(frozen=True)
class ReadLimit:
    """How long a message may take from when the server is ready for it, and the error then."""

    seconds: float
    hint: str = "send the whole message at once"
    reason: str = "MESSAGE_LATE"


class Places:
    """Places that callers hold; the last are for callers that have few (:func:`has_place`)."""

    def __init__(self, total: int) -> None:
        self.total, self.used = total, 0
        self.of: Counter[str] = Counter()

    def has_room(self, caller: str) -> bool:
        """Whether a caller gets one more."""
        own = self.of[caller]
        return has_place(self.total, self.used, own=own, callers=len(self.of) + (not own))

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
        per_caller: Calls that one caller may have under way; 0: no limit but its fair share.
        slots: Messages being received at a time.
        message_bytes: What a message may take; while it is received twice as much.
        held_bytes: What the messages of all calls under way may take before no other is read.
        limit: Of the time that a message may take.
        grace: Seconds that a read keeps its slot at least.
    """

    def __init__(
        self,
        places: Mapping[str, int],
        *,
        per_caller: int = 0,
        slots: int = 4,
        message_bytes: int = 0,
        held_bytes: int = 2**40,
        limit: ReadLimit = ReadLimit(10.0),
        grace: float = 1.0,
    ) -> None:
        self.limit = limit
        self.held_bytes = 0
        self._places = {name: Places(total) for name, total in places.items()}
        self._per_caller = per_caller
        self._slots = Places(slots)
        self._message_bytes = message_bytes
        self._most_bytes = held_bytes
        self._grace = grace
        self._reads: dict[Read, float] = {}  # since when each has its slot, the oldest first
        self._line: dict[Read, asyncio.Future[None]] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._look, self._looked_for = 0.0, 0  # when it was, and for how many messages

    def enter(self, caller: str, what: Sequence[str]) -> None:
        """Count one of each of ``what`` that has a limit for a caller.

        ``caller`` is a principal's name, or the address of an unknown one.

        Raises ResourceExhausted: Over the caller's limit or its fair share; nothing is counted.
        """
        for name in what:
            if (places := self._places.get(name)) is None:
                continue
            own, why = places.of[caller], ""
            if name == "calls" and self._per_caller and own >= self._per_caller:
                why = f"this caller has {own} calls under way, and may have {self._per_caller}"
            elif not places.has_room(caller):
                why = (
                    f"the server has {places.used} {name} under way, {own} of this caller, and "
                    f"takes {places.total}; the last are for callers that have few"
                )
            if why:
                reason = f"TOO_MANY_{name.upper()}"
                raise ResourceExhausted(why, reason=reason, retry_after=RETRY_SECONDS)
        for name in what:
            if name in self._places:
                self._places[name].take(caller)

    def leave(self, caller: str, what: Sequence[str]) -> None:
        """Undo an :meth:`enter` that did not raise."""
        for name in what:
            if name in self._places:
                self._places[name].leave(caller)

    async def read(self, call: Read, limit: ReadLimit | None = None) -> bytes | None:
        """Receive the call's first message; None when its caller has sent all.

        Raises DeadlineExceeded: It is late; ResourceExhausted: No slot was free in that time, or
        the messages of other calls fill the memory for them. Interrupted with ResourceExhausted
        when others wait.
        """
        limit = limit or self.limit
        try:
            if self._line or self._slots.used >= self._slots.total // 2:
                turn = self._line[call] = asyncio.get_running_loop().create_future()
                self._hand_out()
                async with asyncio.timeout(limit.seconds):
                    await turn
            else:  # while half of the slots are free, nobody has to be asked
                self._begin(call)
            return await self.listen(call, limit)
        except TimeoutError:
            raise _crowded() from None
        finally:
            self._line.pop(call, None)
            if self._reads.pop(call, None) is not None:
                self._slots.leave(call.caller)
            if self._line:
                self._hand_out()

    async def listen(self, call: Read, limit: ReadLimit) -> bytes | None:
        """Receive the next message of an open stream, which may be silent without a slot."""
        if self.held_bytes > self._most_bytes:
            raise ResourceExhausted(
                f"messages of {self.held_bytes} bytes are being worked on, over the limit of "
                f"{self._most_bytes}",
                reason="MEMORY_BUSY",
                retry_after=RETRY_SECONDS,
            )
        messages, now = max(1, self._slots.used), time.monotonic()
        known = messages <= self._looked_for and now < self._look + LOOK_SECONDS
        if self._message_bytes and not known:
            if wrong := memory_short(2 * self._message_bytes * messages):
                problem = f"the host is short of memory: {wrong}"
                raise HostShortage(problem, retry_after=RETRY_SECONDS)
            self._look, self._looked_for = now, messages
        try:
            async with asyncio.timeout(limit.seconds):
                return await call.receive()
        except TimeoutError:
            problem = f"no message for {limit.seconds:g} seconds; {limit.hint}"
            raise DeadlineExceeded(problem, reason=limit.reason) from None

    def _begin(self, call: Read) -> None:
        self._reads[call] = time.monotonic()
        self._slots.take(call.caller)

    def _hand_out(self) -> None:
        """Give slots to those in line, first to who has fewest, of these to the newest.

        An attack's calls are soon old, and so is what its caller has given up. Where no slot is
        free, a read that has had its own for a while ends when a caller with fewer waits.
        """
        slots = self._slots
        while self._line:
            call = min(reversed(self._line), key=lambda one: slots.of[one.caller])
            if slots.has_room(call.caller):
                turn = self._line.pop(call)
                if not turn.done():
                    self._begin(call)
                    turn.set_result(None)
                continue
            crowd = max(slots.of, key=slots.of.__getitem__)
            if slots.used < slots.total or slots.of[call.caller] >= slots.of[crowd]:
                return
            oldest = next(read for read in self._reads if read.caller == crowd)
            if (left := self._reads[oldest] + self._grace - time.monotonic()) > 0:
                if self._timer is not None:
                    self._timer.cancel()
                self._timer = asyncio.get_running_loop().call_later(left, self._hand_out)
                return
            del self._reads[oldest]
            slots.leave(crowd)
            oldest.interrupt(_crowded())


def _crowded() -> ResourceExhausted:
    return ResourceExhausted(
        "others wait to send, and this message was not there in time; send it whole",
        reason="MESSAGE_CROWDED_OUT",
        retry_after=RETRY_SECONDS,
    )


def memory_short(wanted: int = 0) -> str:
    """Return what is wrong when so many bytes, and a reserve, cannot be had; '' when they can.

    Maps address space and touches none of it.
    """
    wanted += RESERVE_BYTES
    try:
        mmap.mmap(-1, wanted).close()
    except (OSError, MemoryError):
        return f"{wanted // 2**20} MiB of memory cannot be had"
    return ""
