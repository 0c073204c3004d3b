"""Anchor sets of the client."""

from __future__ import annotations

import grpc
from acpc.contract import (
    AnchorArrays,
    AnchorContents,
    AnchorSet,
    CreateRequest,
    DatasetAnchors,
    Reading,
)

from acpc_client.aio.resources import Listed, Resource
from acpc_client.calls import methods, requests
from acpc_client.calls.options import check_timeout
from acpc_client.errors import AcpcError, NotFound
from acpc_client.uploads import TIMEOUT_S, OnUpload, Upload, UploadOptions


class AsyncAnchors(Resource):
    """The anchor sets of the server: immutable, and named by the digest of their content."""

    async def upload(
        self,
        anchors: AnchorArrays,
        *,
        description: str = "",
        compress: bool = True,
        progress: OnUpload | None = None,
        request_id: str | None = None,
        timeout: float | None = None,
    ) -> AnchorSet:
        """Stores anchors of your own at the server, and answers their set.

        A broken connection is mended: the upload goes on with the first anchor that the server has
        not stored. The answer's digest is checked against what was sent. Anchors that the server
        has already are not stored twice.

        Arrays are read once for their digest before they are sent, in slices and with asyncio in
        another thread; the same call in another process goes on where this one ended.

        Args:
            anchors: All anchors. Frames, views and directions may be memory maps, or what makes
                them as they are read: see ``Frames``.
            description: Free text that the server keeps.
            compress: Send frames deflated, without loss.
            progress: Called whenever the server has stored more.
            request_id: Names the upload; None: from the content.
            timeout: Seconds for the whole upload; None: a day.

        Raises:
            DataLoss: What the server stored is not what was sent.
            AcpcError: What the server rejected, or could not do for too long. Its ``request_id``
                is the upload's.
        """
        options = UploadOptions(description, compress, progress, request_id, check_timeout(timeout))
        absence = self._transport.upload(options.timeout or TIMEOUT_S)
        upload = Upload(anchors, options, absence)
        await self._transport.aside(upload.prepare)
        while True:
            try:
                found = await (self._find(upload) if upload.lost else self._send(upload))
            except AcpcError as error:
                upload.check()
                await self._transport.rest(upload.failed(error))
                continue
            if found is not None:
                return found

    async def _find(self, upload: Upload) -> AnchorSet | None:
        """Asks where an upload goes on."""
        name = upload.request_id
        try:
            answer = await self._call(methods.GET_UPLOAD, None, request_id=name)
        except NotFound:
            return upload.begin(None)
        return upload.begin(answer)

    async def _send(self, upload: Upload) -> AnchorSet | None:
        """One stream of an upload."""
        try:
            step, timeout = upload.stream(), upload.timeout()
            answer = await self._transport.send(methods.UPLOAD, step, timeout)
        except grpc.RpcError as raised:
            raise self._transport.error(raised, upload.request_id) from None
        upload.check()
        return upload.stored(answer)

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
        """Makes a set from a dataset that the server can see, and answers it once it is stored.

        Args:
            source: Where the anchors are drawn.
            history: Frames of history; the paper's models take 3.
            horizon: Future frames; the paper's 8.
            description: Free text that the server keeps.
            reading: Decides the source's ``window_future_frames`` where that is open.
            request_id: The same id gives the same set; a fresh uuid4 when None.
            timeout: Seconds for the whole call; None: an hour.
        """
        name = requests.identity(request_id)
        asked = CreateRequest(source, history, horizon, description, name, reading)
        request = requests.message(asked)
        return await self._transport.run(methods.CREATE_ANCHORS, request, timeout)

    async def get(self, anchor_set: AnchorSet | str, *, timeout: float | None = None) -> AnchorSet:
        """One set, by its digest."""
        return await self._call(methods.GET_ANCHORS, timeout, digest=_digest_of(anchor_set))

    async def contents(
        self,
        anchor_set: AnchorSet | str,
        *,
        neighbourhood: float = 0.35,
        timeout: float | None = None,
    ) -> AnchorContents:
        """The states and labels by which scores pair the anchors of a set.

        Args:
            anchor_set: The set, or its digest.
            neighbourhood: The quantile to return of the distances between all pairs of endpoint
                states, in (0, 1]; the paper's d_0.35 by default.
            timeout: Seconds for the call.

        Raises:
            ResourceExhausted: They are more than an answer holds.
        """
        asked = {"contents": True, "neighbourhood": neighbourhood}
        digest = _digest_of(anchor_set)
        return await self._call(methods.ANCHOR_CONTENTS, timeout, digest=digest, **asked)

    async def list(self, *, timeout: float | None = None) -> Listed[AnchorSet]:
        """Every set, newest first; ``timeout`` seconds for each page."""
        return await self._pages(methods.LIST_ANCHORS, timeout)

    async def delete(self, anchor_set: AnchorSet | str, *, timeout: float | None = None) -> None:
        """Removes a set that no job needs. Not tried again."""
        await self._call(methods.DELETE_ANCHORS, timeout, digest=_digest_of(anchor_set))


def _digest_of(anchor_set: AnchorSet | str) -> str:
    return anchor_set if isinstance(anchor_set, str) else anchor_set.digest
