"""What a checkpoint job costs when it grows: time for four times as much, and memory.

    python benchmarks/scaling.py [--anchors 200] [--large 5000]

Writes build/benchmarks/scaling.json. Jobs run on a real server over the demo's model, one after the
other. Ratios are within one run; absolute figures belong to the machine. The large job reads frames
of 96 pixels, which do not fit the memory it may take.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import hdf5plugin
import numpy as np
from acpc.contract import DatasetAnchors, GaussianNoise, ScoreProtocol
from acpc_client import AcpcClient, ScoreJob
from common import (
    CHECKPOINTS,
    MIB,
    ROUNDS,
    WORLD,
    alternated,
    forget_peak,
    memory,
    ratio,
    run,
    spent,
)
from dataset import columns
from server_process import ServerProcess

MODEL, SHIFT = "two-room-base", GaussianNoise(0.08)
EPISODES, BLOCKS, SEED, DRAWS = 160, 24, 9101, 5


def write_world(path: Path, enlarge: int) -> None:
    """The demo's episodes with every pixel ``enlarge`` times as wide and high."""
    with h5py.File(path, "w", libver="v114") as file:
        for name, values in columns(EPISODES, BLOCKS, SEED).items():
            pixels = name == "pixels"
            if pixels:
                values = np.repeat(np.repeat(values, enlarge, axis=1), enlarge, axis=2)  # noqa: PLW2901
            file.create_dataset(
                name,
                data=values,
                chunks=(1, *values.shape[1:]) if values.ndim > 1 else True,
                compression=hdf5plugin.Blosc(cname="lz4") if pixels else None,
            )


def submit(
    client: AcpcClient,
    anchors: int,
    *,
    draws: int = DRAWS,
    dataset: str = "small.h5",
    seed: int = 0,
) -> ScoreJob:
    """A job; another seed makes it another job."""
    return client.score_checkpoint(
        MODEL,
        DatasetAnchors(dataset, "two-room.yaml", count=anchors),
        SHIFT,
        protocol=ScoreProtocol(draws=draws, seed=seed),
    )


def seconds(*jobs: ScoreJob) -> float:
    """How long it takes from now until all jobs are done."""
    started = time.perf_counter()
    for job in jobs:
        job.result()
    return time.perf_counter() - started


def growth(
    measure: Callable[[int], object], size: int, rounds: int, server: ServerProcess
) -> dict[str, Any]:
    """What ``4 * size`` takes over what ``size`` does, in turns."""
    took = alternated(
        {str(n): lambda n=n: spent(lambda: measure(n), server.pid) for n in (size, 4 * size)},
        rounds,
    )
    small, large = took.values()
    return {
        "size": size,
        "seconds": min(turn.wall for turn in small),
        "seconds_of_four_times": min(turn.wall for turn in large),
        "ratio": ratio(large, small),
    }


def measure_times(root: Path, anchors: int, rounds: int) -> dict[str, Any]:
    """Ratios of time for anchors, draws and checkpoints."""
    with (
        ServerProcess(CHECKPOINTS, root, root / "times") as server,
        AcpcClient(server.address) as client,
    ):
        seconds(submit(client, 50))  # loads the checkpoint

        return {
            name: growth(measure, size, rounds, server)
            for name, measure, size in (
                ("anchors", lambda n: seconds(submit(client, n)), anchors),
                ("draws", lambda m: seconds(submit(client, anchors, draws=m)), DRAWS),
                (
                    "checkpoints",
                    lambda jobs: seconds(*(submit(client, anchors) for _ in range(jobs))),
                    1,
                ),
            )
        }


def measure_memory(root: Path, anchors: int) -> dict[str, Any]:
    """Memory of a job whose frames are many times what it may hold."""
    with (
        ServerProcess(CHECKPOINTS, root, root / "memory") as server,
        AcpcClient(server.address) as client,
    ):
        seconds(submit(client, 50, dataset="large.h5"))
        forget_peak(server.pid)
        before = memory(server.pid, "VmRSS")
        job = submit(client, anchors, dataset="large.h5")
        taken = seconds(job)
        peak = memory(server.pid, "VmHWM")
        started = time.perf_counter()
        client.preview_anchors(job, range(0, anchors, max(1, anchors // 16))[:16])
        previewed = time.perf_counter() - started
    with h5py.File(root / "large.h5") as file:
        frame = int(np.prod(file["pixels"].shape[1:]))
    return {
        "anchors": anchors,
        "frames_mib": anchors * 11 * frame / MIB,
        "seconds": taken,
        "before_mib": before / MIB,
        "peak_mib": peak / MIB,
        "growth_mib": (peak - before) / MIB,
        "record_mib": (root / "memory" / "jobs.sqlite").stat().st_size / MIB,
        "preview_of_16_seconds": previewed,
    }


def report(anchors: int = 200, rounds: int = ROUNDS, large: int = 5000) -> dict[str, Any]:
    """Times by the number of anchors, and memory with a large one."""
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        (root / "two-room.yaml").write_text((WORLD / "two-room.yaml").read_text())
        write_world(root / "small.h5", 1)
        write_world(root / "large.h5", 3)
        return {
            **measure_times(root, anchors, rounds),
            "memory": measure_memory(root, large),
        }


if __name__ == "__main__":
    run(report)
