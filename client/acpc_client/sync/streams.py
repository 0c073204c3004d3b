"""Streams of the blocking client. Its twin is ``aio/streams.py``."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from queue import SimpleQueue

import grpc
from acpc.v1 import diagnostic_service_pb2 as pb

from acpc_client.calls import diagnostics
from acpc_client.sync.transport import SyncTransport
from acpc_client.transport import GOODBYE_S


class PlanStream:
    """One stream of a planning session."""

    def __init__(
        self, transport: SyncTransport, request_id: str, options: dict[str, object]
    ) -> None:
        self._transport, self._request_id = transport, request_id
        self._requests: SimpleQueue[pb.PlanRequest | None] = SimpleQueue()
        self._stream = transport.rpc(diagnostics.PLAN)(iter(self._requests.get, None), **options)

    def exchange(self, request: pb.PlanRequest, limit: float) -> pb.PlanResponse | None:
        """Sends one message and waits for its answer; None: the server has ended the stream."""
        error = self._transport.overdue(limit, self._request_id)
        late = threading.Event()
        with self._alarm(limit, late):
            try:
                self._requests.put(request)
                answer: pb.PlanResponse | None = next(self._stream, None)
            except grpc.RpcError as raised:
                ended = self._transport.error(raised, self._request_id)
                raise error if late.is_set() else ended from None
        if late.is_set():
            raise error
        return answer

    @contextmanager
    def _alarm(self, seconds: float, late: threading.Event) -> Iterator[None]:
        """Ends the stream after a while: a blocking read has no deadline of its own."""

        def expire() -> None:
            late.set()
            self._stream.cancel()

        timer = threading.Timer(seconds, expire)
        timer.daemon = True
        timer.start()
        try:
            yield
        finally:
            timer.cancel()

    def close(self, turn: threading.Lock) -> None:
        """Says goodbye to the server; cancels the message that has its turn, if any."""
        if not turn.acquire(blocking=False):
            self.cancel()
            return
        try:
            self._requests.put(None)
            # Every answer was read before the goodbye, so nothing is lost with an error here.
            with self._alarm(GOODBYE_S, threading.Event()), suppress(grpc.RpcError):
                next(self._stream, None)
        finally:
            turn.release()

    def cancel(self) -> None:
        """Ends the stream at once."""
        self._requests.put(None)
        self._stream.cancel()
