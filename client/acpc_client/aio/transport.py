"""One call of the client, with its retries."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

import grpc

from acpc_client.errors import AcpcError
from acpc_client.transport.aio import AsyncWire

if TYPE_CHECKING:
    from acpc_client.absence import Absence
    from acpc_client.calls.methods import Rpc

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
        """Sends a call until it is answered, its retries are used up, or its deadline passes.

        No wait outlasts the patience of an ``absence``. The request keeps its id in all attempts.
        """
        attempts = self.attempts(rpc, timeout)
        while True:
            call = self.call(rpc)
            try:
                answer = await call(request, timeout=attempts.remaining())
                self.contact.answered()
                return rpc.read(answer)
            except grpc.RpcError as raised:
                error = self.error(raised, getattr(request, "request_id", ""))
                delay = attempts.after(error)
                if delay is None or (absence is not None and absence.spent(error, delay)):
                    raise error from None
            await self.rest(delay)

    async def submit(
        self,
        rpc: Rpc[Answer],
        request: Any,  # noqa: ANN401 - a message
        timeout: float | None,
        patience: float | None,
    ) -> Answer:
        """``run`` for a call that outlasts an absence of the server, within the same deadline."""
        absence = self.absence(patience, timeout=timeout or self.timeout)
        while True:
            try:
                answer = await self.run(rpc, request, timeout, absence)
            except AcpcError as error:
                delay = absence.failed(error)
            else:
                absence.answered()
                return answer
            await self.rest(delay)
