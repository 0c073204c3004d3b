"""An upload of anchors: its shards, what goes into each stream, how it goes on; without I/O."""

from __future__ import annotations

import hashlib
import threading
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from acpc.contract import SMALL_ARRAYS, AnchorArrays, AnchorSet, Array, digest_of, write_tensor
from acpc.v1 import anchor_service_pb2 as pb
from acpc.v1.tensor_pb2 import Tensor

from acpc_client.calls import methods
from acpc_client.errors import AcpcError, DataLoss
from acpc_client.results.answers import UploadProgress
from acpc_client.retries import Absence

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

    description: str
    compress: bool
    progress: OnUpload | None
    request_id: str | None
    timeout: float | None


class Upload:
    """One upload, over as many streams and connections as it takes.

    The anchors are read in slices, as often as it takes. While it is ``lost``, the server must be
    asked where it is.
    """

    def __init__(self, anchors: AnchorArrays, options: UploadOptions, absence: Absence) -> None:
        self._anchors, self._options = anchors, options
        self._header = pb.UploadHeader()
        self._absence = absence
        self._stored = self._sent_bytes = self._stream = 0
        self._failure: Exception | None = None
        self.lost = True
        self._lock = threading.Lock()  # a broken stream may be making a shard still

    @property
    def request_id(self) -> str:
        """Names the upload."""
        return self._header.request_id

    def prepare(self) -> None:
        """Reads what the header says: everything once, for its digest."""
        digest, options = digest_of(self._anchors), self._options
        # The same in every process, so that a call resumes.
        name = hashlib.sha256(f"{digest} {options.description}".encode()).hexdigest()[:32]
        self._header = pb.UploadHeader(
            request_id=options.request_id or name,
            anchors=len(self._anchors),
            history=self._anchors.history,
            horizon=self._anchors.horizon,
            description=options.description,
            expected_digest=digest,
        )

    def stream(self) -> Callable[[], pb.UploadAnchorsRequest | None]:
        """A new stream: gives its messages one by one, None after the last.

        May be called in another thread. What the caller's own arrays raise ends the stream;
        ``check`` raises it.
        """
        with self._lock:
            self._stream += 1
            number, start = self._stream, self._stored
        messages = self._messages(start)

        def step() -> pb.UploadAnchorsRequest | None:
            with self._lock:
                if number != self._stream:
                    return None
                try:
                    return next(messages, None)
                except Exception as failure:  # noqa: BLE001 - raised again by check()
                    self._failure = failure
                    return None

        return step

    def _messages(self, start: int) -> Iterator[pb.UploadAnchorsRequest]:
        yield pb.UploadAnchorsRequest(header=self._header)
        left = STREAM_BYTES
        for cut in self._anchors.cuts(start):
            shard = _message(cut, start, self._options.compress)
            start += len(cut)
            left -= shard.ByteSize()
            self._sent_bytes += shard.ByteSize()
            yield pb.UploadAnchorsRequest(shard=shard)
            if left <= 0:
                return

    def begin(self, answer: pb.GetUploadResponse | None) -> AnchorSet | None:
        """``stored`` of what the server was asked, None for an upload that it does not know."""
        self.lost = False
        return self.stored(answer or pb.GetUploadResponse())

    def stored(self, answer: pb.UploadAnchorsResponse | pb.GetUploadResponse) -> AnchorSet | None:
        """Takes what the server has stored; the set, when it is complete.

        Raises DataLoss: The finished set is not what was sent.
        """
        with self._lock:
            self._stream += 1  # a stream that broke makes no more shards
            ends = answer.HasField("anchor_set")
            offset = len(self._anchors) if ends else answer.next_offset
            if offset > self._stored:
                self._absence.answered()
            self._stored = offset
            found = AnchorSet.from_message(answer.anchor_set) if ends else None
            if found is not None and found.digest != (sent := self._header.expected_digest):
                raise DataLoss(
                    f"the server stored {found.digest}, but what was sent has digest {sent}",
                    reason="",
                    request_id=self.request_id,
                )
        if (progress := self._options.progress) is not None:
            told = offset, len(self._anchors), self._sent_bytes, self.request_id
            progress(UploadProgress(*told))
        return found

    def check(self) -> None:
        """Raises what the caller's own arrays raised, if they did."""
        if self._failure is not None:
            raise self._failure

    def timeout(self) -> float:
        """Deadline in seconds of the next stream."""
        most = methods.UPLOAD.timeout
        return min(most, self._absence.remaining() or most)

    def failed(self, error: AcpcError) -> float:
        """Seconds to wait after a stream that failed.

        Raises AcpcError: ``error``, when it will not pass, or has not for too long.
        """
        self.lost, error.request_id = True, self.request_id
        return self._absence.failed(error)


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
