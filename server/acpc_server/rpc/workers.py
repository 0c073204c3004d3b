"""Threads for what would keep the event loop: reading a record, loading weights, large requests."""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from contextvars import copy_context
from typing import Any, NamedTuple, TypeVar

from acpc_server.scheduling import Turns, has_place

T = TypeVar("T")


class _Task(NamedTuple):
    caller: str
    answer: asyncio.Future[Any]
    run: Callable[..., Any]
    work: Callable[..., Any]
    args: tuple[Any, ...]


class Workers:
    """Threads for an event loop; but for their own work, only its thread may use them.

    Callers get threads in turn, and of the last ones each no more than its fair share.
    """

    def __init__(self, size: int) -> None:
        self._threads = ThreadPoolExecutor(size, thread_name_prefix="rpc")
        self._size = size
        self._running: Counter[str] = Counter()
        self._line: Turns[_Task] = Turns()
        self._done: deque[tuple[_Task, object, Exception | None]] = deque()

    def run(self, caller: str, work: Callable[..., T], *args: Any) -> asyncio.Future[T]:  # noqa: ANN401
        """Call ``work`` in a thread, with the context variables of this one.

        A future that is cancelled does not stop its work, which runs in its turn, and whose error
        nobody hears of.
        """
        answer: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        self._line.add(caller, _Task(caller, answer, copy_context().run, work, args))
        self._dispatch()
        return answer

    def close(self) -> None:
        """End the threads once they are idle."""
        self._threads.shutdown(wait=False)

    def _dispatch(self) -> None:
        while self._running.total() < self._size:
            caller = self._line.next_caller(self._may_run)
            if caller is None:
                return
            self._running[caller] += 1
            self._threads.submit(self._work, self._line.take(caller))

    def _may_run(self, caller: str) -> bool:
        own, callers = self._running[caller], len(self._running)
        return has_place(self._size, self._running.total(), own=own, callers=callers + (not own))

    def _work(self, task: _Task) -> None:
        result: object = None
        problem: Exception | None = None
        try:
            result = task.run(task.work, *task.args)
        except Exception as error:  # noqa: BLE001 - handed to whoever waits
            problem = error
        except BaseException as error:  # noqa: BLE001 - SystemExit must end neither loop nor thread
            problem = RuntimeError(f"a call raised {type(error).__name__}")
        self._done.append((task, result, problem))
        with suppress(RuntimeError):  # the loop is closed: nobody waits
            task.answer.get_loop().call_soon_threadsafe(self._drain)

    def _drain(self) -> None:
        while self._done:
            task, result, problem = self._done.popleft()
            self._running[task.caller] -= 1
            if not self._running[task.caller]:
                del self._running[task.caller]
            if task.answer.done():
                continue
            if problem is None:
                task.answer.set_result(result)
            else:
                task.answer.set_exception(problem)
        self._dispatch()
