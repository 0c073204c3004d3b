"""Receives messages: how many at a time, for how long, and whose when many want to send.

While a read is under way gRPC takes in up to a whole message; without one it takes no more than a
stream's window, 64 KiB. So each read takes a slot, which bounds the messages being received. A read
ends when its time is over, and sooner when others wait for its slot: the oldest goes first, and a
caller that has more than its share of the slots, or has kept others waiting, yields much sooner. A
slot that is free goes to the caller that has fewest; the last ones are for callers that have few.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections import Counter, OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass, field

from acpc_server.errors import HostShortage, ResourceExhausted
from acpc_server.rpc.call import Call, ReadLimit
from acpc_server.scheduling import RETRY_SECONDS, has_place, memory_short

# Calls that may wait for a slot; of more, those that have waited longest are rejected.
MAX_LINE = 1000
# Callers whose conduct is remembered.
MAX_KNOWN = 4096
GOOD, UNKNOWN, SLOW = 2, 1, 0
# For so many seconds a look at the host's memory counts, less what has come since.
LOOK_SECONDS = 0.05
# Share of the grace of a read whose caller has too many, or has kept others waiting.
SHORT = 0.05


@dataclass(eq=False, slots=True)
class _Read:
    call: Call
    limit: ReadLimit
    since: float = field(default_factory=time.monotonic)
    turn: asyncio.Future[None] | None = None


class Receiver:
    """Slots for messages under way, on one event loop.

    A read keeps its slot for ``grace`` seconds while others wait for one, and begins only while the
    host has ``memory`` bytes for each that is under way: twice the largest message.
    """

    def __init__(self, slots: int, *, grace: float = 1.0, memory: int = 0) -> None:
        self._slots = slots
        self._has: Counter[str] = Counter()  # slots by caller
        self._grace = grace
        self._memory = memory
        self._looked = -math.inf  # when, how much there was, and how much of it has been taken
        self._found = self._taken = 0
        self._reads: dict[_Read, None] = {}
        self._silent: dict[_Read, None] = {}
        self._line: dict[_Read, None] = {}
        self._conduct: OrderedDict[str, int] = OrderedDict()
        self._timer: asyncio.TimerHandle | None = None

    async def read(self, call: Call, limit: ReadLimit) -> bytes | None:
        """Receive the call's next message; None when its caller has sent all.

        Interrupted with DeadlineExceeded when it is late, ResourceExhausted when others wait.
        """
        read = _Read(call, limit)
        if self._may(call.caller):
            self._has[call.caller] += 1
        else:
            await self._slot(read)
        self._reads[read] = None
        try:
            self._check_memory()
            data = await self._receive(call)
        finally:
            del self._reads[read]
            self._release(call.caller)
        if self._conduct.get(call.caller) != GOOD:
            self._judge(call.caller, GOOD)
        return data

    async def listen(self, call: Call, limit: ReadLimit) -> bytes | None:
        """Receive the next message of an open stream, which may be silent without a slot."""
        read = _Read(call, limit)
        self._silent[read] = None
        try:
            self._check_memory()
            return await self._receive(call)
        finally:
            del self._silent[read]

    def sweep(self, now: float) -> Iterator[None]:
        """End the reads whose time is over, one at a step, so that others may go in between."""
        for read in [r for r in (*self._reads, *self._silent) if now - r.since >= r.limit.seconds]:
            if read in self._reads or read in self._silent:
                self._judge(read.call.caller, SLOW)
                read.call.life.interrupt(read.limit.passed())
                yield
        for read in [r for r in self._line if now - r.since >= r.limit.seconds]:
            if read in self._line:
                read.call.life.interrupt(_crowded())
                yield

    async def _receive(self, call: Call) -> bytes | None:
        data = await call.receive()
        self._taken += 2 * len(data or b"")
        return data

    def _check_memory(self) -> None:
        if not self._memory:
            return
        now, wanted = time.monotonic(), self._memory * len(self._reads)
        if now < self._looked + LOOK_SECONDS and self._taken + wanted <= self._found:
            return
        for found in (wanted + self._memory, wanted):  # one more, if it can be had
            if not (wrong := memory_short(found)):
                self._looked, self._found, self._taken = now, found, 0
                return
        self._looked = -math.inf
        raise HostShortage(f"the host is short of memory: {wrong}", retry_after=RETRY_SECONDS)

    async def _slot(self, read: _Read) -> None:
        if len(self._line) >= MAX_LINE:
            next(iter(self._line)).call.life.interrupt(_crowded())
        read.turn = asyncio.get_running_loop().create_future()
        self._line[read] = None
        self._press()
        try:
            await read.turn
        except asyncio.CancelledError:
            if read.turn.done() and not read.turn.cancelled():
                self._release(read.call.caller)
            raise
        finally:
            self._line.pop(read, None)
        read.since = time.monotonic()

    def _may(self, caller: str) -> bool:
        own, callers = self._has[caller], len(self._has)
        return has_place(self._slots, self._has.total(), own=own, callers=callers + (not own))

    def _release(self, caller: str) -> None:
        """Give up a slot of a caller; free ones go to the best of those in line that may have one.

        Of those who have shown nothing yet the newest goes first: an attack's calls are soon old.
        """
        self._has[caller] -= 1
        self._has = +self._has
        waiting = [read for read in self._line if read.turn is not None and not read.turn.done()]
        while waiting and self._has.total() < self._slots:
            has = {read.call.caller: self._has[read.call.caller] for read in waiting}
            fewest = min(has.values())
            if not self._may(next(caller for caller in has if has[caller] == fewest)):
                break
            best = [read for read in waiting if has[read.call.caller] == fewest]
            conduct = max(map(self._conduct_of, best))
            best = [read for read in best if self._conduct_of(read) == conduct]
            chosen = best[0 if conduct == GOOD else -1]
            waiting.remove(chosen)
            del self._line[chosen]
            self._has[chosen.call.caller] += 1
            assert chosen.turn is not None  # noqa: S101 - it is in line
            chosen.turn.set_result(None)
        if waiting:
            self._press()

    def _press(self) -> None:
        """End reads that have kept their slots too long while others wait.

        A caller with more than its share of the slots has a short grace, and a whole one else. It
        yields to itself, and to who has fewer slots: not to the crowd of one that has more.
        """
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if not self._line:
            return
        # The loop goes on where no read is under way: slots are being handed over.
        has = self._has.copy()
        waiting = {read.call.caller for read in self._line}
        share = max(1, self._slots // len(waiting | has.keys()))
        # Where one is free, who waits has its share, and has to wait for its own.
        wanted = len(self._line) if has.total() >= self._slots else 0
        fewest = min(has[caller] for caller in waiting)
        for read in list(self._reads):  # the oldest first
            caller = read.call.caller
            others = bool(waiting - {caller})
            crowds = others and (has[caller] > share or self._conduct_of(read) == SLOW)
            held = time.monotonic() - read.since
            yields = wanted and (caller in waiting or has[caller] > fewest)
            if yields and held >= self._grace * (SHORT if crowds else 1.0):
                wanted -= 1
                has[caller] -= 1
                self._judge(caller, SLOW)
                read.call.life.interrupt(_crowded())
        loop = asyncio.get_running_loop()
        self._timer = loop.call_later(max(self._grace * SHORT / 2, 0.005), self._press)

    def _conduct_of(self, read: _Read) -> int:
        return self._conduct.get(read.call.caller, UNKNOWN)

    def _judge(self, caller: str, conduct: int) -> None:
        self._conduct[caller] = conduct
        self._conduct.move_to_end(caller)
        if len(self._conduct) > MAX_KNOWN:
            self._conduct.popitem(last=False)


def _crowded() -> ResourceExhausted:
    return ResourceExhausted(
        "others wait to send, and this message was not there in time; send it whole",
        reason="MESSAGE_CROWDED_OUT",
        retry_after=RETRY_SECONDS,
    )
