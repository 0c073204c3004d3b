"""Streams of the asyncio client. Its twin is ``sync/streams.py``."""

from __future__ import annotations

import asyncio
from contextlib import suppress

import grpc
import grpc.aio
from acpc.v1 import diagnostic_service_pb2 as pb

from acpc_client.aio.transport import AsyncTransport
from acpc_client.calls import diagnostics
from acpc_client.transport import GOODBYE_S, Ending


class AsyncPlanStream:
    """One stream of a planning session."""

    def __init__(
        self, transport: AsyncTransport, request_id: str, options: dict[str, object]
    ) -> None:
        self._transport, self._request_id = transport, request_id
        self._stream = transport.rpc(diagnostics.PLAN)(**options)
        self._ending = Ending(self._stream)

    async def exchange(self, request: pb.PlanRequest, limit: float) -> pb.PlanResponse | None:
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
