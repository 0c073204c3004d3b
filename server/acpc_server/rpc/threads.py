"""The threads that serve RPCs, and how many calls wait for one."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")


class RpcThreads(ThreadPoolExecutor):
    """A pool that knows its backlog.

    Args:
        size: Number of threads.
    """

    def __init__(self, size: int) -> None:
        super().__init__(size, thread_name_prefix="rpc")
        self.size = size
        self._backlog = 0
        self._lock = threading.Lock()

    @property
    def backlog(self) -> int:
        """Calls that no thread has taken up yet."""
        return self._backlog

    def submit(self, function: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        """Queue a call."""

        def taken_up() -> T:
            with self._lock:
                self._backlog -= 1
            return function(*args, **kwargs)

        with self._lock:
            self._backlog += 1
        return super().submit(taken_up)
