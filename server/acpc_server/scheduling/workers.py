"""The threads that serve RPCs, behind the event loop that receives them."""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any, NamedTuple, TypeVar

from acpc_server.errors import ResourceExhausted
from acpc_server.scheduling.callers import RETRY_SECONDS, has_place
from acpc_server.scheduling.gate import Turns

T = TypeVar("T")


class _Task(NamedTuple):
    caller: str
    answer: asyncio.Future[Any]
    work: Callable[..., Any]
    args: tuple[Any, ...]


class WorkerPool:
    """Threads for an event loop; but for their own work, only its thread may use them.

    Callers get threads in turn, and of the last ones each no more than its fair share. At most
    ``max_backlog`` calls wait for a thread.
    """

    def __init__(self, size: int, max_backlog: int = 16) -> None:
        self._threads = ThreadPoolExecutor(size, thread_name_prefix="rpc")
        self._size = size
        self._places = size + max_backlog
        self._pending: Counter[str] = Counter()  # in line or in a thread
        self._running: Counter[str] = Counter()
        self._line: Turns[_Task] = Turns()
        self._aside = asyncio.Semaphore(max(1, size // 4))
        self._done: deque[tuple[_Task, object, Exception | None]] = deque()
        self._waking = False

    def check(self, caller: str) -> None:
        """Raise ResourceExhausted when every thread is taken and as many calls wait as may.

        Never for a caller's first call, unless all calls under way are first ones.
        """
        own, callers = self._pending[caller], len(self._pending)
        if not own and callers < self._places:
            return
        if not has_place(self._places, self._pending.total(), own=own, callers=callers + (not own)):
            raise ResourceExhausted(
                "every thread of the server is taken",
                reason="SERVER_BUSY",
                retry_after=RETRY_SECONDS,
            )

    def run(self, caller: str, work: Callable[..., T], *args: Any) -> asyncio.Future[T]:  # noqa: ANN401
        """Call ``work`` in a thread.

        Errors arrive without their traceback: ``work`` logs what should not happen. A future that
        is cancelled does not stop its thread, which counts until it is done.
        """
        answer: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        self._pending[caller] += 1
        self._line.add(caller, _Task(caller, answer, work, args))
        self._dispatch()
        return answer

    async def run_aside(self, caller: str, work: Callable[..., T], *args: Any) -> T:  # noqa: ANN401
        """Call ``work`` in one of a quarter of the threads, and so reject nothing.

        It runs in its turn although whoever waits is cancelled.
        """

        async def in_turn() -> T:
            async with self._aside:
                return await self.run(caller, work, *args)

        return await asyncio.shield(asyncio.ensure_future(in_turn()))

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
            result = task.work(*task.args)
        except Exception as error:  # noqa: BLE001 - handed to whoever waits
            problem = error
        except BaseException as error:  # noqa: BLE001 - SystemExit must end neither loop nor thread
            problem = RuntimeError(f"a call raised {type(error).__name__}")
        if problem is not None:
            # Their frames lead to the answer, and would keep the call until garbage is collected.
            for one in (problem.__context__, problem.__cause__, problem):
                if one is not None:
                    one.with_traceback(None)
            problem.__context__ = problem.__cause__ = None
        self._done.append((task, result, problem))
        if not self._waking:  # one system call for all that are done by then
            self._waking = True
            with suppress(RuntimeError):  # the loop is closed: nobody waits
                task.answer.get_loop().call_soon_threadsafe(self._drain)

    def _drain(self) -> None:
        self._waking = False  # first: whoever is done from now on wakes the loop again
        while self._done:
            task, result, problem = self._done.popleft()
            for counted in (self._pending, self._running):
                counted[task.caller] -= 1
                if not counted[task.caller]:
                    del counted[task.caller]
            if task.answer.done():
                continue
            if problem is None:
                task.answer.set_result(result)
            else:
                task.answer.set_exception(problem)
        self._dispatch()
