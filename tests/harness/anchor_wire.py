"""Anchors as an uploader sends them, with nothing of the client."""

import hashlib
import zlib
from collections.abc import Iterator
from typing import Any

import numpy as np
import wire
from acpc.v1 import anchor_service_pb2 as pb

HISTORY, HORIZON, COUNT, HEIGHT, WIDTH = 2, 3, 12, 10, 14
STEPS = HISTORY + HORIZON
SMALL = ("action_blocks", "endpoint_states", "labels", "anchor_ids", "trajectory_ids")


def anchor_arrays(
    count: int = COUNT, seed: int = 0, *, steps: int = STEPS,
    size: tuple[int, int] = (HEIGHT, WIDTH), block: int = 4,
) -> dict[str, np.ndarray]:  # fmt: skip
    """Arrays of a good set; frames that compress, but not to nothing."""
    rng, (height, width) = np.random.default_rng(seed), size
    coarse = rng.integers(0, 256, (count, steps, -(-height // 2), -(-width // 2), 3), np.uint8)
    frames = coarse.repeat(2, axis=2).repeat(2, axis=3)[:, :, :height, :width]
    return {
        "frames": np.ascontiguousarray(frames),
        "action_blocks": rng.standard_normal((count, steps - 1, block), np.float32),
        "endpoint_states": rng.standard_normal((count, 2)),
        "labels": rng.integers(0, 2, count),
        "anchor_ids": rng.permutation(count),
        "trajectory_ids": np.arange(count) // 3,
    }


def digest(arrays: dict[str, np.ndarray], history: int = HISTORY) -> str:
    """The digest as the contract tells it."""
    text = hashlib.sha256(f"acpc/anchors/2 history={history}".encode())
    kinds = {"frames": "|u1", "action_blocks": "<f4", "endpoint_states": "<f8"}
    for name, array in arrays.items():
        text.update(f"\n{name} {kinds.get(name, '<i8')} {array.shape}\n".encode())
        if name == "frames":
            for anchor in array:
                text.update(hashlib.sha256(anchor.tobytes()).digest())
        else:
            text.update(array.tobytes())
    return text.hexdigest()


def header(request_id: str = "", **changed: object) -> pb.UploadAnchorsRequest:
    fields = {"anchors": COUNT, "history": HISTORY, "horizon": HORIZON, **changed}
    return pb.UploadAnchorsRequest(header=pb.UploadHeader(request_id=request_id, **fields))


def shard(start: int = 0, stop: int = 4, **changed: Any) -> pb.UploadAnchorsRequest:
    """A good shard; fields can be changed, None leaves one out, ``crc`` is of the changed bytes."""
    arrays = {name: array[start:stop] for name, array in anchor_arrays().items()}
    fields: dict[str, Any] = {name: wire.tensor(array) for name, array in arrays.items()}
    fields["frames"].data = zlib.compress(fields["frames"].data)
    fields |= {"offset": start, "frame_compression": pb.COMPRESSION_ZLIB, **changed}
    return sealed(**{name: value for name, value in fields.items() if value is not None})


def sealed(**fields: Any) -> pb.UploadAnchorsRequest:
    """A shard of these fields, with the checksum of its frames."""
    message = pb.AnchorShard(**{"frame_compression": pb.COMPRESSION_NONE, **fields})
    if "frame_crc32" not in fields:
        message.frame_crc32 = zlib.crc32(message.frames.data)
    return pb.UploadAnchorsRequest(shard=message)


def further(name: str, array: np.ndarray, packed: bool = False) -> pb.ShardArray:
    """An array beside the six that every shard has."""
    values = wire.tensor(array)
    if packed:
        values.data = zlib.compress(values.data)
    crc = zlib.crc32(values.data)
    return pb.ShardArray(name=name, values=values, compression=1 + packed, crc32=crc)


def upload(request_id: str = "", cut: int = 4, **changed: object) -> Iterator[Any]:
    yield header(request_id, **changed)
    for start in range(0, COUNT, cut):
        yield shard(start, min(start + cut, COUNT))
