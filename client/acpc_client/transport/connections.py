"""The connections of a client: one for few calls, more for many at a time."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import grpc
import grpc.aio

from acpc_client.calls import Method

# Calls under way on every connection when another one is opened.
BUSY_CALLS = 4


class Connection:
    """A channel, its stubs, and how many calls are under way on it."""

    def __init__(self, channel: object) -> None:
        self.channel = channel
        self.under_way = 0
        self._stubs: dict[object, Any] = {}
        self._lock = threading.Lock()

    def call(self, method: Method) -> Any:  # noqa: ANN401 - a multi-callable of either kind
        """The method on this channel; a call counts from its begin to its end."""
        if method.stub not in self._stubs:
            self._stubs[method.stub] = method.stub(self.channel)
        call = getattr(self._stubs[method.stub], method.name)

        def begun(*request: object, **options: object) -> Any:  # noqa: ANN401
            self._add(1)
            try:
                answer = call(*request, **options)
            except BaseException:
                self._add(-1)
                raise
            if isinstance(answer, grpc.aio.Call):
                answer.add_done_callback(lambda _: self._add(-1))
            elif not (isinstance(answer, grpc.Call) and answer.add_callback(lambda: self._add(-1))):
                self._add(-1)
            return answer

        return begun

    def _add(self, calls: int) -> None:
        with self._lock:
            self.under_way += calls


class Connections:
    """Opened as they are needed; safe to use from any thread.

    A connection stays with one process of its server, which may have several behind its port.

    Args:
        opened: Makes a channel, which shares no connection with the others when told so.
        most: How many there may be.
    """

    def __init__(self, opened: Callable[[bool], Any], most: int = 1) -> None:
        self._opened = opened
        self._most = most
        self._open: list[Connection] = []
        self._left: list[Connection] = []
        self._lock = threading.Lock()

    def least_busy(self) -> Connection:
        """The connection for the next call: an asyncio channel belongs to the loop that runs."""
        with self._lock:
            best = min(self._open, key=lambda one: one.under_way, default=None)
            if best is None or (best.under_way >= BUSY_CALLS and len(self._open) < self._most):
                best = Connection(self._opened(bool(self._open or self._left)))
                self._open.append(best)
            return best

    def renew(self) -> None:
        """Make further calls on new connections, which may reach another process."""
        with self._lock:
            # One without calls closes when it is forgotten.
            self._left = [one for one in self._left if one.under_way] + self._open
            self._open = []

    @property
    def channels(self) -> list[Any]:
        """Those that are open."""
        return [one.channel for one in (*self._left, *self._open)]
