"""Where requests are prepared and finished: a few at a time, however many are under way."""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from typing import TypeVar

from acpc_server.errors import DeadlineExceeded
from acpc_server.scheduling.context import Priority, RequestContext

T = TypeVar("T")
MOST_SEATS = 4


class _Turn:
    """A thread's place in the line; its lock is unlocked when the seat is its own."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.lock.acquire()
        self.granted = False
        self.given_up = False

    def grant(self) -> None:
        self.granted = True
        self.lock.release()


class ConcurrencyLimiter:
    """Seats to work at, first come, first served, and given up while a request waits.

    Every array operation lets go of Python's interpreter lock and takes it again. Dozens of threads
    that do so at once lose much of their time to it; docs/performance.md has it by number of seats.

    Args:
        seats: Requests that may work at a time; half the processors, 1 to 4, when 0.
    """

    def __init__(self, seats: int = 0) -> None:
        self._free = seats or default_seats()
        self._taken = 0
        self._line: deque[_Turn] = deque()
        self._lock = threading.Lock()
        self._thread = threading.local()

    @property
    def busy(self) -> bool:
        """Whether a request is being worked on, and may soon need the device."""
        return self._taken > 0

    @contextmanager
    def slot(self, context: RequestContext) -> Iterator[None]:
        """Work on an interactive request; a job needs no seat, it would keep it too long.

        Raises:
            Cancelled, DeadlineExceeded: As the context says, once there is a seat.
        """
        if context.priority is Priority.JOB:
            yield
            return
        turn = _Turn()
        self._stand_in_line(turn)
        if not self._sit(turn, context.remaining()):
            raise DeadlineExceeded("the deadline passed while other requests were worked on")
        try:
            context.check()
            yield
        finally:
            self._rise()

    def result(self, future: Future[T], timeout: float | None) -> T:
        """The result of ``future``; a thread that is seated gives its seat up while it waits.

        Raises:
            TimeoutError: There is none in time; the thread is not seated any more.
            CancelledError: The future was cancelled.
        """
        if not self._seated:
            return future.result(timeout)
        turn = _Turn()
        # In line only once the result is there, lest a thread be woken just to wait again.
        future.add_done_callback(lambda _: self._stand_in_line(turn))
        self._rise()
        self._sit(turn, timeout)
        return future.result(0)

    @property
    def _seated(self) -> bool:
        return getattr(self._thread, "seated", False)

    def _stand_in_line(self, turn: _Turn) -> None:
        with self._lock:
            if turn.given_up:
                return
            if self._free:
                self._free -= 1
                self._taken += 1
                turn.grant()
            else:
                self._line.append(turn)

    def _sit(self, turn: _Turn, timeout: float | None) -> bool:
        """Wait for the seat; False, and out of the line, when it does not come in time."""
        if not turn.lock.acquire(timeout=-1 if timeout is None else max(0.0, timeout)):
            with self._lock:
                if not turn.granted:
                    turn.given_up = True
                    if turn in self._line:
                        self._line.remove(turn)
                    return False
        self._thread.seated = True
        return True

    def _rise(self) -> None:
        if not self._seated:
            return
        self._thread.seated = False
        with self._lock:
            if self._line:
                self._line.popleft().grant()
            else:
                self._free += 1
                self._taken -= 1


def default_seats() -> int:
    """Half the processors this process may use, 1 to 4: the rest is for the device and gRPC."""
    return max(1, min(MOST_SEATS, len(os.sched_getaffinity(0)) // 2))
