"""Anchor sets of the asyncio client."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import closing

import numpy as np
from acpc.contract import AnchorContents, AnchorSet, DatasetAnchors, Reading
from numpy.typing import NDArray

from acpc_client.aio.resources import Resource
from acpc_client.anchor_arrays import AnchorArrays, Frames
from acpc_client.calls import anchors as calls
from acpc_client.results import UploadProgress
from acpc_client.sync import Anchors, SyncTransport
from acpc_client.uploads import OnUpload


class AsyncAnchors(Resource):
    """The anchor sets of the server: immutable, and named by the digest of their content."""

    async def upload(
        self,
        anchors: AnchorArrays | Iterable[AnchorArrays],
        *,
        views: Mapping[str, Frames | Iterable[NDArray[np.uint8]]] | None = None,
        count: int | None = None,
        description: str = "",
        compress: bool = True,
        progress: OnUpload | None = None,
        request_id: str | None = None,
        timeout: float | None = None,
    ) -> AnchorSet:
        """See ``Anchors.upload``, which runs in a thread; ``progress`` is called in the loop.

        grpc.aio tells a stream rejected while it was writing as a fault of its own, so that
        the server's reason would be lost; the blocking stream keeps it.
        """
        own, loop = self._transport, asyncio.get_running_loop()

        def tell(told: UploadProgress) -> None:
            if progress is not None:
                loop.call_soon_threadsafe(progress, told)

        # Leaving ends the thread's call, also when this task is cancelled.
        blocking = SyncTransport(own.target, own.options)
        with closing(blocking):
            return await asyncio.to_thread(
                Anchors(blocking).upload,
                anchors,
                views=views,
                count=count,
                description=description,
                compress=compress,
                progress=tell,
                request_id=request_id,
                timeout=timeout,
            )

    async def create(
        self,
        source: DatasetAnchors,
        *,
        history: int = 3,
        horizon: int = 8,
        description: str = "",
        reading: Reading = Reading.SERVER_DEFAULT,
        request_id: str | None = None,
        timeout: float | None = None,
    ) -> AnchorSet:
        """See ``Anchors.create``."""
        return await self._transport.run(
            calls.create(source, history, horizon, description, reading, request_id), timeout
        )

    async def get(self, anchor_set: AnchorSet | str, *, timeout: float | None = None) -> AnchorSet:
        """One set, by its digest."""
        return await self._transport.run(calls.get(anchor_set), timeout)

    async def contents(
        self,
        anchor_set: AnchorSet | str,
        *,
        neighbourhood: float = 0.35,
        timeout: float | None = None,
    ) -> AnchorContents:
        """See ``Anchors.contents``."""
        return await self._transport.run(calls.contents(anchor_set, neighbourhood), timeout)

    def list(
        self, *, page_size: int = 100, timeout: float | None = None
    ) -> AsyncIterator[AnchorSet]:
        """Every set, newest first; pages are fetched as they are read, ``timeout`` seconds each."""
        return self._pages(lambda token: calls.list_page(page_size, token), timeout)

    async def delete(self, anchor_set: AnchorSet | str, *, timeout: float | None = None) -> None:
        """Removes a set that no job needs. Not tried again."""
        await self._transport.run(calls.delete(anchor_set), timeout)
