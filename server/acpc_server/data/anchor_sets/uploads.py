"""Receives the shards of an upload, in order, in a folder of its own that becomes a set."""

import errno
import time
import zlib
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from acpc.contract import AnchorArray, AnchorArrays, endpoints_at, from_json, shared, to_json
from acpc.datasets import DrawnWindows

from acpc_server.data.anchor_sets.files import discard, sync_folder, write_text
from acpc_server.data.anchor_sets.info import INFO, SetInfo, UploadHeader, read_stored
from acpc_server.data.anchor_sets.shards import (
    Layout,
    Packed,
    StoredAnchors,
    arrived,
    join_small,
    layout_of,
    shard_bytes,
    write_shard,
)
from acpc_server.data.anchors import DIGEST_BYTES, FRAMES, check_numbers
from acpc_server.errors import (
    Aborted,
    AlreadyExists,
    FailedPrecondition,
    InvalidArgument,
    ResourceExhausted,
)

DONE, DATA = "done", "set"
# What the first fields of a shard's layout are ends of.
SHAPES = ("frames.shape", "action_blocks.shape", "endpoint_states.shape", "labels.shape")
# Fast: frames of simulators shrink a lot at any level.
ZLIB_LEVEL = 1
MAX_SMALL_BYTES = 2**28  # all arrays of a set but its frames, 256 MiB: a score holds them in memory


@dataclass(eq=False)
class AnchorUpload:
    """An upload under way; the caller holds its folder.

    ``_reserve`` takes bytes of the store's quota, or raises ResourceExhausted.
    """

    _folder: Path
    _sets: Path
    _trash: Path
    _header: UploadHeader
    _reserve: Callable[[int], None]
    next_offset: int = 0  # first anchor that has not arrived
    appended: int = 0  # anchors that this call brought
    finished: SetInfo | None = None
    _layout: Layout | None = None  # what the shards that have arrived share

    def __post_init__(self) -> None:
        self._data, self._done = self._folder / DATA, self._folder / DONE
        self._restore()

    def _restore(self) -> None:
        """Continue with what an earlier call, or process, left."""
        header, digest = self._header, finished_digest(self._folder)
        if digest and (self._data / INFO).exists():  # killed before the last rename
            self._publish(digest)
            return
        stored = read_stored(self._sets / (digest or header.expected_digest or "-"))
        wanted = header.anchors, header.history, header.horizon
        if stored and (stored.info.anchors, stored.info.history, stored.info.horizon) == wanted:
            self._conclude(stored.info)
            return
        self._done.unlink(missing_ok=True)  # of a set that was deleted since
        self._data.mkdir(exist_ok=True)
        try:
            self.next_offset, self._layout = arrived(self._data)
        except FailedPrecondition:  # damaged on the disk
            self.restart()

    def append(
        self, shard: AnchorArrays, packed: Packed | None = None, *, own_trajectories: bool = False
    ) -> None:
        """Store the next shard for good; it has the history and horizon of the header.

        ``packed`` are its frames and extra arrays as zlib deflated them, by name. InvalidArgument:
        it does not fit the shards before it. ResourceExhausted: over a quota, or the volume is
        full; what has arrived is dropped.
        """
        left = self._header.anchors - self.next_offset
        if len(shard) > left:
            raise InvalidArgument(
                "frames.shape",
                f"{len(shard)} anchors, but {left} are left of the header's {self._header.anchors}",
            )
        layout, packed = layout_of(shard, own_trajectories), packed or {}
        if self._layout is not None:
            _check_layout(layout, self._layout)
        each = sum(array.nbytes for array in shard.small.values()) // len(shard)
        whole = (each + DIGEST_BYTES * (1 + len(shard.extras))) * self._header.anchors
        if whole > MAX_SMALL_BYTES:
            raise ResourceExhausted(
                f"{self._header.anchors} anchors have {whole} bytes of actions and states; at most "
                f"{MAX_SMALL_BYTES} are kept, so upload fewer anchors",
                reason="ANCHOR_SET_TOO_LARGE",
            )
        try:
            self._reserve(shard_bytes(shard, packed))
            write_shard(self._data, self.next_offset, shard, packed, layout)
        except ResourceExhausted:
            self.restart()  # what does not fit must not take the space of others
            raise
        self._layout = layout
        self.next_offset += len(shard)
        self.appended += len(shard)

    def restart(self) -> None:
        """Forget the shards that have arrived."""
        discard(self._data, self._trash)
        self._restore()

    def finish(self, windows: int | None = None) -> SetInfo:
        """Return the set, once all anchors have arrived; FailedPrecondition where some are missing.

        ``windows`` are those of the dataset that they were drawn from. A damaged file
        (FailedPrecondition) or another digest than expected (InvalidArgument) starts the upload
        again.
        """
        if self.finished is not None:
            return self.finished
        header, layout = self._header, self._layout
        if layout is None or self.next_offset < header.anchors:
            raise FailedPrecondition(
                f"only {self.next_offset} of {header.anchors} anchors have arrived; an upload "
                "with a request_id may come in several streams",
                reason="UPLOAD_INCOMPLETE",
            )
        try:
            size = join_small(self._data, [name for name, *_ in layout[-1]])
        except FailedPrecondition:  # damaged on the disk
            self.restart()
            raise
        (height, width), block_width, state_width, _, _, extras = layout
        info = SetInfo(  # but for its digests
            **shared(header, SetInfo),
            digest="",
            height=height,
            width=width,
            action_block_dim=block_width,
            state_dim=state_width,
            size_bytes=size,
            create_time=time.time(),
            extras=tuple(AnchorArray(name, dtype, tuple(x), "") for name, dtype, x in extras),
            windows=windows,
        )
        whole = StoredAnchors(self._data, info)
        digest = whole.digest
        if header.expected_digest not in ("", digest):
            self.restart()
            raise InvalidArgument(
                "expected_digest", f"is {header.expected_digest}, but the content has {digest}"
            )
        info = replace(
            info, digest=digest, endpoints_digest=whole.endpoints_digest, extras=whole.extras
        )
        write_text(self._data / INFO, to_json(info))
        write_text(self._done, digest)
        return self._publish(digest)

    def _publish(self, digest: str) -> SetInfo:
        target = self._sets / digest
        ours = from_json(SetInfo, (self._data / INFO).read_bytes()).endpoints_digest
        self._sets.mkdir(parents=True, exist_ok=True)
        try:
            self._data.rename(target)
        except OSError as error:
            if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
                raise
        sync_folder(self._sets)
        stored = read_stored(target)
        if stored is None:
            raise Aborted("the set was deleted at the same moment; upload it again")
        if ours and stored.info.endpoints_digest not in ("", ours):
            self._done.unlink(missing_ok=True)
            discard(self._data, self._trash)
            raise AlreadyExists(
                f"set {digest} is there with other states or labels before the last future frame; "
                "delete it first"
            )
        return self._conclude(stored.info)

    def _conclude(self, info: SetInfo) -> SetInfo:
        if finished_digest(self._folder) != info.digest:
            write_text(self._done, info.digest)
        discard(self._data, self._trash)  # what another upload brought before
        read_stored(self._sets / info.digest, use=True)
        self.finished, self.next_offset = info, info.anchors
        return info


def _check_layout(layout: Layout, first: Layout) -> None:
    """Raise InvalidArgument for a shard that is not laid out as the first one is."""
    for field, found, wanted in zip(SHAPES, layout, first, strict=False):
        if found != wanted:
            raise InvalidArgument(field, f"ends in {found}, but the first shard's in {wanted}")
    if layout[-2] != first[-2]:
        raise InvalidArgument("trajectory_ids", "give them in every shard, or in none")
    if layout[-1] != first[-1]:
        ours, theirs = ([f"{name} {shape}" for name, _, shape in x[-1]] for x in (layout, first))
        raise InvalidArgument("extras", f"are {ours}, but the first shard's are {theirs}")


def store_drawn(upload: AnchorUpload, drawn: DrawnWindows, check: Callable[[], None]) -> SetInfo:
    """Fill an unfinished upload from an open dataset, a few anchors in memory at a time.

    Shards of an earlier attempt are dropped, for the dataset may have been replaced since.
    ``check`` is called between shards and may raise. FailedPrecondition: damaged frames;
    ResourceExhausted: over a quota.
    """
    upload.restart()
    anchors = drawn.anchors
    if sum(array.nbytes for array in anchors.small.values()) > MAX_SMALL_BYTES // 2:
        last = endpoints_at(anchors.small, 0)  # the last frame's alone
        anchors = AnchorArrays.of(anchors.history, {**anchors.arrays, **last})
    for shard in anchors.cuts():
        check()
        check_numbers(shard)
        frames = shard.large[FRAMES]
        packed = zlib.compress(frames.data, ZLIB_LEVEL)
        upload.append(shard, {FRAMES: packed} if len(packed) < frames.nbytes else None)
    return upload.finish(drawn.windows)


def finished_digest(folder: Path) -> str:
    """Return the digest of the set that an upload became; empty while it has not, or if gone."""
    try:
        return (folder / DONE).read_text()
    except FileNotFoundError:
        return ""
