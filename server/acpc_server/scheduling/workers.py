"""The threads that serve RPCs, and whether there are enough."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")


class WorkerPool(ThreadPoolExecutor):
    """A pool that knows when it is overrun.

    Args:
        size: Number of threads.
        max_backlog: Calls that may wait for a thread while all are taken.
    """

    def __init__(self, size: int, max_backlog: int = 16) -> None:
        super().__init__(size, thread_name_prefix="rpc")
        self.size = size
        self._max_backlog = max_backlog
        self._pending = 0
        self._lock = threading.Lock()

    @property
    def overrun(self) -> bool:
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
