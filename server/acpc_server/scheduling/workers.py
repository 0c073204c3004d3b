"""The threads that serve RPCs, and those that read streams under an idle limit."""

from __future__ import annotations

import threading
from collections.abc import Callable, Generator, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import ParamSpec, TypeVar

from acpc_server.errors import DeadlineExceeded

P = ParamSpec("P")
T = TypeVar("T")
SPARE_THREADS = 4


class WorkerPool(ThreadPoolExecutor):
    """A thread pool that knows when it is saturated.

    Args:
        max_backlog: Calls that may wait for a thread while all are taken.

    Attributes:
        spare: Threads beside it for what must not wait behind the calls that keep all of them busy:
            rejections and health checks.
    """

    def __init__(self, size: int, max_backlog: int = 16) -> None:
        super().__init__(size, thread_name_prefix="rpc")
        self.size = size
        self.spare = ThreadPoolExecutor(SPARE_THREADS, thread_name_prefix="spare")
        self._max_backlog = max_backlog
        self._pending = 0
        self._lock = threading.Lock()

    @property
    def saturated(self) -> bool:
        """Whether every thread is taken and as many calls wait as may."""
        return self._pending >= self.size + self._max_backlog

    def submit(self, function: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        """Queue a call."""
        with self._lock:
            self._pending += 1
        future = super().submit(function, *args, **kwargs)
        future.add_done_callback(self._ended)
        return future

    def _ended(self, _future: Future[T]) -> None:
        with self._lock:
            self._pending -= 1


def read_until_idle(
    messages: Iterator[T], max_idle_seconds: float, *, hint: str, reason: str
) -> Generator[T, None, None]:
    """The messages of a stream as they come; ends a stream whose caller falls silent.

    gRPC waits for a message without end, so a thread of its own waits and this one looks at the
    clock. That thread ends with the call.
    """
    reader = ThreadPoolExecutor(1, thread_name_prefix="stream-reader")
    try:
        while True:
            coming = reader.submit(next, messages, None)
            try:
                message = coming.result(max_idle_seconds)
            except TimeoutError:
                raise DeadlineExceeded(
                    f"no message for {max_idle_seconds:g} seconds; {hint}", reason=reason
                ) from None
            if message is None:
                return
            yield message
    finally:
        reader.shutdown(wait=False)
