"""What a call passes until the device computes for it, and the line in which requests wait.

In this order; those that do not wait reject at once with RESOURCE_EXHAUSTED and RetryInfo:

 1. gRPC closes connections beyond a number (``options.channel_options``).
 2. :class:`CallerLimits` counts what a caller holds.
 3. :meth:`WorkerPool.check` and :meth:`AdmissionController.check` reject a unary call that would
    find no thread, or be late, before its message is read.
 4. ``rpc.Receiver`` waits: so many messages are received at a time.
 5. :class:`WorkerPool` waits: callers get its threads in turn.
 6. :meth:`AdmissionController.request` counts the request, and rejects one that would be late.
 7. :class:`Slots` of memory wait, for up to half of the request's time.
 8. :class:`ConcurrencyLimiter` waits: few requests are prepared at a time. Dear views are drawn in
    another, piece by piece in turn.
 9. :meth:`AdmissionController.chunk` rejects device work when too much is queued.
10. :class:`BatchQueue` waits: callers get device calls in turn, jobs last.

A request that waits at one of these holds nothing that comes later in the list, so no two requests
wait for each other: the slot of 8 is given up for the other, and during 9 and 10, and taken again
with the answer.
"""

from __future__ import annotations

import os
import threading
from collections import OrderedDict, deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import CancelledError, Future
from contextlib import contextmanager
from itertools import chain, islice, zip_longest
from typing import Generic, TypeVar

from acpc_server.errors import AcpcError, Cancelled, DeadlineExceeded, ResourceExhausted
from acpc_server.scheduling.callers import RETRY_SECONDS
from acpc_server.scheduling.context import Priority, RequestContext

T = TypeVar("T")
MAX_DEFAULT_SLOTS = 4
# A request may wait for memory for this share of the time that it has left.
WAIT_SHARE = 0.5


class Turns(Generic[T]):
    """Round robin between callers; first come, first served among what is one caller's.

    However many one caller has in line, it has one turn in a round. Callers with nothing in line
    cost nothing. Not safe to use from several threads at once.
    """

    def __init__(self) -> None:
        self._lines: OrderedDict[str, deque[T]] = OrderedDict()  # in the order of their turns
        self._latest = ""
        self._length = 0

    def __len__(self) -> int:
        return self._length

    def __iter__(self) -> Iterator[T]:
        """Iterate in the order in which items will be taken if nothing else comes."""
        return _in_rounds(self._lines.values())

    def ahead_of(self, caller: str) -> list[T]:
        """List what will be taken before an item that ``caller`` puts in line now."""
        turns = 1 + len(self._lines.get(caller, ()))
        return list(_in_rounds(list(islice(line, turns)) for line in self._lines.values()))

    def add(self, caller: str, item: T) -> None:
        """Put an item in line."""
        if caller not in self._lines:
            self._lines[caller] = deque()
            if self._latest in self._lines:  # whoever had a turn just now comes after a newcomer
                self._lines.move_to_end(self._latest)
        self._lines[caller].append(item)
        self._length += 1

    def next_caller(self, among: Callable[[str], bool] = lambda _: True) -> str | None:
        """Return whose turn it is among some callers; None when none of them is in line."""
        return next(filter(among, self._lines), None)

    def take(self, caller: str | None = None) -> T:
        """Take the first item of ``caller``, or of whose turn it is; its turn is over."""
        caller = next(iter(self._lines)) if caller is None else caller
        item = self._lines[caller][0]
        self._lines.move_to_end(caller)
        self._latest = caller
        self.remove(caller, item)
        return item

    def remove(self, caller: str, item: T) -> None:
        """Take an item out of line, whoever's turn it is; ValueError when it is not in it."""
        line = self._lines.get(caller, deque())
        line.remove(item)
        self._length -= 1
        if not line:
            del self._lines[caller]


def _in_rounds(lines: Iterable[Iterable[T]]) -> Iterator[T]:
    wrapped = ([(item,) for item in line] for line in lines)
    return chain.from_iterable(chain.from_iterable(zip_longest(*wrapped, fillvalue=())))


class Slots:
    """Slots that interactive requests get in turn, caller by caller; jobs need none.

    ``held`` names what a slot gives, for the error.
    """

    def __init__(self, count: int, held: str) -> None:
        self.count = self._free = count
        self._held = held
        self._line: Turns[Future[None]] = Turns()
        self._lock = threading.Lock()

    @property
    def busy(self) -> bool:
        """Whether any slot is taken."""
        return self._free < self.count

    @property
    def waiting(self) -> int:
        """Requests in line, those included that have given up since the last slot came back."""
        return len(self._line)

    @contextmanager
    def slot(self, context: RequestContext) -> Iterator[None]:
        """Hold a slot; take one of memory before one to work, and only one of each.

        Raises Cancelled, DeadlineExceeded: As the context says; ResourceExhausted: Half of the
        request's time has passed in line for memory.
        """
        if context.priority is Priority.JOB:
            yield
            return
        self._enter(context)
        try:
            context.check()
            yield
        finally:
            self._leave(context)

    def _enter(self, context: RequestContext) -> None:
        waiter: Future[None] = Future()
        self._join(context.caller, waiter)
        context.wait_on(waiter)
        if not _granted(waiter, self._patience(context)) and waiter.cancel():
            raise self._late()
        if waiter.cancelled():
            raise Cancelled("the request was cancelled")
        self._entered(context)

    def _patience(self, context: RequestContext) -> float | None:
        """Return for how many seconds a request may wait; None for any time."""
        remaining = context.remaining()
        return None if remaining is None else WAIT_SHARE * remaining

    def _late(self) -> AcpcError:
        return ResourceExhausted(
            f"{self.count} requests hold {self._held}, as many as may, and none of them "
            "has ended in half of this one's time; allow more time or try again later",
            reason="MEMORY_BUSY",
            retry_after=RETRY_SECONDS,
        )

    def _entered(self, context: RequestContext) -> None:
        """Note that the request has its slot."""

    def _leave(self, context: RequestContext) -> None:
        self._hand_on()

    def _join(self, caller: str, waiter: Future[None]) -> None:
        with self._lock:
            if self._free and _grant(waiter):
                self._free -= 1
            elif not waiter.done():
                self._line.add(caller, waiter)

    def _hand_on(self) -> None:
        """Give a slot to the next in line, past those that have given up."""
        with self._lock:
            while self._line:
                if _grant(self._line.take()):
                    return
            self._free += 1


class ConcurrencyLimiter(Slots):
    """Slots for requests at work, by default half the processors, 1 to 4; given up in device calls.

    Every array operation lets go of Python's interpreter lock and takes it again. Dozens of threads
    that do so at once lose much of their time to it; docs/performance.md has it by number of slots.
    """

    def __init__(self, slots: int = 0) -> None:
        usual = max(1, min(MAX_DEFAULT_SLOTS, len(os.sched_getaffinity(0)) // 2))
        super().__init__(slots or usual, "a slot")

    @contextmanager
    def given_up(self, context: RequestContext) -> Iterator[None]:
        """Give a slot up for the block, and take one again unless the block raises."""
        held = context.holds_slot
        self._leave(context)
        yield
        if held:
            self._enter(context)

    def take_turns(self, context: RequestContext) -> None:
        """Let whoever waits have the slot first; raises as :meth:`slot`."""
        context.check()
        if self._line and context.holds_slot:  # a job holds none
            self._leave(context)
            self._enter(context)

    def result(self, future: Future[T], context: RequestContext, reserve: float = 0.0) -> T:
        """Wait for a request's device call; its slot is another's meanwhile.

        A call that has not begun ``reserve`` seconds before the deadline is withdrawn, with
        ResourceExhausted. A request that holds no slot takes one to wake up: of many that are
        answered at once, as those that share a call, few contend for the interpreter at a time.
        """
        held, withdrawn = context.holds_slot, False
        try:
            if context.priority is Priority.JOB:
                return future.result(context.remaining())
            waiter: Future[None] = Future()
            # In line only once the result is there, so that no thread wakes just to wait again.
            future.add_done_callback(lambda _: self._join(context.caller, waiter))
            self._leave(context)
            remaining = context.remaining()
            if reserve and remaining is not None:
                withdrawn = not _granted(waiter, remaining - reserve) and future.cancel()
            if _granted(waiter, context.remaining()) or not waiter.cancel():
                self._entered(context)
            return future.result(0)
        except CancelledError:
            if withdrawn and not context.cancelled:
                raise ResourceExhausted(
                    f"the device is busy and {reserve:.3f} s before the deadline it had not begun "
                    "with this request, which would be late; allow more time or try again later",
                    reason="DEADLINE_CANNOT_BE_MET",
                    retry_after=reserve,
                ) from None
            raise Cancelled("the request was cancelled") from None
        except TimeoutError:
            if not future.cancel() and future.done():  # ended at the last moment, or by this error
                return future.result()
            raise DeadlineExceeded("the deadline passed while waiting for the device") from None
        finally:
            if not held:
                self._leave(context)

    def _patience(self, context: RequestContext) -> float | None:
        return context.remaining()

    def _late(self) -> AcpcError:
        return DeadlineExceeded("the deadline passed while other requests were worked on")

    def _entered(self, context: RequestContext) -> None:
        context.holds_slot = True

    def _leave(self, context: RequestContext) -> None:
        if context.holds_slot:
            context.holds_slot = False
            self._hand_on()


def _grant(waiter: Future[None]) -> bool:
    """Give a slot to a waiter, unless it has given up."""
    if granted := waiter.set_running_or_notify_cancel():
        waiter.set_result(None)
    return granted


def _granted(waiter: Future[None], seconds: float | None) -> bool:
    """Wait until a waiter has its slot or is cancelled; False when that takes longer."""
    try:
        waiter.result(None if seconds is None else max(0.0, seconds))
    except CancelledError:
        pass
    except TimeoutError:
        return False
    return True
