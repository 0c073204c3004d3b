"""One call of the asyncio client, with its retries."""

from __future__ import annotations

from typing import TypeVar

import grpc

from acpc_client.aio.wire import AsyncWire
from acpc_client.calls import PreparedCall
from acpc_client.errors import AcpcError
from acpc_client.retries import Absence

Answer = TypeVar("Answer")


class AsyncTransport(AsyncWire):
    """Sends calls."""

    async def close(self) -> None:
        """Closes the channels; calls under way fail."""
        self._closed = True
        for channel in self._connections.channels:
            await channel.close()

    async def run(
        self, call: PreparedCall[Answer], timeout: float | None, absence: Absence | None = None
    ) -> Answer:
        """Sends a call until it is answered, its retries are used up, or its deadline passes.

        No wait outlasts the patience of an ``absence``.
        """
        attempts = self.attempts(call.method, timeout)
        while True:
            rpc = self.rpc(call.method)
            try:
                answer = await rpc(call.request, timeout=attempts.remaining())
                self.contact.answered()
                return call.read(answer)
            except grpc.RpcError as raised:
                error = self.error(raised, call.request_id)
                delay = attempts.after(error)
                if delay is None or (absence is not None and absence.spent(error, delay)):
                    raise error from None
            await self.rest(delay)

    async def submit(
        self, call: PreparedCall[Answer], timeout: float | None, patience: float | None
    ) -> Answer:
        """``run`` for a call that outlasts an absence of the server, within the same deadline."""
        absence = self.absence(patience, timeout=timeout or self.timeout)
        while True:
            try:
                answer = await self.run(call, timeout, absence)
            except AcpcError as error:
                delay = absence.failed(error)
            else:
                absence.answered()
                return answer
            await self.rest(delay)
