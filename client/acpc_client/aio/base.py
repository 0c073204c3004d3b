"""I/O of the asyncio client: its channel, and one call with its retries."""

from __future__ import annotations

import asyncio
from typing import Self, TypeVar

import grpc
import grpc.aio

from acpc_client.calls import Call
from acpc_client.errors import from_rpc_error
from acpc_client.transport import ClientBase, channel

Answer = TypeVar("Answer")


class AsyncBase(ClientBase):
    """A client whose answers are awaited."""

    def _open(self) -> grpc.aio.Channel:
        if self._credentials is None:
            return grpc.aio.insecure_channel(self.target, channel.OPTIONS)
        return grpc.aio.secure_channel(self.target, self._credentials, channel.OPTIONS)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Closes the channel; calls under way fail."""
        self._closed = True
        if self._channel is not None:
            await self._channel.close()

    async def _run(self, call: Call[Answer], timeout: float | None) -> Answer:
        """Sends a call until it is answered, its retries are used up, or its deadline passes."""
        attempts = self._attempts(call.method, timeout)
        while True:
            rpc = self._rpc(call.method)
            try:
                return call.read(await rpc(call.request, timeout=attempts.remaining()))
            except grpc.RpcError as raised:
                error = from_rpc_error(raised, call.request_id)
                delay = attempts.after(error)
                if delay is None:
                    raise error from raised
            await asyncio.sleep(delay)
