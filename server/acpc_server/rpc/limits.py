"""What callers may hold: calls in flight, messages that are being read, bytes of those that were.

While a read is under way gRPC takes in up to a whole message; without one it takes no more than a
stream's window, 64 KiB. So each read takes a slot, which bounds the bytes of messages that are
being received. Open streams, which may be silent, need none: there are as few as their largest
messages have room for together. The last places are for callers that have few (:func:`has_place`).
"""

from __future__ import annotations

import asyncio
import mmap
import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Protocol

from acpc_server.errors import AcpcError, DeadlineExceeded, HostShortage, ResourceExhausted
from acpc_server.scheduling import RETRY_SECONDS, has_place

# For what is not asked about: gRPC ends the process by a signal where it gets no memory.
RESERVE_BYTES = 128 * 1024 * 1024


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

    def passed(self) -> DeadlineExceeded:
        """Make the error of a message that is late."""
        return DeadlineExceeded(
            f"no message for {self.seconds:g} seconds; {self.hint}", reason=self.reason
        )


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
        self._places = places
        self._per_caller = per_caller
        self._held: dict[str, Counter[str]] = {name: Counter() for name in places}
        self._slots = slots
        self._message_bytes = message_bytes
        self._most_bytes = held_bytes
        self._grace = grace
        self._reads: dict[Read, float] = {}  # since when each has its slot, the oldest first
        self._line: dict[Read, asyncio.Future[None]] = {}
        self._timer: asyncio.TimerHandle | None = None

    def enter(self, caller: str, *what: str) -> Callable[..., None]:
        """Count one of each of ``what`` for a caller; returns what undoes it, called with anything.

        ``caller`` is a principal's name, or the address of an unknown one.

        Raises ResourceExhausted: Over the caller's limit or its fair share; nothing is counted.
        """
        counted = [name for name in what if name in self._places]
        for name in counted:
            held, total = self._held[name], self._places[name]
            own, used = held[caller], held.total()
            why = ""
            if name == "calls" and self._per_caller and own >= self._per_caller:
                why = f"this caller has {own} calls under way, and may have {self._per_caller}"
            elif not has_place(total, used, own=own, callers=len(held) + (not own)):
                why = (
                    f"the server has {used} {name} under way, {own} of this caller, and takes "
                    f"{total}; the last are for callers that have few"
                )
            if why:
                reason = f"TOO_MANY_{name.upper()}"
                raise ResourceExhausted(why, reason=reason, retry_after=RETRY_SECONDS)
        for name in counted:
            self._held[name][caller] += 1

        def leave(*_: object) -> None:
            for name in counted:
                self._held[name][caller] -= 1
                if not self._held[name][caller]:
                    del self._held[name][caller]

        return leave

    async def read(self, call: Read, limit: ReadLimit | None = None) -> bytes | None:
        """Receive the call's first message; None when its caller has sent all.

        Raises DeadlineExceeded: It is late; ResourceExhausted: No slot was free in that time, or
        the messages of other calls fill the memory for them. Interrupted with ResourceExhausted
        when others wait.
        """
        limit = limit or self.limit
        try:
            if self._line or len(self._reads) >= self._slots // 2:
                turn = self._line[call] = asyncio.get_running_loop().create_future()
                self._hand_out()
                if not turn.done():
                    async with asyncio.timeout(limit.seconds):
                        await turn
            else:  # while half of the slots are free, nobody has to be asked
                self._reads[call] = time.monotonic()
            return await self.listen(call, limit)
        except TimeoutError:
            raise _crowded() from None
        finally:
            self._line.pop(call, None)
            self._reads.pop(call, None)
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
        wanted = 2 * self._message_bytes * max(1, len(self._reads))
        if self._message_bytes and (wrong := memory_short(wanted)):
            raise HostShortage(f"the host is short of memory: {wrong}", retry_after=RETRY_SECONDS)
        try:
            async with asyncio.timeout(limit.seconds):
                return await call.receive()
        except TimeoutError:
            raise limit.passed() from None

    def _hand_out(self) -> None:
        """Give slots to those in line, first to who has fewest, of these to the newest.

        An attack's calls are soon old, and so is what its caller has given up. Where no slot is
        free, a read that has had its own for a while ends when a caller with fewer waits.
        """
        while self._line:
            has = Counter(read.caller for read in self._reads)
            call = min(reversed(self._line), key=lambda one: has[one.caller])
            own, callers = has[call.caller], len({*has, call.caller})
            if has_place(self._slots, has.total(), own=own, callers=callers):
                turn = self._line.pop(call)
                if not turn.done():
                    self._reads[call] = time.monotonic()
                    turn.set_result(None)
                continue
            crowd = max(has, key=has.__getitem__)
            if has.total() < self._slots or own >= has[crowd]:
                return
            oldest = next(read for read in self._reads if read.caller == crowd)
            if (left := self._reads[oldest] + self._grace - time.monotonic()) > 0:
                if self._timer is not None:
                    self._timer.cancel()
                self._timer = asyncio.get_running_loop().call_later(left, self._hand_out)
                return
            del self._reads[oldest]
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
