"""Receives messages: so many at a time, and each within its time.

While a read is under way gRPC takes in up to a whole message; without one it takes no more than a
stream's window, 64 KiB. So each read takes a slot, which bounds the bytes of messages that are
being received. The last free slots are for callers that have few (:func:`has_place`). Where none is
free, a read that has had its slot for a while ends when a caller with fewer waits for it.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter

from acpc_server.errors import HostShortage, ResourceExhausted
from acpc_server.rpc.call import Call, ReadLimit
from acpc_server.scheduling import RETRY_SECONDS, has_place, memory_short


class Receiver:
    """Slots for messages under way, on one event loop.

    A read keeps its slot for ``grace`` seconds at least, and begins only while the host has
    ``memory`` bytes for each that is under way: twice the largest message.
    """

    def __init__(self, slots: int, *, grace: float = 1.0, memory: int = 0) -> None:
        self._slots = slots
        self._grace = grace
        self._memory = memory
        self._reads: dict[Call, float] = {}  # since when each has its slot, the oldest first
        self._line: dict[Call, asyncio.Future[None]] = {}
        self._timer: asyncio.TimerHandle | None = None

    async def read(self, call: Call, limit: ReadLimit) -> bytes | None:
        """Receive the call's next message; None when its caller has sent all.

        Raises DeadlineExceeded: It is late; ResourceExhausted: No slot was free in that time.
        Interrupted with ResourceExhausted when others wait.
        """
        turn = self._line[call] = asyncio.get_running_loop().create_future()
        self._hand_out()
        try:
            async with asyncio.timeout(limit.seconds):
                await turn
            return await self.listen(call, limit)
        except TimeoutError:
            raise _crowded() from None
        finally:
            self._line.pop(call, None)
            self._reads.pop(call, None)
            self._hand_out()

    async def listen(self, call: Call, limit: ReadLimit) -> bytes | None:
        """Receive the next message of an open stream, which may be silent without a slot."""
        if self._memory and (wrong := memory_short(self._memory * max(1, len(self._reads)))):
            raise HostShortage(f"the host is short of memory: {wrong}", retry_after=RETRY_SECONDS)
        try:
            async with asyncio.timeout(limit.seconds):
                return await call.receive()
        except TimeoutError:
            raise limit.passed() from None

    def _hand_out(self) -> None:
        """Give slots to those in line, first to who has fewest, of these to the newest.

        An attack's calls are soon old, and so is what its caller has given up.
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
            oldest.life.interrupt(_crowded())


def _crowded() -> ResourceExhausted:
    return ResourceExhausted(
        "others wait to send, and this message was not there in time; send it whole",
        reason="MESSAGE_CROWDED_OUT",
        retry_after=RETRY_SECONDS,
    )
