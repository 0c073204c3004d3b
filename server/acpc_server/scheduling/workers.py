"""The threads that serve RPCs, behind the event loop that receives them."""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any, TypeVar

from acpc_server.errors import ResourceExhausted
from acpc_server.scheduling.callers import RETRY_SECONDS, has_place

T = TypeVar("T")


class WorkerPool:
    """Threads for an event loop; but for their own work, only its thread may use them.

    Args:
        size: Number of threads.
        max_backlog: Calls that may wait for a thread while all are taken. Of the last places each
            caller gets its fair share.
    """

    def __init__(self, size: int, max_backlog: int = 16) -> None:
        self._threads = ThreadPoolExecutor(size, thread_name_prefix="rpc")
        self._places = size + max_backlog
        self._pending: Counter[str] = Counter()
        self._aside = asyncio.Semaphore(max(1, size // 4))
        self._done: deque[tuple[str, asyncio.Future[Any], object, Exception | None]] = deque()
        self._waking = False

    def check(self, caller: str) -> None:
        """Raise ResourceExhausted when every thread is taken and as many calls wait as may."""
        own = self._pending[caller]
        callers = len(self._pending) + (not own)
        if not has_place(self._places, self._pending.total(), own=own, callers=callers):
            raise ResourceExhausted(
                "every thread of the server is taken",
                reason="SERVER_BUSY",
                retry_after=RETRY_SECONDS,
            )

    def run(self, caller: str, work: Callable[..., T], *args: Any) -> asyncio.Future[T]:  # noqa: ANN401
        """Have a thread call ``work``.

        Errors arrive without their traceback: ``work`` logs what should not happen. A future that
        is cancelled does not stop its thread, which counts until it is done.
        """
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[T] = loop.create_future()
        self._pending[caller] += 1
        self._threads.submit(self._work, caller, loop, answer, work, args)
        return answer

    async def run_aside(self, caller: str, work: Callable[..., T], *args: Any) -> T:  # noqa: ANN401
        """The same for what is never rejected: it waits until it takes one of a quarter of them.

        It is done in its turn although whoever waits is cancelled.
        """

        async def in_turn() -> T:
            async with self._aside:
                return await self.run(caller, work, *args)

        return await asyncio.shield(asyncio.ensure_future(in_turn()))

    def close(self) -> None:
        """Let the threads end once they are idle."""
        self._threads.shutdown(wait=False)

    def _work(
        self,
        caller: str,
        loop: asyncio.AbstractEventLoop,
        answer: asyncio.Future[T],
        work: Callable[..., T],
        args: tuple[Any, ...],
    ) -> None:
        result: T | None = None
        problem: Exception | None = None
        try:
            result = work(*args)
        except Exception as error:  # noqa: BLE001 - handed to whoever waits
            problem = error
        except BaseException as error:  # noqa: BLE001 - SystemExit must end neither loop nor thread
            problem = RuntimeError(f"a call raised {type(error).__name__}")
        if problem is not None:
            # Its frames lead to the answer, and would keep the call until garbage is collected.
            problem.__context__ = problem.__cause__ = None
            problem.with_traceback(None)
        self._done.append((caller, answer, result, problem))
        if not self._waking:  # one system call for all that are done by then
            self._waking = True
            with suppress(RuntimeError):  # the loop is closed: nobody waits
                loop.call_soon_threadsafe(self._drain)

    def _drain(self) -> None:
        self._waking = False  # first: whoever is done from now on wakes the loop again
        while self._done:
            self._ended(*self._done.popleft())

    def _ended(
        self, caller: str, answer: asyncio.Future[Any], result: object, problem: Exception | None
    ) -> None:
        self._pending[caller] -= 1
        if not self._pending[caller]:
            del self._pending[caller]
        if answer.done():
            return
        if problem is None:
            answer.set_result(result)
        else:
            answer.set_exception(problem)
