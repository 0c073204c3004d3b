"""Input and output of the asyncio client. Its twin is ``sync.py``."""

from __future__ import annotations

import asyncio
from collections.abc import (
    AsyncIterable,
    AsyncIterator,
    Callable,
    Iterable,
    Sequence,
)
from contextlib import suppress
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

import grpc
import grpc.aio
from google.protobuf.message import Message

from acpc_client.retries import hinted
from acpc_client.transport.base import GOODBYE_S, Feed, TransportBase
from acpc_client.transport.channel import Ending

if TYPE_CHECKING:
    from acpc_client.calls.methods import Rpc
    from acpc_client.calls.requests import Pair

Item = TypeVar("Item")
AsyncLock = asyncio.Lock
ENDING_S = 1.0  # a server that keeps a stream open after its last message is not waited for longer
AsyncPairs: TypeAlias = "Iterable[Pair] | AsyncIterable[Pair]"


class AsyncWire(TransportBase):
    """A transport whose calls are awaited."""

    def _open(self, options: Sequence[tuple[str, int | str]]) -> grpc.aio.Channel:
        if self.credentials is None:
            return grpc.aio.insecure_channel(self.target, options)
        return grpc.aio.secure_channel(self.target, self.credentials, options)

    async def rest(self, seconds: float) -> None:
        """Sleep before the next attempt."""
        await asyncio.sleep(seconds)

    async def aside(self, work: Callable[[], Item]) -> Item:
        """What ``work`` gives, which may block, in another thread."""
        return await asyncio.to_thread(work)

    async def stream(
        self, rpc: Rpc[Item], feed: Feed, pairs: AsyncPairs, timeout: float | None
    ) -> AsyncIterator[Item]:
        """The answers to a stream of pairs, in their order."""
        attempts = self.attempts(rpc, timeout)
        stream = self.call(rpc)(_messages(feed, pairs), timeout=attempts.remaining())
        ending = Ending(stream)
        try:
            async for answer in stream:
                self.contact.answered()
                yield rpc.read(answer)
            feed.check()
        except grpc.RpcError as raised:
            feed.check()
            raise hinted(self.error(await ending.behind(raised))) from None
        finally:
            stream.cancel()

    async def send(
        self, rpc: Rpc[Item], step: Callable[[], Message | None], timeout: float
    ) -> Item:
        """The answer to the messages that ``step`` makes, until None.

        Raises RpcError: As the server rejects them.
        """
        stream = self.call(rpc)(_stepped(step), timeout=timeout)
        ending = Ending(stream)
        try:
            return rpc.read(await stream)
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


async def _messages(feed: Feed, pairs: AsyncPairs) -> AsyncIterator[Message]:
    if not isinstance(pairs, AsyncIterable):
        for message in feed.messages(pairs):
            yield message
        return
    with feed.kept():
        async for pair in pairs:
            yield feed.encode(pair)


async def _stepped(step: Callable[[], Message | None]) -> AsyncIterator[Message]:
    while (message := await asyncio.to_thread(step)) is not None:
        yield message


class AsyncConversation:
    """A stream that is asked one message at a time; ``request_id`` names it in errors."""

    def __init__(
        self, transport: TransportBase, rpc: Rpc[Any], request_id: str, options: dict[str, Any]
    ) -> None:
        self._transport, self._request_id = transport, request_id
        self._stream = transport.call(rpc)(**options)
        self._ending = Ending(self._stream)

    async def exchange(self, request: Message, limit: float) -> Any:  # noqa: ANN401 - a message
        """Sends one message and waits for its answer; None: the server has ended the stream."""
        try:
            async with asyncio.timeout(limit):
                if not self._stream.done():  # else there is only a status left to read
                    await self._stream.write(request)
                answer = await self._stream.read()
        except TimeoutError:
            raise self._transport.overdue(limit, self._request_id) from None
        except grpc.RpcError as raised:
            ended = await self._ending.behind(raised)
            raise self._transport.error(ended, self._request_id) from None
        return None if answer is grpc.aio.EOF else answer

    async def close(self, turn: asyncio.Lock) -> None:
        """Says goodbye to the server; cancels the message that has its turn, if any."""
        if not turn.locked():
            # Every answer was read before the goodbye, so nothing is lost with an error here.
            with suppress(grpc.RpcError, asyncio.InvalidStateError, TimeoutError):
                async with asyncio.timeout(GOODBYE_S):
                    await self._stream.done_writing()
                    await self._stream.read()
        self.cancel()

    def cancel(self) -> None:
        """Ends the stream at once."""
        self._stream.cancel()
