"""Every processor second of a checkpoint job of the paper's size, and every one that a core idles.

    python benchmarks/job_account.py [--anchors 15] [--side 224] [--out FILE]

The job runs on a real server in this process, from an HDF5 file to its record. Functions of the
server are timed by their thread's clock, without what they call that is timed itself; of a device
call the threads count that help. Idle seconds are the cores' less the process's: they mean
something where nothing else runs. Frames of 224 pixels are not resized.

In turns with jobs, the device's thread computes one's network calls again, one after another: the
network alone, without what prepares and follows them, and without the rounding floor.
"""

from __future__ import annotations

import functools
import itertools
import os
import tempfile
import threading
import time
from collections import defaultdict
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import grpc
import numpy as np
from acpc.contract import DatasetAnchors, GaussianNoise, ScoreProtocol
from acpc.v1.diagnostic_service_pb2_grpc import DiagnosticServiceStub
from acpc_client import AcpcClient
from acpc_server.app import Server
from acpc_server.data import dataset_anchors
from acpc_server.encoding import anchors as encoding
from acpc_server.engine import device
from acpc_server.engine.host import HALF
from acpc_server.jobs.runs import JobRun
from acpc_server.scoring import score
from acpc_server.scoring.measuring import CheckpointMeasurement
from acpc_server.scoring.run import ScoreRun
from acpc_server.settings import Settings
from common import ROUNDS, Spent, alternated, run, spent, spread
from load import PAPER_SIDE, pair_request
from public_checkpoint import public_config, write_checkpoint
from public_dataset import public_columns, write_public_dataset

FLOOR = "the rounding floor"
PARTS: list[tuple[Any, str, str]] = [
    (encoding, "draw_views", "draws"),
    (encoding, "to_model_input", "normalising and resizing"),
    (encoding, "unchanged", "joining and comparing views"),
    (encoding.AnchorEncoder, "_prepare", "joining and comparing views"),
    (dataset_anchors.FileAnchors, "read_frames", "reading frames"),
    (dataset_anchors, "frame_digests", "digests"),
    (CheckpointMeasurement, "_part", "distances and summaries"),
    (score, "summarise_checkpoint", "distances and summaries"),
    (score, "evidence_of", "distances and summaries"),
    (ScoreRun, "_open", "reading frames"),
    (JobRun, "__call__", "the record"),
]


class Account:
    """Processor and wall seconds by part."""

    def __init__(self) -> None:
        self.seconds: dict[str, list[float]] = defaultdict(lambda: [0.0, 0.0])
        self._own = threading.local()

    def time(
        self, owner: object, name: str, part: Callable[..., str], *, helped: bool = False
    ) -> None:
        """Time a function, under the name that ``part`` makes of its arguments."""
        work = getattr(owner, name)

        @functools.wraps(work)
        def timed(*given: Any, **named: Any) -> Any:  # noqa: ANN401
            above, inner = getattr(self._own, "inner", [0.0, 0.0]), [0.0, 0.0]
            self._own.inner = inner
            began = clocks(helped=helped)
            try:
                return work(*given, **named)
            finally:
                whole = [now - then for now, then in zip(clocks(helped=helped), began, strict=True)]
                for place, seconds in enumerate(whole):
                    self.seconds[part(*given)][place] += seconds - inner[place]
                    above[place] += seconds
                self._own.inner = above

        setattr(owner, name, timed)


class Network:
    """The device calls of a job but for its rounding floor's, and what they take alone."""

    def __init__(self) -> None:
        self.calls: list[tuple[Any, ...]] = []
        self.keeps = self._wanted = False
        self._took = Spent(0.0, 0.0)
        compute = device.Device.compute

        def computed(*call: Any) -> Any:  # noqa: ANN401
            if self._wanted:
                self._wanted = False
                self._took = spent(lambda: [compute(*each) for each in self.calls])
            elif self.keeps and not device_part(*call).startswith(FLOOR):
                self.calls.append(call)
            return compute(*call)

        device.Device.compute = computed  # type: ignore[method-assign]

    def alone(self, pairs: DiagnosticServiceStub) -> Spent:
        """What the calls take: in the device's thread, for which any request will do."""
        self._wanted = True
        pairs.ComparePair(pair_request("paper", np.random.default_rng(), 1, PAPER_SIDE))
        return self._took


def clocks(*, helped: bool) -> tuple[float, float]:
    """Processor seconds of this thread, with those that help it if it is helped, and the time."""
    if not helped:
        return time.thread_time(), time.perf_counter()
    spent = time.process_time()
    for thread in threading.enumerate():
        if thread is not threading.current_thread() and not thread.name.startswith(HALF):
            with suppress(FileNotFoundError, ProcessLookupError):  # it has ended
                path = Path(f"/proc/self/task/{thread.native_id}/schedstat")
                spent -= int(path.read_text().split()[0]) / 1e9
    return spent, time.perf_counter()


def write_world(root: Path, side: int) -> None:
    """A checkpoint of the published size, and a dataset in the public layout."""
    write_checkpoint(root / "checkpoints" / "paper", public_config("paper"))
    (root / "data").mkdir()
    write_public_dataset(root / "data" / "tworoom.h5", public_columns((60, 70, 80), side=side))


def device_part(_: object, primitive: str, mode: object, *__: object) -> str:
    """The part of a device call."""
    name = "encoder" if primitive == "encode" else primitive
    return f"{FLOOR}: {name}" if str(mode) == "fp64" else name


def measure(root: Path, count: int, rounds: int) -> dict[str, Any]:
    """The account of a job on a server that has had one."""
    network, account = Network(), Account()
    account.time(device.Device, "compute", device_part, helped=True)
    for owner, name, part in PARTS:
        account.time(owner, name, lambda *_, part=part: part)
    server = Server(
        Settings(
            checkpoint_root=root / "checkpoints",
            dataset_root=root / "data",
            state_dir=root / "state",
            port=0,
            metrics_port=-1,
            lame_duck_seconds=0,
            preload="paper",
        )
    )
    server.start()
    seeds = itertools.count()
    address = f"127.0.0.1:{server.port}"
    floors: list[float] = []

    def score(client: AcpcClient, anchors: int, draws: int) -> Spent:
        account.seconds.clear()
        took = spent(
            client.score_checkpoint(
                "paper",
                DatasetAnchors("tworoom.h5", "tworoom", count=anchors),
                GaussianNoise(0.08),
                protocol=ScoreProtocol(draws=draws, seed=next(seeds)),
            ).result
        )
        floors.append(sum(w for part, (_, w) in account.seconds.items() if part.startswith(FLOOR)))
        return took

    with AcpcClient(address) as client, grpc.insecure_channel(address) as channel:
        score(client, 8, 1)
        network.keeps = True
        whole = score(client, count, 5)
        network.keeps = False
        parts = {part: seconds for part, (seconds, _) in account.seconds.items()}
        floors.clear()
        pairs = DiagnosticServiceStub(channel)
        ways = {"job": lambda: score(client, count, 5), "network": lambda: network.alone(pairs)}
        turns = alternated(ways, rounds)
    server.stop()
    cores = len(os.sched_getaffinity(0))
    turn_by_turn = zip(turns["job"], floors, turns["network"], strict=True)
    return {
        "anchors": count,
        "processor_seconds": whole.processor,
        "wall_seconds": whole.wall,
        "idle_core_seconds": cores * whole.wall - whole.processor,
        "busy": spread([t.processor / (cores * t.wall) for t in turns["job"]]),
        "parts": {**parts, "the server beside it": whole.processor - sum(parts.values())},
        "network": {name: spread([t.wall for t in each]) for name, each in turns.items()},
        "over_network": spread([(a.wall - floor) / b.wall for a, floor, b in turn_by_turn]),
    }


def report(anchors: int = 15, side: int = 224, rounds: int = ROUNDS) -> dict[str, Any]:
    """Jobs of frames of so many pixels, some of them in turns with their networks."""
    with tempfile.TemporaryDirectory() as folder:
        write_world(Path(folder), side)
        return measure(Path(folder), anchors, rounds)


if __name__ == "__main__":
    run(report)
