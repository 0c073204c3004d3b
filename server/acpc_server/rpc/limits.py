"""What callers may hold: calls, messages that are being read, bytes of those that were, threads.

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
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from contextvars import copy_context
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeAlias, TypeVar
from weakref import WeakValueDictionary

from acpc_server.errors import DeadlineExceeded, HostShortage, ResourceExhausted
from acpc_server.scheduling import RETRY_SECONDS, Turns, most_of_one

T = TypeVar("T")
# Returns the next message of a call, or what stands for their end.
Receive: TypeAlias = Callable[[], Awaitable[T]]
# Silence after which a stream is closed.
IDLE_SECONDS = 60.0
# For what is not asked about.
RESERVE_BYTES = 128 * 1024 * 1024


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

    async def read(self, caller: str, receive: Receive[T], limit: ReadLimit | None = None) -> T:
        """Receive the first message of a caller's call.

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

    async def listen(self, receive: Receive[T], limit: ReadLimit) -> T:
        """Receive the next message of an open stream, which may be silent without a slot."""
        try:
            async with asyncio.timeout(limit.seconds):
                return await self._received(receive)
        except TimeoutError:
            raise limit.error() from None

    async def _received(self, receive: Receive[T]) -> T:
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


class Workers:
    """Threads for what would keep an event loop, whose thread alone gives them work.

    Callers get threads in turn, and of the last ones each no more than its fair share.
    """

    def __init__(self, size: int) -> None:
        self._threads = ThreadPoolExecutor(size, thread_name_prefix="rpc")
        self._places = Places(size)
        self._line: Turns[tuple[Callable[[], Any], asyncio.Future[Any]]] = Turns()

    def run(self, caller: str, work: Callable[..., T], *args: Any) -> asyncio.Future[T]:  # noqa: ANN401
        """Call ``work`` in a thread, with the context variables of this one.

        A future that is cancelled does not stop its work, which runs in its turn, and whose error
        nobody hears of.
        """
        answer: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        self._line.add(caller, (partial(copy_context().run, work, *args), answer))
        self._dispatch()
        return answer

    def close(self) -> None:
        """End the threads once they are idle."""
        self._threads.shutdown(wait=False)

    def _dispatch(self) -> None:
        while (caller := self._line.next_caller(self._places.has_room)) is not None:
            self._places.take(caller)
            work, answer = self._line.take(caller)
            ended = partial(self._ended, caller, answer)
            self._threads.submit(work).add_done_callback(ended)

    def _ended(self, caller: str, answer: asyncio.Future[Any], done: Future[Any]) -> None:
        with suppress(RuntimeError):  # the loop is closed: nobody waits
            answer.get_loop().call_soon_threadsafe(self._settle, caller, answer, done)

    def _settle(self, caller: str, answer: asyncio.Future[Any], done: Future[Any]) -> None:
        self._places.leave(caller)
        self._dispatch()
        problem = done.exception()
        if answer.done():
            return
        if problem is None:
            answer.set_result(done.result())
        elif isinstance(problem, Exception):
            answer.set_exception(problem)
        else:  # SystemExit must end neither loop nor thread
            answer.set_exception(RuntimeError(f"a call raised {type(problem).__name__}"))


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
