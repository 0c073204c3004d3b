"""AnchorService: immutable sets of anchors, uploaded or made from a dataset. Trusts no upload."""

from __future__ import annotations

import asyncio
import threading
import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
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
    AnchorUpload,
    SetInfo,
    StoredAnchors,
    StoredSet,
    UploadHeader,
    check_digest,
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
from acpc_server.rpc.limits import ReadLimit
from acpc_server.rpc.request import page_of, read

IDLE_SECONDS = 60.0
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

    async def UploadAnchors(self, context: Call) -> pb.UploadAnchorsResponse:
        """Store shards as they come; each is safe once the next one is asked for."""
        hint = "go on with the same request_id"
        limit = ReadLimit(self.idle_seconds, hint, "UPLOAD_IDLE")
        upload = _Upload(self._store, context.principal.owner)
        try:
            async for message in context.messages(limit):
                if await context.aside(upload.take, message):
                    break
            return await context.aside(upload.end)
        finally:
            # Before the status leaves, for a caller that goes on at once finds all let go of.
            await asyncio.wait((context.aside(upload.close),), timeout=CLOSE_SECONDS)

    def GetUpload(self, request: pb.GetUploadRequest, context: Call) -> pb.GetUploadResponse:
        """Return where an upload goes on."""
        if not 1 <= len(request.request_id) <= MAX_REQUEST_ID:
            raise InvalidArgument("request_id", f"give 1 to {MAX_REQUEST_ID} characters")
        offset, stored = self._store.progress(request.request_id)
        return pb.GetUploadResponse(
            next_offset=offset,
            anchor_set=None if stored is None else _written(self._store, stored),
        )

    def CreateAnchorSet(
        self, request: pb.CreateAnchorSetRequest, context: Call
    ) -> pb.CreateAnchorSetResponse:
        """Draw anchors from a dataset and store them, a few at a time."""
        asked = read(CreateRequest, request)
        source = self._source(asked)
        store = self._store
        with _named(store, asked.request_id) as request_id:
            header = UploadHeader(
                request_id=request_id,
                anchors=source.count,
                history=asked.history,
                horizon=asked.horizon,
                description=asked.description,
                source=source,
                owner=context.principal.owner,
            )
            info = self._make(store, header, context)
        return pb.CreateAnchorSetResponse(anchor_set=_written(store, store.get(info.digest)))

    def _source(self, asked: CreateRequest) -> AnchorSource:
        source = asked.source.resolved()
        with below("source"):
            reading = asked.reading or self._datasets.reading(source.task)
            return source.with_windows(reading, asked.horizon)

    def _make(self, store: AnchorStore, header: UploadHeader, context: Call) -> SetInfo:
        def check() -> None:
            if not context.active:
                raise Cancelled("the caller has left; the same request_id starts again")

        source = header.source
        with store.upload(header) as upload:
            if upload.finished is not None or source is None:
                return upload.finish()
            try:
                with self._datasets.drawn(
                    source,
                    history=header.history,
                    horizon=header.horizon,
                    every_endpoint=True,
                    check=check,
                ) as drawn:
                    return store_drawn(upload, drawn, check)
            except InvalidArgument as error:
                if error.field.partition(".")[0] in _names(AnchorSource):
                    raise error.below("source") from error
                raise

    def GetAnchorSet(
        self, request: pb.GetAnchorSetRequest, context: Call
    ) -> pb.GetAnchorSetResponse:
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
        self, request: pb.ListAnchorSetsRequest, context: Call
    ) -> pb.ListAnchorSetsResponse:
        """List a page of the sets, newest first."""
        written = partial(_written, self._store)
        sets, token = page_of(request, self._store.list(), written)
        return pb.ListAnchorSetsResponse(anchor_sets=sets, next_page_token=token)

    def DeleteAnchorSet(
        self, request: pb.DeleteAnchorSetRequest, context: Call
    ) -> pb.DeleteAnchorSetResponse:
        """Delete a set that no job needs."""
        owner = self._store.owner(request.digest)
        require_owner(context.principal, owner, f"anchor set {request.digest}")
        self._store.delete(request.digest, self._in_use)
        return pb.DeleteAnchorSetResponse()


class _Upload:
    """The steps of an upload, which workers make one at a time; it is closed when its call ends."""

    _header: UploadHeader
    _named: bool

    def __init__(self, store: AnchorStore, owner: str) -> None:
        self._store, self._owner = store, owner
        self._lock, self._held = threading.Lock(), ExitStack()
        self._upload: AnchorUpload | None = None
        self._open = True

    def take(self, message: pb.UploadAnchorsRequest) -> bool:
        """Take the next message; returns whether no other is needed."""
        with self._lock, _of_header():
            if not self._open:
                return True
            if self._upload is None:
                self._upload = self._begin(message)
            elif message.WhichOneof("message") != "shard":
                raise InvalidArgument("shard", "every message after the header is a shard")
            else:
                with below("shard"):
                    self._append(self._upload, message.shard)
            return self._upload.finished is not None

    def end(self) -> pb.UploadAnchorsResponse:
        """Finish the set, or say where an upload that has a name goes on."""
        with self._lock, _of_header():
            upload = self._upload or self._begin(pb.UploadAnchorsRequest())
            if upload.next_offset < self._header.anchors and self._named:
                return pb.UploadAnchorsResponse(next_offset=upload.next_offset)
            info = upload.finish()
            self._held.close()
        return pb.UploadAnchorsResponse(
            anchor_set=_written(self._store, self._store.get(info.digest)), next_offset=info.anchors
        )

    def close(self) -> None:
        """Let go of what the upload holds, once the step under way has ended."""
        with self._lock:
            self._open = False
            self._held.close()

    def _begin(self, message: pb.UploadAnchorsRequest) -> AnchorUpload:
        if message.WhichOneof("message") != "header":
            raise InvalidArgument("header", "the first message of an upload is its header")
        asked = read(UploadHeader, message.header)
        if asked.expected_digest:
            check_digest(asked.expected_digest, "expected_digest")
        self._named = bool(asked.request_id)
        request_id = self._held.enter_context(_named(self._store, asked.request_id))
        self._header = replace(asked, request_id=request_id, owner=self._owner)
        return self._held.enter_context(self._store.upload(self._header))

    def _append(self, upload: AnchorUpload, shard: pb.AnchorShard) -> None:
        if shard.offset != upload.next_offset:
            raise FailedPrecondition(
                f"the shard begins at anchor {shard.offset}, but anchor {upload.next_offset} is "
                "next; GetUpload says where an upload goes on",
                reason="UPLOAD_OFFSET",
            )
        anchors, packed = read_shard(shard, self._header, upload.next_offset)
        upload.append(anchors, packed, own_trajectories=not shard.HasField("trajectory_ids"))


@contextmanager
def _of_header() -> Iterator[None]:
    """Name the message that an error about a field of the header is about."""
    try:
        yield
    except InvalidArgument as error:
        ours = error.field.partition(".")[0] in _names(UploadHeader)
        raise (error.below("header") if ours else error) from error


@contextmanager
def _named(store: AnchorStore, request_id: str) -> Iterator[str]:
    """Give an upload an id; one that its caller did not name leaves nothing behind."""
    if request_id:
        yield request_id
        return
    made = str(uuid.uuid4())
    try:
        yield made
    finally:
        store.forget(made)


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


def _names(record: type[Any]) -> set[str]:
    return {field.name for field in fields(record)}
