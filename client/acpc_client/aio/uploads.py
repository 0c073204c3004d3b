"""Sends an upload over as many streams as it takes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import closing
from dataclasses import replace

import grpc
import numpy as np
from acpc.arrays import NDArray
from acpc.contract import AnchorSet

from acpc_client.aio.transport import AsyncTransport
from acpc_client.aio.wire import AsyncMaker
from acpc_client.anchor_arrays import AnchorArrays, Frames, with_views
from acpc_client.calls import anchors as calls
from acpc_client.errors import AcpcError, NotFound
from acpc_client.uploads import Upload, UploadOptions


async def async_send_upload(
    transport: AsyncTransport,
    anchors: AnchorArrays | Iterable[AnchorArrays],
    views: Mapping[str, Frames | Iterable[NDArray[np.uint8]]] | None,
    options: UploadOptions,
) -> AnchorSet:
    """Uploads; raises as ``Anchors.upload``."""
    if views:
        whole = len(anchors) if isinstance(anchors, AnchorArrays) else options.count
        anchors, options = with_views(anchors, views), replace(options, count=whole)
    upload = Upload(anchors, options, retries=transport.policy.attempts > 1)
    with closing(AsyncMaker()) as maker:
        await maker.make(upload.prepare)
        while True:
            try:
                done = await (_find if upload.lost else _send)(transport, upload, maker)
            except AcpcError as error:
                upload.check()
                await transport.rest(upload.failed(error))
                continue
            if done is not None:
                return done


async def _find(transport: AsyncTransport, upload: Upload, _: AsyncMaker) -> AnchorSet | None:
    """Asks where an upload goes on."""
    try:
        answer = await transport.run(calls.progress(upload.request_id), None)
    except NotFound:
        return upload.begin(None)
    return upload.begin(answer)


async def _send(transport: AsyncTransport, upload: Upload, maker: AsyncMaker) -> AnchorSet | None:
    """One stream of an upload."""
    try:
        step, timeout = upload.stream(), upload.timeout()
        answer = await transport.send(calls.UPLOAD, step, maker, timeout)
    except grpc.RpcError as raised:
        raise transport.error(raised, upload.request_id) from None
    upload.check()
    return upload.stored(answer)
