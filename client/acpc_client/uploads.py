"""An upload of anchors: its shards, what goes into each stream, how it goes on; without I/O."""

from __future__ import annotations

import hashlib
import threading
import uuid
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import chain
from typing import NamedTuple

from acpc.contract import AnchorSet
from acpc.v1 import anchor_service_pb2 as pb

from acpc_client.anchor_arrays import AnchorArrays, Digest, digest_of
from acpc_client.calls import anchors as calls
from acpc_client.errors import (
    Aborted,
    AcpcError,
    ArgumentError,
    DataLoss,
    DeadlineExceeded,
    FailedPrecondition,
    ResourceExhausted,
    Unavailable,
)
from acpc_client.inputs import unsigned
from acpc_client.results import UploadProgress
from acpc_client.retries import Attempts, RetryPolicy


class Shard(NamedTuple):
    """A shard that was made and may have to be sent again; ``stop`` is the anchor after it."""

    message: pb.AnchorShard
    stop: int


class ShardSource:
    """Where shards come from: whole arrays, again and again, or parts, which are read once.

    Args:
        anchors: All anchors, or an iterable of parts.
        count: Anchors of all parts together.
        compress: Whether frames are deflated.

    Attributes:
        total: Anchors in all.
        history: Frames of history; known once ``prepare`` was called, like the ones below.
        horizon: Future frames.
        expected: Digest of whole arrays; empty for parts.

    Raises ArgumentError: The count does not fit the anchors.
    """

    def __init__(
        self, anchors: AnchorArrays | Iterable[AnchorArrays], count: int | None, compress: bool
    ) -> None:
        self._whole = anchors if isinstance(anchors, AnchorArrays) else None
        self._parts = iter(()) if isinstance(anchors, AnchorArrays) else iter(anchors)
        self._cuts: Iterator[AnchorArrays] = iter(())
        self._compress = compress
        self._digest = Digest(0)
        self.total = _count(self._whole, count)
        self.history = self.horizon = 0
        self.expected = ""

    @property
    def read(self) -> int | None:
        """Anchors of the parts read so far, which cannot be read again; None for whole arrays."""
        return len(self._digest) if self._whole is None else None

    def prepare(self) -> None:
        """Reads whole arrays once, for their digest, or the first part.

        Raises ArgumentError: There is no part.
        """
        first = self._whole
        if first is None:
            if (first := next(self._parts, None)) is None:
                raise ArgumentError("anchors", "found no part, wanted at least one")
            parts = chain([first], self._parts)
            self._cuts = (cut for part in parts for cut in part.cuts())
        else:
            self.expected = digest_of(first)
        self.history, self.horizon = first.history, first.horizon
        self._digest = Digest(first.history)

    def shards(self, start: int) -> Iterator[Shard]:
        """Shards from anchor ``start`` on; of parts, no earlier than ``read``.

        Raises ArgumentError: A part does not fit the first one, or the count.
        """
        offset = start if self._whole is not None else len(self._digest)
        for cut in self._cuts if self._whole is None else self._whole.cuts(start):
            if self._whole is None:
                self._take(cut, offset)
            skipped = max(0, start - offset)
            if skipped < len(cut):
                rest = cut.part(skipped, len(cut)) if skipped else cut
                message = calls.shard(rest, offset + skipped, self._compress)
                yield Shard(message, offset + len(cut))
            offset += len(cut)

    def _take(self, cut: AnchorArrays, offset: int) -> None:
        if (cut.history, cut.horizon) != (self.history, self.horizon):
            found = f"found a part of history {cut.history} and horizon {cut.horizon}"
            raise ArgumentError(
                "anchors", f"{found} after one of {self.history} and {self.horizon}"
            )
        if offset + len(cut) > self.total:
            raise ArgumentError("anchors", f"found more anchors than count, {self.total}")
        self._digest.add(cut)

    def digest(self) -> str:
        """Digest of everything; empty while parts are left to be read."""
        if self._whole is None and len(self._digest) == self.total:
            return self._digest.value()
        return self.expected


def _count(whole: AnchorArrays | None, count: int | None) -> int:
    if whole is None:
        if count is None:
            raise ArgumentError("count", "say how many anchors the parts have together")
        return count
    if count not in (None, len(whole)):
        raise ArgumentError("count", f"found {count}, but there are {len(whole)} anchors")
    return len(whole)


# One stream carries about so much; then the server says what is stored.
STREAM_BYTES = 2**25
# Seconds for the whole of an upload, whose size nobody knows.
TIMEOUT_S = 86_400.0
# A hundred seconds: longer than a server takes to start again, or to give up a dead connection.
_UPLOAD_RETRIES = RetryPolicy(attempts=24, initial=0.2, maximum=5.0)
_RESUMABLE = (Unavailable, Aborted, DeadlineExceeded)
_RESUMABLE_REASONS = ("UPLOAD_OFFSET", "CORRUPT_SHARD")

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


class Upload:
    """One upload, over as many streams and connections as it takes.

    Args:
        anchors: All anchors, or an iterable of parts.
        options: The rest.
        retries: Whether a failure may be followed by another attempt.

    Attributes:
        lost: Whether the server must be asked where the upload is.

    Raises ArgumentError: The options do not fit the anchors.
    """

    def __init__(
        self, anchors: AnchorArrays | Iterable[AnchorArrays], options: UploadOptions, retries: bool
    ) -> None:
        self._source = ShardSource(anchors, options.count, options.compress)
        self._options = options
        policy = _UPLOAD_RETRIES if retries else RetryPolicy(attempts=1)
        self._attempts = Attempts(policy, options.timeout or TIMEOUT_S)
        self._header = pb.UploadHeader()
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
        source, options = self._source, self._options
        source.prepare()
        self._header = pb.UploadHeader(
            request_id=options.request_id or _identity(source.expected, options.description),
            anchors=unsigned(source.total, "count"),
            history=source.history,
            horizon=source.horizon,
            description=options.description,
            expected_digest=source.expected,
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
                ended = f"ended after {self._stored} anchors, but count is {self._source.total}"
                raise ArgumentError("anchors", ended)
            self._move(answer.next_offset)
            return None

    def check(self) -> None:
        """Raises what the caller's own anchors raised, if they did."""
        if self._failure is not None:
            raise self._failure

    def timeout(self) -> float:
        """Deadline in seconds of the next stream."""
        remaining = self._attempts.remaining()
        return min(calls.UPLOAD.timeout, remaining or calls.UPLOAD.timeout)

    def failed(self, error: AcpcError) -> float:
        """Seconds to wait after a stream that failed.

        Raises AcpcError: ``error``, when it will not pass, or has not for too long.
        """
        self.lost = True
        passing = (
            isinstance(error, _RESUMABLE)
            or error.reason in _RESUMABLE_REASONS
            or (isinstance(error, ResourceExhausted) and error.retry_after is not None)
        )
        # Waits grow, whatever the server says: another call may be slow to leave.
        passed = Unavailable(error.message)
        delay = self._attempts.after(passed) if passing else None
        if delay is None:
            error.request_id = self.request_id
            raise error
        return delay

    def _move(self, offset: int) -> None:
        """Goes on at anchor ``offset``."""
        while self._held and self._held[0].stop <= offset:
            self._held.popleft()
        begins = self._held[0].message.offset if self._held else self._source.read
        if begins is not None and begins > offset and self._source.read is not None:
            raise FailedPrecondition(
                f"the server has only {offset} anchors of upload {self.request_id!r}, and the "
                "parts after them were given away; upload again with another request_id",
                reason="UPLOAD_FORGOTTEN",
                request_id=self.request_id,
            )
        if begins != offset or not self._held:
            self._held.clear()
            self._made = self._source.shards(offset)
        if offset > self._stored:
            self._attempts.succeeded()
        self._stored = offset
        self._tell(offset)

    def _finished(self, message: pb.AnchorSet) -> AnchorSet:
        anchor_set = AnchorSet.from_message(message)
        wanted = self._source.digest()
        if wanted not in ("", anchor_set.digest):
            raise DataLoss(
                f"the server stored {anchor_set.digest}, but what was sent has digest {wanted}",
                reason="",
                request_id=self.request_id,
            )
        self._tell(self._source.total)
        return anchor_set

    def _tell(self, stored: int) -> None:
        if self._options.progress is not None:
            progress = UploadProgress(stored, self._source.total, self._sent_bytes, self.request_id)
            self._options.progress(progress)


def _identity(digest: str, description: str) -> str:
    """Makes an upload's id: for whole arrays the same in every process, so that a call resumes."""
    if not digest:
        return str(uuid.uuid4())
    return hashlib.sha256(f"{digest} {description}".encode()).hexdigest()[:32]
