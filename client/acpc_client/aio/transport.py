"""The asyncio transport: its channel, and one call with its retries."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import TypeVar

import grpc
import grpc.aio

from acpc_client.calls import Call
from acpc_client.errors import AcpcError
from acpc_client.transport import Transport

Answer = TypeVar("Answer")


class AsyncTransport(Transport):
    """A transport whose calls are awaited."""

    def _open(self, options: Sequence[tuple[str, int | str]]) -> grpc.aio.Channel:
        if self.credentials is None:
            return grpc.aio.insecure_channel(self.target, options)
        return grpc.aio.secure_channel(self.target, self.credentials, options)

    async def close(self) -> None:
        """Closes the channels; calls under way fail."""
        self._closed = True
        for channel in self._connections.channels:
            await channel.close()

    async def run(self, call: Call[Answer], timeout: float | None) -> Answer:
        """Sends a call until it is answered, its retries are used up, or its deadline passes."""
        attempts = self.attempts(call.method, timeout)
        while True:
            rpc = self.rpc(call.method)
            try:
                answer = await rpc(call.request, timeout=attempts.remaining())
                self.contact.made = True
                return call.read(answer)
            except grpc.RpcError as raised:
                error = self.error(raised, call.request_id)
                delay = attempts.after(error)
                if delay is None:
                    raise error from None
            await asyncio.sleep(delay)

    async def submit(
        self, call: Call[Answer], timeout: float | None, patience: float | None
    ) -> Answer:
        """``run`` for a call that outlasts an absence of the server, within the same deadline."""
        absence = self.absence(patience, timeout=timeout or self.timeout)
        while True:
            try:
                answer = await self.run(call, timeout)
            except AcpcError as error:
                delay = absence.failed(error)
            else:
                absence.answered()
                return answer
            await asyncio.sleep(delay)
