"""Streams of the asyncio client. Its twin is ``sync/streams.py``."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from contextlib import closing, suppress
from dataclasses import replace

import grpc
import grpc.aio
import numpy as np
from acpc.arrays import NDArray
from acpc.contract import AnchorSet
from acpc.v1 import diagnostic_service_pb2 as pb

from acpc_client.aio.transport import AsyncTransport
from acpc_client.anchor_arrays import AnchorArrays, Frames
from acpc_client.calls import diagnostics
from acpc_client.results import UploadProgress
from acpc_client.sync import SyncTransport, send_upload
from acpc_client.transport import GOODBYE_S, Ending
from acpc_client.uploads import UploadOptions


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


async def async_send_upload(
    transport: AsyncTransport,
    anchors: AnchorArrays | Iterable[AnchorArrays],
    views: Mapping[str, Frames | Iterable[NDArray[np.uint8]]] | None,
    options: UploadOptions,
) -> AnchorSet:
    """Uploads in a thread; ``progress`` is called in the loop.

    grpc.aio reports a stream rejected while it was writing as a fault of its own, so that the
    server's reason would be lost; the blocking stream keeps it.
    """
    loop, progress = asyncio.get_running_loop(), options.progress

    def report(stored: UploadProgress) -> None:
        if progress is not None:
            loop.call_soon_threadsafe(progress, stored)

    # Leaving ends the thread's call, also when this task is cancelled.
    blocking = SyncTransport(transport.target, transport.options)
    with closing(blocking):
        given = replace(options, progress=report)
        return await asyncio.to_thread(send_upload, blocking, anchors, views, given)
