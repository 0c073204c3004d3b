"""What a call of grpc.aio ended with, where gRPC says it late or wrongly."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from contextlib import suppress
from typing import Any, TypeVar

import grpc
import grpc.aio

T = TypeVar("T")

LOST = "Internal error from Core"
_STATUS_S = 1.0


def settled(reading: Coroutine[object, Any, T]) -> T:
    """What a call that has ended knows of its end; gRPC offers it to be awaited only."""
    try:
        reading.send(None)
    except StopIteration as known:
        value: T = known.value
        return value
    reading.close()
    raise RuntimeError("the call has not ended")


class Ending:
    """The status a stream of requests ended with, as the server gave it.

    A write that meets a stream the server has just ended puts INTERNAL in the place of the
    server's status (https://github.com/grpc/grpc/issues/36066), so each is noted when it comes.
    """

    def __init__(self, stream: grpc.aio.Call) -> None:
        self._told: asyncio.Future[grpc.RpcError] = asyncio.get_running_loop().create_future()
        stream.add_done_callback(self._note)

    def _note(self, stream: grpc.aio.Call) -> None:
        code, details = settled(stream.code()), settled(stream.details())
        if not self._told.done() and code is not grpc.StatusCode.OK and details != LOST:
            trailing = settled(stream.trailing_metadata())
            self._told.set_result(
                grpc.aio.AioRpcError(code, grpc.aio.Metadata(), trailing, details)
            )

    async def behind(self, raised: grpc.RpcError) -> grpc.RpcError:
        """The server's status where gRPC has raised its own instead, else what was raised."""
        if raised.details() == LOST:
            with suppress(TimeoutError):
                return await asyncio.wait_for(asyncio.shield(self._told), _STATUS_S)
        return raised
