"""Channels of the asyncio client. Its twin is ``sync/wire.py``."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterable, AsyncIterator, Callable, Iterable, Sequence
from concurrent.futures import Future
from contextlib import suppress
from queue import SimpleQueue
from typing import Any, TypeAlias, TypeVar

import grpc
import grpc.aio
from google.protobuf.message import Message

from acpc_client.calls import Method
from acpc_client.inputs import Feed, Pair
from acpc_client.transport import Ending, Transport

Item = TypeVar("Item")
AsyncLock = asyncio.Lock
ENDING_S = 1.0  # a server that keeps a stream open after its last message is not waited for longer
Pairs: TypeAlias = Iterable[Pair] | AsyncIterable[Pair]


class AsyncMaker:
    """A thread that makes messages: what gives their content may block, and belong to a thread.

    A daemon: content that never comes keeps no program from its end.
    """

    def __init__(self) -> None:
        self._asked: SimpleQueue[tuple[Callable[[], Any], Future[Any]] | None] = SimpleQueue()
        threading.Thread(target=self._run, name="acpc messages", daemon=True).start()

    async def make(self, work: Callable[[], Item]) -> Item:
        """What ``work`` gives."""
        made: Future[Item] = Future()
        self._asked.put((work, made))
        return await asyncio.wrap_future(made)

    def close(self) -> None:
        """Ends the thread, once the work under way is done."""
        self._asked.put(None)

    def _run(self) -> None:
        while asked := self._asked.get():
            work, made = asked
            if made.set_running_or_notify_cancel():
                try:
                    made.set_result(work())
                except BaseException as error:  # noqa: BLE001 - raised where it is awaited
                    made.set_exception(error)


class AsyncWire(Transport):
    """Channels whose calls are awaited."""

    def _open(self, options: Sequence[tuple[str, int | str]]) -> grpc.aio.Channel:
        if self.credentials is None:
            return grpc.aio.insecure_channel(self.target, options)
        return grpc.aio.secure_channel(self.target, self.credentials, options)

    async def rest(self, seconds: float) -> None:
        """Sleep before the next attempt."""
        await asyncio.sleep(seconds)

    async def stream(
        self, method: Method, feed: Feed[Item], pairs: Pairs, timeout: float | None
    ) -> AsyncIterator[Item]:
        """The answers to a stream of pairs, in their order."""
        attempts = self.attempts(method, timeout)
        stream = self.rpc(method)(_messages(feed, pairs), timeout=attempts.remaining())
        ending = Ending(stream)
        try:
            async for answer in stream:
                self.contact.answered()
                yield feed.read(answer)
            feed.check()
        except grpc.RpcError as raised:
            feed.check()
            raise self.policy.hinted(self.error(await ending.behind(raised))) from None
        finally:
            stream.cancel()

    async def send(
        self,
        method: Method,
        step: Callable[[], Message | None],
        maker: AsyncMaker,
        timeout: float,
    ) -> Any:  # noqa: ANN401 - a message
        """The answer to the messages that ``step`` makes, until None.

        Raises RpcError: As the server rejects them.
        """
        stream = self.rpc(method)(_stepped(step, maker), timeout=timeout)
        ending = Ending(stream)
        try:
            return await stream
        except grpc.RpcError as raised:
            raise await ending.behind(raised) from None
        finally:
            stream.cancel()

    @staticmethod
    async def finish(stream: Any) -> None:  # noqa: ANN401 - gRPC has no type for it
        """Wait until a stream has ended whose last message was read.

        One that is cancelled ends later in gRPC: the next event loop of this process would be
        handed its end, and log a traceback, since the loop that it belongs to is closed.
        """
        with suppress(TimeoutError):
            async with asyncio.timeout(ENDING_S):
                await stream.code()


async def _messages(feed: Feed[Item], pairs: Pairs) -> AsyncIterator[Message]:
    if not isinstance(pairs, AsyncIterable):
        for message in feed.messages(pairs):
            yield message
        return
    with feed.kept():
        async for pair in pairs:
            yield feed.encode(pair)


async def _stepped(step: Callable[[], Message | None], maker: AsyncMaker) -> AsyncIterator[Message]:
    while (message := await maker.make(step)) is not None:
        yield message
