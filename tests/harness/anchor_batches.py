"""Small batches of anchors, and a store to put them in."""

import dataclasses
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from acpc.contract import AnchorArrays
from acpc.datasets import draw_windows
from acpc_server.data.anchor_sets import AnchorLimits, AnchorStore, SetInfo, UploadHeader
from acpc_server.observe import Metrics
from anchor_wire import anchor_arrays

HISTORY, HORIZON, COUNT = 2, 3, 11
LIMITS = AnchorLimits(
    store_bytes=2**22, set_anchors=100, keep_seconds=3600.0,
    upload_seconds=60.0,
)  # fmt: skip
ROOMY = dataclasses.replace(LIMITS, store_bytes=2**30, keep_seconds=1e9)
RNG = np.random.default_rng(5)
# Arrays that not every set has.
EXTRAS = {
    "views/night": RNG.integers(0, 256, (COUNT, 4, HISTORY, 12, 9, 3), np.uint8),
    "views/light:0.5": RNG.integers(0, 256, (COUNT, 1, HISTORY, 12, 9, 3), np.uint8),
    "proprio": RNG.standard_normal((COUNT, HISTORY + HORIZON, 6), np.float32),
    "directions/light": RNG.standard_normal((COUNT, 2, HISTORY, 12, 9, 3), np.float32),
}


def anchors(
    count: int = COUNT, seed: int = 0, *, history: int = HISTORY, horizon: int = HORIZON,
    size: tuple[int, int] = (12, 9), block: int = 4, extras: Mapping[str, np.ndarray] = {},
    **changed: np.ndarray,
) -> AnchorArrays:  # fmt: skip
    arrays = anchor_arrays(count, seed, steps=history + horizon, size=size, block=block)
    return AnchorArrays.of(history, {**arrays, **extras, **changed})


def drawn_anchors(*given: Any, **options: Any) -> AnchorArrays:
    """Anchors of an open dataset, drawn as ``draw_windows`` does, in memory."""
    drawn = draw_windows(*given, **options).anchors
    return drawn.part(0, len(drawn))


def header(request_id: str = "mine", **changed: object) -> UploadHeader:
    given = {"anchors": COUNT, "history": HISTORY, "horizon": HORIZON, **changed}
    return UploadHeader(request_id=request_id, **given)


def store(root: Path, **limits: float) -> AnchorStore:
    return AnchorStore(root / "anchors", dataclasses.replace(LIMITS, **limits), Metrics())


def put(
    where: AnchorStore, batch: AnchorArrays, said: UploadHeader, cut: int = 4, packed: bool = False
) -> SetInfo:
    with where.upload(said) as upload:
        for start in range(upload.next_offset, len(batch), cut):
            shard = batch.part(start, min(start + cut, len(batch)))
            large = {"frames": shard.frames, **shard.extras} if packed else {}
            upload.append(shard, {name: zlib.compress(array) for name, array in large.items()})
        return upload.finish()


def unused(_digest: str) -> bool:
    return False
