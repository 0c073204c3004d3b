"""Channels of the blocking client. Its twin is ``aio/wire.py``."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, TypeAlias, TypeVar

import grpc
from google.protobuf.message import Message

from acpc_client.calls import Method
from acpc_client.inputs import Feed, Pair
from acpc_client.transport import Transport

Item = TypeVar("Item")
Lock = threading.Lock
Pairs: TypeAlias = Iterable[Pair]


class Maker:
    """Makes messages; those of a stream gRPC makes in a thread of its own."""

    def make(self, work: Callable[[], Item]) -> Item:
        """What ``work`` gives."""
        return work()

    def close(self) -> None:
        """Do nothing."""


class SyncWire(Transport):
    """Channels whose calls wait for their answers."""

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
        watched = [] if self._closed else [*self._connections.channels]
        for channel in watched:
            channel.subscribe(_ignore)
        try:
            time.sleep(seconds)
        finally:
            for channel in watched:
                channel.unsubscribe(_ignore)

    def stream(
        self, method: Method, feed: Feed[Item], pairs: Pairs, timeout: float | None
    ) -> Iterator[Item]:
        """The answers to a stream of pairs, in their order."""
        attempts = self.attempts(method, timeout)
        stream = self.rpc(method)(feed.messages(pairs), timeout=attempts.remaining())
        try:
            for answer in stream:
                self.contact.answered()
                yield feed.read(answer)
            feed.check()
        except grpc.RpcError as raised:
            feed.check()
            raise self.policy.hinted(self.error(raised)) from None
        finally:
            stream.cancel()

    def send(
        self, method: Method, step: Callable[[], Message | None], _: Maker, timeout: float
    ) -> Any:  # noqa: ANN401 - a message
        """The answer to the messages that ``step`` makes, until None.

        Raises RpcError: As the server rejects them.
        """
        return self.rpc(method)(iter(step, None), timeout=timeout)

    @staticmethod
    def finish(stream: grpc.Call) -> None:
        """Do nothing: a blocking stream that is cancelled has ended."""


def _ignore(_: grpc.ChannelConnectivity) -> None:
    """Watches a channel."""
