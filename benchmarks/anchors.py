"""An anchor set streamed to a real server: its memory, the rate, and reading the set back.

    python benchmarks/anchors.py [--anchors 10000] [--out build/benchmarks/anchors.json]

Anchors have the paper's size: 3 + 8 frames of 224 pixels. The server is a process of its own behind
a real socket; its memory is what the kernel says (resident set before, and its peak since).
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from acpc_client import AcpcClient, AnchorArrays
from acpc_server.data.anchor_sets import AnchorLimits, AnchorStore
from acpc_server.observe import Metrics
from common import MIB, forget_peak, memory, run
from server_process import ServerProcess

HISTORY, HORIZON, SIDE, PART = 3, 8, 224, 5
STEPS = HISTORY + HORIZON
WINDOW_BYTES = STEPS * SIDE * SIDE * 3
SHARD = 10
READS = 100


def parts(count: int) -> Iterator[AnchorArrays]:
    """Windows of blocky frames, which compress about as the frames of simulators do."""
    rng = np.random.default_rng(0)
    for start in range(0, count, PART):
        n = min(PART, count - start)
        coarse = rng.integers(0, 256, (n, STEPS, SIDE // 8, SIDE // 8, 3), np.uint8)
        yield AnchorArrays(
            history=HISTORY,
            frames=coarse.repeat(8, axis=2).repeat(8, axis=3),
            action_blocks=rng.standard_normal((n, STEPS - 1, 10), np.float32),
            endpoint_states=rng.standard_normal((n, 4)),
            labels=rng.integers(0, 2, n),
            anchor_ids=np.arange(start, start + n),
            trajectory_ids=np.arange(start, start + n) // 10,
        )


def measure(count: int, folder: Path) -> dict[str, object]:
    """Uploads ``count`` anchors to a server and reads their set back."""
    for name in ("checkpoints", "datasets"):
        (folder / name).mkdir()
    with (
        ServerProcess(folder / "checkpoints", folder / "datasets", folder / "state") as server,
        AcpcClient(server.address) as client,
    ):
        client.anchors.upload(parts(PART), count=PART)  # loads what the first upload loads
        forget_peak(server.pid)
        before = memory(server.pid, "VmRSS")
        started = time.perf_counter()
        stored = client.anchors.upload(parts(count), count=count)
        seconds = time.perf_counter() - started
        peak, after = memory(server.pid, "VmHWM"), memory(server.pid, "VmRSS")
    return {
        "raw_bytes": count * WINDOW_BYTES,
        "stored_bytes": stored.size_bytes,
        "upload_seconds": seconds,
        "anchors_per_second": count / seconds,
        "raw_mib_per_second": count * WINDOW_BYTES / MIB / seconds,
        "server_rss_before_mib": before / MIB,
        "server_rss_peak_mib": peak / MIB,
        "server_rss_after_mib": after / MIB,
        "server_rss_growth_mib": (peak - before) / MIB,
        **read_back(folder / "state" / "anchors", stored.digest, count),
    }


def read_back(root: Path, digest: str, count: int) -> dict[str, float]:
    """Opening a set, and reading windows of it as a job's shards do, every byte checked."""
    limits = AnchorLimits(2**50, 2**50, 2**30, 1, 0.0, 3600.0)
    store = AnchorStore(root, limits, Metrics())
    started = time.perf_counter()
    anchors = store.open(digest)
    opened = time.perf_counter() - started
    starts = np.linspace(0, count - SHARD, min(READS, count // SHARD)).astype(int).tolist()
    started = time.perf_counter()
    for start in starts:
        anchors.read_frames(start, start + SHARD)
    per_shard = (time.perf_counter() - started) / len(starts)
    return {
        "open_seconds": opened,
        "read_shard_of_10_ms": per_shard * 1e3,
        "read_mib_per_second": SHARD * WINDOW_BYTES / MIB / per_shard,
    }


def report(anchors: int = 10_000) -> dict[str, object]:
    """Uploads so many anchors to a server of its own, and reads their set back."""
    with tempfile.TemporaryDirectory() as folder:
        measured = measure(anchors, Path(folder))
    return {"anchors": anchors, "frames": [STEPS, SIDE, SIDE, 3], **measured}


if __name__ == "__main__":
    run(report)
