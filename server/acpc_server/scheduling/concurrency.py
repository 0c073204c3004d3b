"""The concurrency limit: few requests are prepared and measured at a time."""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Iterator
from concurrent.futures import CancelledError, Future
from contextlib import contextmanager
from typing import TypeVar

from acpc_server.errors import Cancelled, DeadlineExceeded, ResourceExhausted
from acpc_server.scheduling.context import Priority, RequestContext
from acpc_server.scheduling.turns import Turns

T = TypeVar("T")
MAX_DEFAULT_SLOTS = 4


class _Waiter:
    """A request in line for a slot; its lock opens when the slot is granted."""

    def __init__(self, caller: str) -> None:
        self.caller = caller
        self.lock = threading.Lock()
        self.lock.acquire()
        self.granted = False
        self.gone = False

    def grant(self) -> None:
        self.granted = True
        self.lock.release()

    def is_granted(self, seconds: float) -> bool:
        """Whether the slot is granted within so many seconds; it is not taken yet."""
        granted = self.lock.acquire(timeout=max(0.0, seconds))
        if granted:
            self.lock.release()
        return granted


class ConcurrencyLimiter:
    """Slots for requests at work, which callers get in turn; released in a device call.

    Every array operation lets go of Python's interpreter lock and takes it again. Dozens of threads
    that do so at once lose much of their time to it; docs/performance.md has it by number of slots.

    Args:
        slots: Requests that may be at work at a time; half the processors, 1 to 4, when 0.
    """

    def __init__(self, slots: int = 0) -> None:
        self._free = slots or default_slots()
        self._taken = 0
        self._line: Turns[_Waiter] = Turns()
        self._lock = threading.Lock()

    @property
    def busy(self) -> bool:
        """Whether a request is at work, and may soon need the device."""
        return self._taken > 0

    @property
    def waiting(self) -> int:
        """Requests in line for a slot."""
        return len(self._line)

    @contextmanager
    def slot(self, context: RequestContext) -> Iterator[None]:
        """Work on an interactive request; a job needs no slot, it would keep it too long.

        Raises:
            Cancelled, DeadlineExceeded: As the context says, once there is a slot.
        """
        if context.priority is Priority.JOB:
            yield
            return
        waiter = _Waiter(context.caller)
        self._join(waiter)
        if not self._acquire(waiter, context):
            raise DeadlineExceeded("the deadline passed while other requests were worked on")
        try:
            context.check()
            yield
        finally:
            self._release(context)

    def result(self, future: Future[T], context: RequestContext, reserve: float = 0.0) -> T:
        """The result of a request's device call; its slot is another's while it waits.

        A call that has not begun ``reserve`` seconds before the deadline is withdrawn.

        A request that holds none takes one to wake up: of many that are answered at once, as those
        that share a call, few contend for the interpreter at a time.

        Raises:
            ResourceExhausted: The call was withdrawn.
            Cancelled, DeadlineExceeded: As the context says; or what the call raises.
        """
        held, withdrawn = context.holds_slot, False
        try:
            if context.priority is Priority.JOB:
                return future.result(context.remaining())
            waiter = _Waiter(context.caller)
            # In line only once the result is there, so that no thread wakes just to wait again.
            future.add_done_callback(lambda _: self._join(waiter))
            self._release(context)
            remaining = context.remaining()
            if reserve and remaining is not None:
                withdrawn = not waiter.is_granted(remaining - reserve) and future.cancel()
            self._acquire(waiter, context)
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
                self._release(context)

    def _join(self, waiter: _Waiter) -> None:
        with self._lock:
            if waiter.gone:
                return
            if self._free:
                self._free -= 1
                self._taken += 1
                waiter.grant()
            else:
                self._line.add(waiter.caller, waiter)

    def _acquire(self, waiter: _Waiter, context: RequestContext) -> bool:
        """Wait for the slot; False, and out of the line, when it does not come in time."""
        remaining = context.remaining()
        if not waiter.lock.acquire(timeout=-1 if remaining is None else max(0.0, remaining)):
            with self._lock:
                if not waiter.granted:
                    waiter.gone = True
                    with contextlib.suppress(ValueError):  # its result has not come yet
                        self._line.remove(waiter.caller, waiter)
                    return False
        context.holds_slot = True
        return True

    def _release(self, context: RequestContext) -> None:
        if not context.holds_slot:
            return
        context.holds_slot = False
        with self._lock:
            if self._line:
                self._line.take().grant()
            else:
                self._free += 1
                self._taken -= 1


def default_slots() -> int:
    """Half the processors this process may use, 1 to 4: the rest is for the device and gRPC."""
    return max(1, min(MAX_DEFAULT_SLOTS, len(os.sched_getaffinity(0)) // 2))
