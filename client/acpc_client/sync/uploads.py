# Generated from aio/uploads.py by client/unasync.py; do not edit.
"""Sends an upload over as many streams as it takes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import closing
from dataclasses import replace

import grpc
import numpy as np
from acpc.arrays import NDArray
from acpc.contract import AnchorSet

from acpc_client.anchor_arrays import AnchorArrays, Frames, with_views
from acpc_client.calls import anchors as calls
from acpc_client.errors import AcpcError, NotFound
from acpc_client.sync.transport import SyncTransport
from acpc_client.sync.wire import Maker
from acpc_client.uploads import Upload, UploadOptions


def send_upload(
    transport: SyncTransport,
    anchors: AnchorArrays | Iterable[AnchorArrays],
    views: Mapping[str, Frames | Iterable[NDArray[np.uint8]]] | None,
    options: UploadOptions,
) -> AnchorSet:
    """Uploads; raises as ``Anchors.upload``."""
    if views:
        whole = len(anchors) if isinstance(anchors, AnchorArrays) else options.count
        anchors, options = with_views(anchors, views), replace(options, count=whole)
    upload = Upload(anchors, options, retries=transport.policy.attempts > 1)
    with closing(Maker()) as maker:
        maker.make(upload.prepare)
        while True:
            try:
                done = (_find if upload.lost else _send)(transport, upload, maker)
            except AcpcError as error:
                upload.check()
                transport.rest(upload.failed(error))
                continue
            if done is not None:
                return done


def _find(transport: SyncTransport, upload: Upload, _: Maker) -> AnchorSet | None:
    """Asks where an upload goes on."""
    try:
        answer = transport.run(calls.progress(upload.request_id), None)
    except NotFound:
        return upload.begin(None)
    return upload.begin(answer)


def _send(transport: SyncTransport, upload: Upload, maker: Maker) -> AnchorSet | None:
    """One stream of an upload."""
    try:
        step, timeout = upload.stream(), upload.timeout()
        answer = transport.send(calls.UPLOAD, step, maker, timeout)
    except grpc.RpcError as raised:
        raise transport.error(raised, upload.request_id) from None
    upload.check()
    return upload.stored(answer)
