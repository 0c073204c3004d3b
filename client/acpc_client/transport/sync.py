"""Input and output of the blocking client. Its twin is ``aio.py``."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

import grpc
from google.protobuf.message import Message

from acpc_client.retries import hinted
from acpc_client.transport.base import GOODBYE_S, Feed, TransportBase

if TYPE_CHECKING:
    from acpc_client.calls.methods import Rpc
    from acpc_client.calls.requests import Pair

Item = TypeVar("Item")
Lock = threading.Lock
Pairs: TypeAlias = "Iterable[Pair]"


class Wire(TransportBase):
    """A transport whose calls wait for their answers."""

    def _open(self, options: Sequence[tuple[str, int | str]]) -> grpc.Channel:
        if self.credentials is None:
            return grpc.insecure_channel(self.target, options)
        return grpc.secure_channel(self.target, self.credentials, options)

    def rest(self, seconds: float) -> None:
        """Sleep before the next attempt, while channels that have lost their server connect again.

        A blocking channel of gRPC goes on connecting while it is watched or called; otherwise it
        looks every five seconds, once a step, and with TLS it may give up before the last one
        (grpc/grpc#38290).
        """
        watched = [] if self._closed else [*self._connection.channels]
        for channel in watched:
            channel.subscribe(_ignore)
        try:
            time.sleep(seconds)
        finally:
            for channel in watched:
                channel.unsubscribe(_ignore)

    def aside(self, work: Callable[[], Item]) -> Item:
        """What ``work`` gives."""
        return work()

    def stream(
        self, rpc: Rpc[Item], feed: Feed, pairs: Pairs, timeout: float | None
    ) -> Iterator[Item]:
        """The answers to a stream of pairs, in their order."""
        attempts = self.attempts(rpc, timeout)
        stream = self.call(rpc)(feed.messages(pairs), timeout=attempts.remaining())
        try:
            for answer in stream:
                self.contact.answered()
                yield rpc.read(answer)
            feed.check()
        except grpc.RpcError as raised:
            feed.check()
            raise hinted(self.error(raised)) from None
        finally:
            stream.cancel()

    def send(self, rpc: Rpc[Item], step: Callable[[], Message | None], timeout: float) -> Item:
        """The answer to the messages that ``step`` makes, until None.

        Raises RpcError: As the server rejects them.
        """
        return rpc.read(self.call(rpc)(iter(step, None), timeout=timeout))

    @staticmethod
    def finish(stream: grpc.Call) -> None:
        """Do nothing: a blocking stream that is cancelled has ended."""


def _ignore(_: grpc.ChannelConnectivity) -> None:
    """Watches a channel."""


class Conversation:
    """A stream that is asked one message at a time; ``request_id`` names it in errors."""

    def __init__(
        self, transport: TransportBase, rpc: Rpc[Any], request_id: str, options: dict[str, Any]
    ) -> None:
        self._transport, self._request_id = transport, request_id
        self._requests: SimpleQueue[Message | None] = SimpleQueue()
        self._stream = transport.call(rpc)(iter(self._requests.get, None), **options)

    def exchange(self, request: Message, limit: float) -> Any:  # noqa: ANN401 - a message
        """Sends one message and waits for its answer; None: the server has ended the stream."""
        late, ended, answer = threading.Event(), None, None
        with self._alarm(limit, late):
            try:
                self._requests.put(request)
                answer = next(self._stream, None)
            except grpc.RpcError as raised:
                ended = raised
        if late.is_set():
            raise self._transport.overdue(limit, self._request_id)
        if ended is not None:
            raise self._transport.error(ended, self._request_id)
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
