"""AnchorService: immutable sets of anchors, uploaded or made from a dataset. Trusts no upload."""

from __future__ import annotations

import asyncio
import threading
import uuid
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, fields, replace
from typing import Any, TypeAlias

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

# Takes each message, and None at the end of them; its value is the answer.
Dialogue: TypeAlias = "Generator[None, pb.UploadAnchorsRequest | None, pb.UploadAnchorsResponse]"


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
        steps = _Steps(self._uploaded(context))
        try:
            async for message in context.messages(limit):
                if await context.aside(steps.take, message):
                    break
            await context.aside(steps.take, None)
            return steps.answer
        finally:
            # Before the status leaves, for a caller that goes on at once finds all let go of.
            await asyncio.wait((context.aside(steps.close),), timeout=CLOSE_SECONDS)

    def _uploaded(self, context: Call) -> Dialogue:
        first = (yield) or pb.UploadAnchorsRequest()
        if first.WhichOneof("message") != "header":
            raise InvalidArgument("header", "the first message of an upload is its header")
        try:
            asked = read(UploadHeader, first.header)
            if asked.expected_digest:
                check_digest(asked.expected_digest, "expected_digest")
            with _named(self._store, asked.request_id) as request_id:
                header = replace(asked, request_id=request_id, owner=context.principal.owner)
                return (yield from _receive(self._store, header, alone=not asked.request_id))
        except InvalidArgument as error:
            ours = error.field.partition(".")[0] in _names(UploadHeader)
            raise (error.below("header") if ours else error) from error

    def GetUpload(self, request: pb.GetUploadRequest, context: Call) -> pb.GetUploadResponse:
        """Return where an upload goes on."""
        if not 1 <= len(request.request_id) <= MAX_REQUEST_ID:
            raise InvalidArgument("request_id", f"give 1 to {MAX_REQUEST_ID} characters")
        store = self._store
        offset, stored = store.progress(request.request_id)
        return pb.GetUploadResponse(
            next_offset=offset,
            anchor_set=None if stored is None else _written(store, stored),
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
        store = self._store
        sets, token = page_of(request, store.list(), lambda one: _written(store, one))
        return pb.ListAnchorSetsResponse(anchor_sets=sets, next_page_token=token)

    def DeleteAnchorSet(
        self, request: pb.DeleteAnchorSetRequest, context: Call
    ) -> pb.DeleteAnchorSetResponse:
        """Delete a set that no job needs."""
        owner = self._store.owner(request.digest)
        require_owner(context.principal, owner, f"anchor set {request.digest}")
        self._store.delete(request.digest, self._in_use)
        return pb.DeleteAnchorSetResponse()


class _Steps:
    """Runs an upload's steps in workers, one at a time; it is closed when its call ends."""

    def __init__(self, dialogue: Dialogue) -> None:
        self.answer = pb.UploadAnchorsResponse()
        self._over = False
        self._dialogue = dialogue
        self._lock = threading.Lock()
        next(dialogue)

    def take(self, message: pb.UploadAnchorsRequest | None) -> bool:
        """Take the next message, None at the end of them; returns whether it was the last."""
        with self._lock:
            try:
                if not self._over:
                    self._dialogue.send(message)
            except StopIteration as end:
                self._over, self.answer = True, end.value
            return self._over

    def close(self) -> None:
        """Let go of what the upload holds, once the step under way has ended."""
        with self._lock:
            self._over = True
            self._dialogue.close()


def _receive(store: AnchorStore, header: UploadHeader, *, alone: bool) -> Dialogue:
    with store.upload(header) as upload:
        while upload.finished is None and (message := (yield)) is not None:
            if message.WhichOneof("message") != "shard":
                raise InvalidArgument("shard", "every message after the header is a shard")
            with below("shard"):
                _append(upload, message.shard, header)
        if upload.next_offset < header.anchors and not alone:
            return pb.UploadAnchorsResponse(next_offset=upload.next_offset)
        info = upload.finish()
    return pb.UploadAnchorsResponse(
        anchor_set=_written(store, store.get(info.digest)), next_offset=info.anchors
    )


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


def _append(upload: AnchorUpload, shard: pb.AnchorShard, header: UploadHeader) -> None:
    if shard.offset != upload.next_offset:
        raise FailedPrecondition(
            f"the shard begins at anchor {shard.offset}, but anchor {upload.next_offset} is next; "
            "GetUpload says where an upload goes on",
            reason="UPLOAD_OFFSET",
        )
    anchors, packed = read_shard(shard, header, upload.next_offset)
    upload.append(anchors, packed, own_trajectories=not shard.HasField("trajectory_ids"))
