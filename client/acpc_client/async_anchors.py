"""Anchor sets of the asyncio client; see ``sync_anchors``."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable

import grpc
from acpc.v1 import anchor_service_pb2 as pb

from acpc_client.anchor_arrays import AnchorArrays
from acpc_client.async_resources import Resource
from acpc_client.calls import anchors as calls
from acpc_client.errors import AcpcError, NotFound, from_rpc_error
from acpc_client.inputs import DatasetAnchors
from acpc_client.results import AnchorSet
from acpc_client.uploads import Progress, Upload, UploadOptions


class AsyncAnchors(Resource):
    """The anchor sets of the server: immutable, and named by the digest of their content."""

    async def upload(
        self,
        anchors: AnchorArrays | Iterable[AnchorArrays],
        *,
        count: int | None = None,
        description: str = "",
        compress: bool = True,
        progress: Progress | None = None,
        request_id: str | None = None,
        timeout: float | None = None,
    ) -> AnchorSet:
        """See ``Anchors.upload``; reading, hashing and compressing go on in threads."""
        client = self._client
        options = UploadOptions(
            count, description, compress, progress, request_id, client._positive(timeout)
        )
        upload = Upload(anchors, options, retries=client._policy.attempts > 1)
        await asyncio.to_thread(upload.prepare)
        while True:
            try:
                done = await (self._find(upload) if upload.lost else self._send(upload))
            except AcpcError as error:
                upload.check()
                await asyncio.sleep(upload.failed(error))
                continue
            if done is not None:
                return done

    async def _find(self, upload: Upload) -> AnchorSet | None:
        """Asks where an upload goes on."""
        try:
            answer = await self._client._run(calls.progress(upload.request_id), None)
            return upload.begin(answer)
        except NotFound:
            return upload.begin(None)

    async def _send(self, upload: Upload) -> AnchorSet | None:
        """One stream of an upload."""
        rpc = self._client._rpc(calls.UPLOAD)
        try:
            answer = await rpc(_messages(upload), timeout=upload.timeout())
        except grpc.RpcError as raised:
            raise from_rpc_error(raised, upload.request_id) from raised
        upload.check()
        return upload.stored(answer)

    async def create(
        self,
        source: DatasetAnchors,
        *,
        history: int = 3,
        horizon: int = 8,
        description: str = "",
        request_id: str | None = None,
        timeout: float | None = None,
    ) -> AnchorSet:
        """See ``Anchors.create``."""
        return await self._client._run(
            calls.create(source, history, horizon, description, request_id), timeout
        )

    async def get(self, anchor_set: AnchorSet | str, *, timeout: float | None = None) -> AnchorSet:
        """One set, by its digest."""
        return await self._client._run(calls.get(anchor_set), timeout)

    def list(
        self, *, page_size: int = 100, timeout: float | None = None
    ) -> AsyncIterator[AnchorSet]:
        """Every set, newest first; pages are fetched as they are read, ``timeout`` seconds each."""
        return self._pages(lambda token: calls.list_page(page_size, token), timeout)

    async def delete(self, anchor_set: AnchorSet | str, *, timeout: float | None = None) -> None:
        """Removes a set that no job needs. Not tried again."""
        await self._client._run(calls.delete(anchor_set), timeout)


async def _messages(upload: Upload) -> AsyncIterator[pb.UploadAnchorsRequest]:
    step = upload.stream()
    while (message := await asyncio.to_thread(step)) is not None:
        yield message
