"""An upload of anchors: its shards, what goes into each stream, how it goes on; without I/O."""

from __future__ import annotations

import hashlib
import threading
import uuid
import zlib
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import chain
from typing import Any, NamedTuple

from acpc.contract import SMALL_ARRAYS, AnchorSet, Array, write_tensor
from acpc.v1 import anchor_service_pb2 as pb
from acpc.v1.tensor_pb2 import Tensor

from acpc_client.anchor_arrays import AnchorArrays, Digest, digest_of, with_views
from acpc_client.calls import methods, unsigned
from acpc_client.errors import AcpcError, ArgumentError, DataLoss, FailedPrecondition
from acpc_client.results import UploadProgress
from acpc_client.retries import Attempts, RetryPolicy

# One stream carries about so much; then the server says what is stored.
STREAM_BYTES = 2**25
# Seconds for the whole of an upload, whose size nobody knows.
TIMEOUT_S = 86_400.0
# Fast: frames of simulators shrink a lot at any level.
ZLIB_LEVEL = 1

OnUpload = Callable[[UploadProgress], object]


@dataclass(frozen=True)
class UploadOptions:
    """Options of an upload, beside its anchors; see ``Anchors.upload``."""

    count: int | None
    description: str
    compress: bool
    progress: OnUpload | None
    request_id: str | None
    timeout: float | None


class Shard(NamedTuple):
    """A shard that was made and may have to be sent again; ``stop`` is the anchor after it."""

    message: pb.AnchorShard
    stop: int


class Upload:
    """One upload, over as many streams and connections as it takes.

    Whole arrays can be cut again and again; parts are read once, and shards of them are held until
    the server has stored them.

    Args:
        anchors: All anchors, or an iterable of parts.
        views: More groups of views; see ``Anchors.upload``.
        options: The rest.
        policy: When a stream that failed is followed by another.

    Attributes:
        lost: Whether the server must be asked where the upload is.

    Raises ArgumentError: The options do not fit the anchors.
    """

    def __init__(
        self,
        anchors: AnchorArrays | Iterable[AnchorArrays],
        views: Mapping[str, Any] | None,
        options: UploadOptions,
        policy: RetryPolicy,
    ) -> None:
        self._options = options
        self._total = _count(anchors, options.count)
        given = with_views(anchors, views) if views else anchors
        self._whole = given if isinstance(given, AnchorArrays) else None
        self._parts = iter(()) if isinstance(given, AnchorArrays) else iter(given)
        self._cuts: Iterator[AnchorArrays] = iter(())
        self._digest = Digest(0)
        self._header = pb.UploadHeader()
        self._attempts = Attempts(policy, options.timeout or TIMEOUT_S, upload=True)
        self._made: Iterator[Shard] = iter(())
        self._held: deque[Shard] = deque()
        self._stored = self._sent_bytes = self._stream = 0
        self._failure: Exception | None = None
        self.lost = True
        self._lock = threading.Lock()  # a broken stream may be making a shard still

    @property
    def request_id(self) -> str:
        """Names the upload."""
        return self._header.request_id

    def prepare(self) -> None:
        """Reads what the header says: of whole arrays, everything once, for their digest.

        Raises ArgumentError: There is no part, or it does not fit the options.
        """
        first = next(self._parts, None) if self._whole is None else self._whole
        if first is None:
            raise ArgumentError("anchors", "found no part, wanted at least one")
        if self._whole is None:
            parts = chain([first], self._parts)
            self._cuts = (cut for part in parts for cut in part.cuts())
        self._digest = Digest(first.history)
        expected = "" if self._whole is None else digest_of(self._whole)
        description = self._options.description
        self._header = pb.UploadHeader(
            request_id=self._options.request_id or _identity(expected, description),
            anchors=unsigned(self._total, "count"),
            history=first.history,
            horizon=first.horizon,
            description=description,
            expected_digest=expected,
        )

    def stream(self) -> Callable[[], pb.UploadAnchorsRequest | None]:
        """A new stream: gives its messages one by one, None after the last.

        May be called in another thread. What the caller's own anchors raise ends the stream;
        ``check`` raises it.
        """
        with self._lock:
            self._stream += 1
            number, again, size = self._stream, list(self._held), 0
        opened = False

        def step() -> pb.UploadAnchorsRequest | None:
            nonlocal opened, size
            with self._lock:
                if number != self._stream:
                    return None
                if not opened:
                    opened = True
                    return pb.UploadAnchorsRequest(header=self._header)
                made = again.pop(0) if again else self._next(size)
                if made is None:
                    return None
                size += made.message.ByteSize()
                self._sent_bytes += made.message.ByteSize()
                return pb.UploadAnchorsRequest(shard=made.message)

        return step

    def _next(self, size: int) -> Shard | None:
        if size >= STREAM_BYTES or self._failure is not None:
            return None
        try:
            made = next(self._made, None)
        except Exception as failure:  # noqa: BLE001 - raised again by check()
            self._failure = failure
            return None
        if made is not None:
            self._held.append(made)
        return made

    def _shards(self, start: int) -> Iterator[Shard]:
        """Shards from anchor ``start`` on; of parts, no earlier than what was read.

        Raises ArgumentError: A part does not fit the first one, or the count.
        """
        offset = len(self._digest) if self._whole is None else start
        for cut in self._cuts if self._whole is None else self._whole.cuts(start):
            if self._whole is None:
                self._read(cut, offset)
            skipped = max(0, start - offset)
            if skipped < len(cut):
                rest = cut.part(skipped, len(cut)) if skipped else cut
                yield Shard(
                    _message(rest, offset + skipped, self._options.compress), offset + len(cut)
                )
            offset += len(cut)

    def _read(self, cut: AnchorArrays, offset: int) -> None:
        wanted = self._header
        if (cut.history, cut.horizon) != (wanted.history, wanted.horizon):
            found = f"found a part of history {cut.history} and horizon {cut.horizon}"
            first = f"after one of {wanted.history} and {wanted.horizon}"
            raise ArgumentError("anchors", f"{found} {first}")
        if offset + len(cut) > self._total:
            raise ArgumentError("anchors", f"found more anchors than count, {self._total}")
        self._digest.add(cut)

    def begin(self, answer: pb.GetUploadResponse | None) -> AnchorSet | None:
        """Takes where the upload is, None for one the server does not know.

        Raises FailedPrecondition: The server has forgotten anchors that cannot be made again;
        DataLoss: The finished set is not what was sent.
        """
        with self._lock:
            self.lost = False
            self._stream += 1  # a stream that broke makes no more shards
            if answer is not None and answer.HasField("anchor_set"):
                return self._finished(answer.anchor_set)
            self._move(0 if answer is None else answer.next_offset)
            return None

    def stored(self, answer: pb.UploadAnchorsResponse) -> AnchorSet | None:
        """Takes what a stream that ended well has stored; the set, when it is complete.

        Raises ArgumentError: There are fewer anchors than were promised; DataLoss: The finished set
        is not what was sent.
        """
        with self._lock:
            self._stream += 1
            if answer.HasField("anchor_set"):
                return self._finished(answer.anchor_set)
            if answer.next_offset == self._stored and not self._held:
                ended = f"ended after {self._stored} anchors, but count is {self._total}"
                raise ArgumentError("anchors", ended)
            self._move(answer.next_offset)
            return None

    def check(self) -> None:
        """Raises what the caller's own anchors raised, if they did."""
        if self._failure is not None:
            raise self._failure

    def timeout(self) -> float:
        """Deadline in seconds of the next stream."""
        most = methods.UPLOAD.timeout
        return min(most, self._attempts.remaining() or most)

    def failed(self, error: AcpcError) -> float:
        """Seconds to wait after a stream that failed.

        Raises AcpcError: ``error``, when it will not pass, or has not for too long.
        """
        self.lost = True
        delay = self._attempts.after(error)
        if delay is None:
            error.request_id = self.request_id
            raise error
        return delay

    def _move(self, offset: int) -> None:
        """Goes on at anchor ``offset``."""
        while self._held and self._held[0].stop <= offset:
            self._held.popleft()
        begins = self._held[0].message.offset if self._held else len(self._digest)
        if self._whole is None and begins > offset:
            raise FailedPrecondition(
                f"the server has only {offset} anchors of upload {self.request_id!r}, and the "
                "parts after them were given away; upload again with another request_id",
                reason="UPLOAD_FORGOTTEN",
                request_id=self.request_id,
            )
        if begins != offset or not self._held:
            self._held.clear()
            self._made = self._shards(offset)
        if offset > self._stored:
            self._attempts.succeeded()
        self._stored = offset
        self._tell(offset)

    def _finished(self, message: pb.AnchorSet) -> AnchorSet:
        anchor_set = AnchorSet.from_message(message)
        wanted = self._header.expected_digest
        if self._whole is None and len(self._digest) == self._total:
            wanted = self._digest.value()
        if wanted not in ("", anchor_set.digest):
            raise DataLoss(
                f"the server stored {anchor_set.digest}, but what was sent has digest {wanted}",
                reason="",
                request_id=self.request_id,
            )
        self._tell(self._total)
        return anchor_set

    def _tell(self, stored: int) -> None:
        if self._options.progress is not None:
            told = UploadProgress(stored, self._total, self._sent_bytes, self.request_id)
            self._options.progress(told)


def _count(anchors: AnchorArrays | Iterable[AnchorArrays], count: int | None) -> int:
    """Anchors in all; raises ArgumentError where ``count`` is missing or another."""
    if not isinstance(anchors, AnchorArrays):
        if count is None:
            raise ArgumentError("count", "say how many anchors the parts have together")
        return count
    if count not in (None, len(anchors)):
        raise ArgumentError("count", f"found {count}, but there are {len(anchors)} anchors")
    return len(anchors)


def _identity(digest: str, description: str) -> str:
    """Makes an upload's id: for whole arrays the same in every process, so that a call resumes."""
    if not digest:
        return str(uuid.uuid4())
    return hashlib.sha256(f"{digest} {description}".encode()).hexdigest()[:32]


def _message(part: AnchorArrays, offset: int, compress: bool) -> pb.AnchorShard:
    """The shard of some anchors, the first of which is ``offset``."""
    frames, packing = _large(part.frames[0 : len(part)], compress)
    message = pb.AnchorShard(
        offset=offset,
        frames=frames,
        frame_compression=packing,
        frame_crc32=zlib.crc32(frames.data),
    )
    for name, array in part.extras.items():
        values, packing = _large(array[0 : len(part)], compress)
        crc32 = zlib.crc32(values.data)
        message.extras.add(name=name, values=values, compression=packing, crc32=crc32)
    for name in SMALL_ARRAYS:
        if (array := getattr(part, name)) is not None:
            getattr(message, name).CopyFrom(write_tensor(array, f"anchors.{name}"))
    return message


def _large(array: Array, compress: bool) -> tuple[Tensor, pb.Compression.ValueType]:
    """A large array, deflated where that makes it smaller."""
    tensor = write_tensor(array)
    packed = zlib.compress(tensor.data, ZLIB_LEVEL) if compress else tensor.data
    if len(packed) >= array.nbytes:
        return tensor, pb.COMPRESSION_NONE
    tensor.data = packed
    return tensor, pb.COMPRESSION_ZLIB
