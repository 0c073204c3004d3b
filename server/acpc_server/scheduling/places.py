"""A few places for requests that each need much memory; callers get them in turn."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import CancelledError, Future
from contextlib import contextmanager

from acpc_server.errors import Cancelled, ResourceExhausted
from acpc_server.scheduling.callers import RETRY_SECONDS
from acpc_server.scheduling.context import Priority, RequestContext
from acpc_server.scheduling.turns import Turns

# A request may wait for a place for this share of the time that it has left.
WAIT_SHARE = 0.5


class Places:
    """So many requests at a time hold what ``what`` names; jobs, few by themselves, need no place.

    A request waits with nothing in its hands, so take a place before a slot, and only one.
    """

    def __init__(self, count: int, what: str) -> None:
        self.count = count
        self._what = what
        self._taken = 0
        self._line: Turns[Future[None]] = Turns()
        self._lock = threading.Lock()

    @property
    def waiting(self) -> int:
        """Requests in line."""
        return len(self._line)

    @contextmanager
    def place(self, context: RequestContext) -> Iterator[None]:
        """A place, for as long as the block takes.

        Raises:
            Cancelled: The request was cancelled in line.
            ResourceExhausted: Half of its time has passed in line.
        """
        if context.priority is Priority.JOB:
            yield
            return
        waiter: Future[None] = Future()
        with self._lock:
            if self._taken < self.count:
                self._taken += 1
                waiter.set_result(None)
            else:
                self._line.add(context.caller, waiter)
        self._wait(waiter, context)
        try:
            yield
        finally:
            self._release()

    def _wait(self, waiter: Future[None], context: RequestContext) -> None:
        remaining = context.remaining()
        context.wait_on(waiter)
        try:
            waiter.result(None if remaining is None else max(0.0, WAIT_SHARE * remaining))
        except CancelledError:
            raise Cancelled("the request was cancelled") from None
        except TimeoutError:
            if waiter.cancel():
                raise ResourceExhausted(
                    f"{self.count} requests hold {self._what}, as many as may, and none of them "
                    "has ended in half of this one's time; allow more time or try again later",
                    reason="MEMORY_BUSY",
                    retry_after=RETRY_SECONDS,
                ) from None

    def _release(self) -> None:
        """Hand the place on; those in line that have given up are passed over."""
        with self._lock:
            while self._line:
                waiter = self._line.take()
                if waiter.set_running_or_notify_cancel():
                    waiter.set_result(None)
                    return
            self._taken -= 1
