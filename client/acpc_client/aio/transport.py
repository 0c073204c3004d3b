"""One call of the client, with its retries."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

import grpc

from acpc_client.transport.aio import AsyncWire

if TYPE_CHECKING:
    from acpc_client.calls.methods import Rpc
    from acpc_client.retries import Absence

Answer = TypeVar("Answer")


class AsyncTransport(AsyncWire):
    """Sends calls."""

    async def close(self) -> None:
        """Closes the channels; calls under way fail."""
        self._closed = True
        for channel in self._connection.channels:
            await channel.close()

    async def run(
        self,
        rpc: Rpc[Answer],
        request: Any,  # noqa: ANN401 - a message
        timeout: float | None,
        absence: Absence | None = None,
    ) -> Answer:
        """Sends a call, the same each time, until it is answered or will not be.

        How long, an ``absence`` decides; None: that of a call of ``timeout`` seconds.
        """
        absence = absence or self.attempts(rpc, timeout)
        while True:
            call = self.call(rpc)
            try:
                answer = await call(request, timeout=absence.remaining() or rpc.timeout)
                self.contact.answered()
                absence.answered()
                return rpc.read(answer)
            except grpc.RpcError as raised:
                error = self.error(raised, getattr(request, "request_id", ""))
            await self.rest(absence.failed(error))
