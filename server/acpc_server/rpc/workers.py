"""Threads for what would keep the event loop: reading a record, loading weights, large requests."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from contextvars import copy_context
from functools import partial
from typing import Any, TypeVar

from acpc_server.rpc.limits import Places
from acpc_server.scheduling import Turns

T = TypeVar("T")


class Workers:
    """Threads for an event loop; but for their own work, only its thread may use them.

    Callers get threads in turn, and of the last ones each no more than its fair share.
    """

    def __init__(self, size: int) -> None:
        self._threads = ThreadPoolExecutor(size, thread_name_prefix="rpc")
        self._places = Places(size)
        self._line: Turns[tuple[Callable[[], Any], asyncio.Future[Any]]] = Turns()

    def run(self, caller: str, work: Callable[..., T], *args: Any) -> asyncio.Future[T]:  # noqa: ANN401
        """Call ``work`` in a thread, with the context variables of this one.

        A future that is cancelled does not stop its work, which runs in its turn, and whose error
        nobody hears of.
        """
        answer: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        self._line.add(caller, (partial(copy_context().run, work, *args), answer))
        self._dispatch()
        return answer

    def close(self) -> None:
        """End the threads once they are idle."""
        self._threads.shutdown(wait=False)

    def _dispatch(self) -> None:
        while (caller := self._line.next_caller(self._places.has_room)) is not None:
            self._places.take(caller)
            work, answer = self._line.take(caller)
            ended = partial(self._ended, caller, answer)
            self._threads.submit(work).add_done_callback(ended)

    def _ended(self, caller: str, answer: asyncio.Future[Any], done: Future[Any]) -> None:
        with suppress(RuntimeError):  # the loop is closed: nobody waits
            answer.get_loop().call_soon_threadsafe(self._settle, caller, answer, done)

    def _settle(self, caller: str, answer: asyncio.Future[Any], done: Future[Any]) -> None:
        self._places.leave(caller)
        self._dispatch()
        problem = done.exception()
        if answer.done():
            return
        if problem is None:
            answer.set_result(done.result())
        elif isinstance(problem, Exception):
            answer.set_exception(problem)
        else:  # SystemExit must end neither loop nor thread
            answer.set_exception(RuntimeError(f"a call raised {type(problem).__name__}"))
