"""AnchorService: immutable sets of anchors, uploaded or made from a dataset. Trusts no upload."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, fields, replace
from functools import partial
from typing import Any

import torch
from acpc.contract import (
    MAX_REQUEST_ID,
    AnchorContents,
    AnchorSource,
    CreateRequest,
    endpoints_at,
)
from acpc.v1 import anchor_service_pb2 as pb

from acpc_server.access import require_owner
from acpc_server.data import DatasetStore
from acpc_server.data.anchor_sets import (
    AnchorStore,
    StoredAnchors,
    StoredSet,
    UploadHeader,
    store_drawn,
)
from acpc_server.errors import (
    Cancelled,
    FailedPrecondition,
    InvalidArgument,
    ResourceExhausted,
    below,
)
from acpc_server.numerics import pairing
from acpc_server.rpc.anchor_shards import read_shard
from acpc_server.rpc.call import Call
from acpc_server.rpc.limits import IDLE_SECONDS, ReadLimit
from acpc_server.rpc.request import page_of, read

# How long the end of an upload waits for its last step; one on a sick disk may never end.
CLOSE_SECONDS = 5.0
# States and labels of one answer, and anchors whose every pair is looked at for it.
MAX_CONTENTS_BYTES, MAX_PAIRED = 2**25, 5000


@dataclass(frozen=True)
class AnchorServicer:
    """Takes, makes, lists and deletes anchor sets.

    ``in_use`` tells whether an unfinished job needs a digest's set.
    """

    _store: AnchorStore
    _datasets: DatasetStore
    _in_use: Callable[[str], bool]
    idle_seconds: float = IDLE_SECONDS

    async def UploadAnchors(self, call: Call) -> pb.UploadAnchorsResponse | None:
        """Store shards as they come; each is safe once the next one is asked for."""
        limit = ReadLimit(self.idle_seconds, "go on with the same request_id", "UPLOAD_IDLE")
        steps, lock = _received(self._store, call.principal.owner), threading.Lock()

        def step(message: pb.UploadAnchorsRequest | None) -> pb.UploadAnchorsResponse | None:
            with lock, suppress(StopIteration):  # where it is closed
                return steps.send(message)
            return None

        def close() -> None:
            with lock:  # once the step under way has ended
                steps.close()

        step(None)
        try:
            async for message in call.messages(limit):
                if answer := await call.aside(step, message):
                    return answer
            return await call.aside(step, None)
        finally:
            # Before the status leaves, for a caller that goes on at once finds all let go of.
            await asyncio.wait((call.aside(close),), timeout=CLOSE_SECONDS)

    def GetUpload(self, request: pb.GetUploadRequest, call: Call) -> pb.GetUploadResponse:
        """Return where an upload goes on."""
        if not 1 <= len(request.request_id) <= MAX_REQUEST_ID:
            raise InvalidArgument("request_id", f"give 1 to {MAX_REQUEST_ID} characters")
        offset, stored = self._store.progress(request.request_id)
        return pb.GetUploadResponse(
            next_offset=offset,
            anchor_set=None if stored is None else _written(self._store, stored),
        )

    def CreateAnchorSet(
        self, request: pb.CreateAnchorSetRequest, call: Call
    ) -> pb.CreateAnchorSetResponse:
        """Draw anchors from a dataset and store them, a few at a time."""
        asked = read(CreateRequest, request)
        store, history, horizon = self._store, asked.history, asked.horizon

        def check() -> None:
            if not call.active:
                raise Cancelled("the caller has left; the same request_id starts again")

        with _below("source", AnchorSource):
            source = asked.source.resolved()
            reading = asked.reading or self._datasets.reading(source.task)
            source = source.with_windows(reading, horizon)
            header = UploadHeader(
                request_id=asked.request_id,
                anchors=source.count,
                history=history,
                horizon=horizon,
                description=asked.description,
                source=source,
                owner=call.principal.owner,
            )
            with store.upload(header) as upload:
                if upload.finished is None:
                    drawing = self._datasets.drawn(
                        source, history=history, horizon=horizon, every_endpoint=True, check=check
                    )
                    with drawing as drawn:
                        store_drawn(upload, drawn, check)
                info = upload.finish()
        return pb.CreateAnchorSetResponse(anchor_set=_written(store, store.get(info.digest)))

    def GetAnchorSet(self, request: pb.GetAnchorSetRequest, call: Call) -> pb.GetAnchorSetResponse:
        """Describe a set, with its states and labels where they are asked for."""
        store = self._store
        described = _written(store, store.get(request.digest))
        if not request.contents:
            return pb.GetAnchorSetResponse(anchor_set=described)
        quantile = request.neighbourhood if request.HasField("neighbourhood") else 0.35
        if not 0 < quantile <= 1:
            raise InvalidArgument("neighbourhood", f"found {quantile}, wanted a number in (0, 1]")
        contents = _contents(store.open(request.digest), quantile)
        return pb.GetAnchorSetResponse(anchor_set=described, contents=contents.to_message())

    def ListAnchorSets(
        self, request: pb.ListAnchorSetsRequest, call: Call
    ) -> pb.ListAnchorSetsResponse:
        """List a page of the sets, newest first."""
        written = partial(_written, self._store)
        sets, token = page_of(request, self._store.list(), written)
        return pb.ListAnchorSetsResponse(anchor_sets=sets, next_page_token=token)

    def DeleteAnchorSet(
        self, request: pb.DeleteAnchorSetRequest, call: Call
    ) -> pb.DeleteAnchorSetResponse:
        """Delete a set that no job needs."""
        allow = partial(require_owner, call.principal, what=f"anchor set {request.digest}")
        self._store.delete(request.digest, self._in_use, allow)
        return pb.DeleteAnchorSetResponse()


def _received(
    store: AnchorStore, owner: str
) -> Generator[pb.UploadAnchorsResponse | None, pb.UploadAnchorsRequest | None, None]:
    """Take the messages of an upload, None at the end; yields the answer once there is one.

    Workers make the steps one at a time. It lets go of the upload when it is closed.
    """
    with _below("header", UploadHeader):
        message = yield None
        if message is None or message.WhichOneof("message") != "header":
            raise InvalidArgument("header", "the first message of an upload is its header")
        header = replace(read(UploadHeader, message.header), owner=owner)
        with store.upload(header) as upload:
            while upload.finished is None and (message := (yield None)):
                if message.WhichOneof("message") != "shard":
                    raise InvalidArgument("shard", "every message after the header is a shard")
                shard = message.shard
                if shard.offset != upload.next_offset:
                    raise FailedPrecondition(
                        f"the shard begins at anchor {shard.offset}, but anchor "
                        f"{upload.next_offset} is next; GetUpload says where an upload goes on",
                        reason="UPLOAD_OFFSET",
                    )
                with below("shard"):
                    own = not shard.HasField("trajectory_ids")
                    # No name holds its arrays, which would then stay until the next one comes.
                    upload.append(
                        *read_shard(shard, header, upload.next_offset), own_trajectories=own
                    )
            offset, info = upload.next_offset, None
            if offset == header.anchors or not header.request_id:
                info = upload.finish()
    stored = None if info is None else _written(store, store.get(info.digest))
    yield pb.UploadAnchorsResponse(anchor_set=stored, next_offset=offset)


@contextmanager
def _below(parent: str, record: type[Any]) -> Iterator[None]:
    """Name the message that an error about a field of ``record`` is about."""
    try:
        yield
    except InvalidArgument as error:
        ours = error.field.partition(".")[0] in {field.name for field in fields(record)}
        raise (error.below(parent) if ours else error) from error


def _contents(anchors: StoredAnchors, quantile: float) -> AnchorContents:
    small = endpoints_at(anchors.small_arrays(), 0)
    del small["action_blocks"]
    size = sum(array.nbytes for array in small.values())
    if size > MAX_CONTENTS_BYTES:
        raise ResourceExhausted(
            f"states and labels of the set are {size} bytes, over {MAX_CONTENTS_BYTES} an answer",
            reason="ANSWER_TOO_LARGE",
        )
    states = torch.from_numpy(small["endpoint_states"])
    small_enough = 2 <= len(states) <= MAX_PAIRED
    radius = pairing.off_diagonal_quantile(states, quantile) if small_enough else None
    return AnchorContents(**small, radius=radius)


def _written(store: AnchorStore, stored: StoredSet) -> pb.AnchorSet:
    return store.described(stored).to_message()
