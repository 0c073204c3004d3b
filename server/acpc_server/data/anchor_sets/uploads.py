"""Receives the shards of an upload, in order, in a folder of its own that becomes a set."""

import errno
import time
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from acpc.contract import AnchorArrays, endpoints_at, from_json, to_json
from acpc.datasets import DrawnWindows

from acpc_server.data.anchor_sets.files import discard, sync_folder, write_whole
from acpc_server.data.anchor_sets.info import (
    INFO,
    SetInfo,
    UploadHeader,
    mark_used,
    read_stored,
)
from acpc_server.data.anchor_sets.shards import (
    SMALL,
    Packed,
    ShardLayout,
    StoredAnchors,
    next_offset,
    read_small,
    shard_bytes,
    shard_paths,
    write_arrays,
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
MAX_SMALL_BYTES = 2**28
"""All arrays of a set but its frames, 256 MiB: a score holds them in memory."""


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
    windows: int | None = None  # of the dataset that the anchors are drawn from
    _bytes: int = 0
    _layout: ShardLayout | None = None

    def __post_init__(self) -> None:
        self._data, self._done = self._folder / DATA, self._folder / DONE
        self._restore()

    def _restore(self) -> None:
        """Continue with what an earlier call, or process, left."""
        digest = finished_digest(self._done)
        if digest and (self._data / INFO).exists():  # killed before the last rename
            self._publish(digest)
            return
        stored = read_stored(self._sets / (digest or self._header.expected_digest or "-"))
        sizes = ("anchors", "history", "horizon")
        if stored is not None and all(
            getattr(stored.info, size) == getattr(self._header, size) for size in sizes
        ):
            self._conclude(stored.info)
            return
        self._done.unlink(missing_ok=True)  # of a set that was deleted since
        try:
            self._read_shards()
        except FailedPrecondition:  # damaged on the disk
            discard(self._data, self._trash)
            self._read_shards()

    def _read_shards(self) -> None:
        self._data.mkdir(exist_ok=True)
        paths = shard_paths(self._data)
        self._bytes = sum(path.stat().st_size for path in paths)
        self._layout = None
        self.next_offset = next_offset(self._data)
        if paths:
            self._layout = ShardLayout.read(paths[0])

    def append(
        self, shard: AnchorArrays, packed: Packed | None = None, *, own_trajectories: bool = False
    ) -> None:
        """Store the next shard for good.

        ``packed`` are its frames and extra arrays as zlib deflated them, by name. InvalidArgument:
        it does not fit the header, or the shards before it. ResourceExhausted: over a quota, or
        the volume is full; what has arrived is dropped.
        """
        header = self._header
        if (shard.history, shard.horizon) != (header.history, header.horizon):
            raise InvalidArgument(
                "frames.shape",
                f"{shard.history + shard.horizon} frames an anchor, but the header's history and "
                f"horizon are {header.history} and {header.horizon}",
            )
        left = header.anchors - self.next_offset
        if len(shard) > left:
            raise InvalidArgument(
                "frames.shape",
                f"{len(shard)} anchors, but {left} are left of the header's {header.anchors}",
            )
        layout = ShardLayout.of(shard, own_trajectories)
        self._check_layout(shard, layout)
        try:
            self._reserve(shard_bytes(shard, packed or {}))
            written = write_shard(self._data, self.next_offset, shard, packed or {}, layout)
        except ResourceExhausted:
            self.restart()  # what does not fit must not take the space of others
            raise
        self._bytes += written
        self.next_offset += len(shard)
        self.appended += len(shard)

    def _check_layout(self, shard: AnchorArrays, layout: ShardLayout) -> None:
        if self._layout is None:
            one = sum(array.nbytes for array in shard.small.values()) // len(shard)
            whole = (one + DIGEST_BYTES * (1 + len(shard.extras))) * self._header.anchors
            if whole > MAX_SMALL_BYTES:
                raise ResourceExhausted(
                    f"{self._header.anchors} anchors have {whole} bytes of actions and states; at "
                    f"most {MAX_SMALL_BYTES} are kept, so upload fewer anchors",
                    reason="ANCHOR_SET_TOO_LARGE",
                )
            self._layout = layout
        first = self._layout
        for field, found, wanted in zip(SHAPES, layout, first, strict=False):
            if found != wanted:
                raise InvalidArgument(field, f"ends in {found}, but the first shard's in {wanted}")
        if layout.own_trajectories != first.own_trajectories:
            raise InvalidArgument("trajectory_ids", "give them in every shard, or in none")
        if layout.extras != first.extras:
            ours, theirs = (
                [f"{x.name} {list(x.shape)}" for x in of.extras] for of in (layout, first)
            )
            raise InvalidArgument("extras", f"are {ours}, but the first shard's are {theirs}")

    def restart(self) -> None:
        """Forget the shards that have arrived."""
        if self.finished is None:
            discard(self._data, self._trash)
            self._restore()

    def finish(self) -> SetInfo:
        """Return the set, once all anchors have arrived; FailedPrecondition where some are missing.

        A damaged file (FailedPrecondition) or another digest than expected (InvalidArgument) starts
        the upload again.
        """
        if self.finished is not None:
            return self.finished
        header = self._header
        if self._layout is None or self.next_offset < header.anchors:
            raise FailedPrecondition(
                f"only {self.next_offset} of {header.anchors} anchors have arrived; an upload "
                "with a request_id may come in several streams",
                reason="UPLOAD_INCOMPLETE",
            )
        layout = self._layout
        try:
            small = read_small(shard_paths(self._data), [x.name for x in layout.extras])
        except FailedPrecondition:  # damaged on the disk
            self.restart()
            raise
        size = self._bytes + write_arrays(self._data / SMALL, small)
        frames = header.history + header.horizon, *layout.frame_size, 3
        whole = StoredAnchors(self._data, header.history, frames, layout.extras)
        digest = whole.digest
        if header.expected_digest not in ("", digest):
            self.restart()
            raise InvalidArgument(
                "expected_digest", f"is {header.expected_digest}, but the content has {digest}"
            )
        info = SetInfo(
            digest=digest,
            anchors=header.anchors,
            history=header.history,
            horizon=header.horizon,
            height=layout.frame_size[0],
            width=layout.frame_size[1],
            action_block_dim=layout.block_width,
            state_dim=layout.state_width,
            size_bytes=size,
            create_time=time.time(),
            description=header.description,
            source=header.source,
            endpoints_digest=whole.endpoints_digest,
            extras=whole.extras,
            owner=header.owner,
            windows=self.windows,
        )
        write_whole(self._data / INFO, lambda file: file.write(to_json(info).encode()))
        write_whole(self._done, lambda file: file.write(digest.encode()))
        return self._publish(digest)

    def _publish(self, digest: str) -> SetInfo:
        target = self._sets / digest
        ours = from_json(SetInfo, (self._data / INFO).read_bytes()).endpoints_digest
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
        if finished_digest(self._done) != info.digest:
            write_whole(self._done, lambda file: file.write(info.digest.encode()))
        discard(self._data, self._trash)  # what another upload brought before
        mark_used(self._sets / info.digest)
        self.finished, self.next_offset = info, info.anchors
        return info


def store_drawn(upload: AnchorUpload, drawn: DrawnWindows, check: Callable[[], None]) -> SetInfo:
    """Fill an upload from an open dataset, a few anchors in memory at a time.

    Shards of an earlier attempt are dropped, for the dataset may have been replaced since.
    ``check`` is called between shards and may raise. FailedPrecondition: damaged frames;
    ResourceExhausted: over a quota.
    """
    upload.restart()
    upload.windows = drawn.windows
    anchors = drawn.anchors
    if sum(array.nbytes for array in anchors.small.values()) > MAX_SMALL_BYTES // 2:
        last = endpoints_at(anchors.small, 0)  # the last frame's alone
        anchors = AnchorArrays.of(anchors.history, {**anchors.arrays, **last})
    for shard in anchors.cuts():
        if upload.finished is not None:
            break
        check()
        check_numbers(shard)
        frames = shard.large[FRAMES]
        packed = zlib.compress(frames.data, ZLIB_LEVEL)
        upload.append(shard, {FRAMES: packed} if len(packed) < frames.nbytes else None)
    return upload.finish()


def finished_digest(done: Path) -> str:
    """Return the digest of the set that an upload became; empty while it has not, or if gone."""
    try:
        return done.read_text()
    except FileNotFoundError:
        return ""
