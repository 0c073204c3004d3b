"""Every processor second of a checkpoint job of the paper's size, and every one that a core idles.

    python benchmarks/job_account.py [--anchors 15] [--side 224] [--out FILE]

The job runs on a real server in this process, from an HDF5 file to its record. Functions of the
server are timed by their thread's clock, without what they call that is timed itself; of a device
call the threads count that help. Idle seconds are the cores' less the process's: they mean
something where nothing else runs. Frames of 224 pixels are not resized.
"""

from __future__ import annotations

import functools
import os
import tempfile
import threading
import time
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

from acpc.contract import DatasetAnchors, GaussianNoise, ScoreProtocol
from acpc_client import AcpcClient
from acpc_server.app import Server
from acpc_server.data import dataset_anchors
from acpc_server.encoding import anchors as encoding
from acpc_server.engine import device
from acpc_server.engine.host import keep_freed_memory
from acpc_server.jobs.runs import JobRun
from acpc_server.scoring import score
from acpc_server.scoring.measuring import Measurement
from acpc_server.scoring.run import ScoreRun
from acpc_server.settings import Settings
from common import parser, publish
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
    (Measurement, "_part", "distances and summaries"),
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


def clocks(*, helped: bool) -> tuple[float, float]:
    """Processor seconds of this thread, with those of OpenMP's if it is helped, and the time."""
    spent = time.thread_time()
    if helped:
        python = {thread.native_id for thread in threading.enumerate()}
        for task in Path("/proc/self/task").iterdir():
            if int(task.name) not in python:
                spent += int((task / "schedstat").read_text().split()[0]) / 1e9
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


def measure(root: Path, count: int) -> dict[str, Any]:
    """The account of a job on a server that has had one."""
    account = Account()
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
    with AcpcClient(f"127.0.0.1:{server.port}") as client:
        for anchors, draws in ((8, 1), (count, 5)):
            account.seconds.clear()
            processor, wall = time.process_time(), time.perf_counter()
            client.score_checkpoint(
                "paper",
                DatasetAnchors("tworoom.h5", "tworoom", count=anchors),
                GaussianNoise(0.08),
                protocol=ScoreProtocol(draws=draws),
            ).result()
            processor = time.process_time() - processor
            wall = time.perf_counter() - wall
    server.stop()
    parts = {part: spent for part, (spent, _) in account.seconds.items()}
    network = parts["encoder"] + parts["rollout"]
    floor = sum(spent for part, spent in parts.items() if part.startswith(FLOOR))
    cores = len(os.sched_getaffinity(0))
    return {
        "anchors": count,
        "processor_seconds": processor,
        "wall_seconds": wall,
        "idle_core_seconds": cores * wall - processor,
        "parts": {
            **parts,
            "the server beside it": processor - sum(parts.values()),
        },
        "device_wall_seconds": sum(
            seconds
            for part, (_, seconds) in account.seconds.items()
            if part in ("encoder", "rollout")
        ),
        "beyond_the_network": (processor - floor) / network,
    }


def main() -> None:
    """Command line entry."""
    arguments = parser(__doc__, "job_account")
    arguments.add_argument("--anchors", type=int, default=15, help="default: %(default)s")
    arguments.add_argument("--side", type=int, default=224, help="pixels of a frame")
    options = arguments.parse_args()
    keep_freed_memory()
    with tempfile.TemporaryDirectory() as folder:
        write_world(Path(folder), options.side)
        report = measure(Path(folder), options.anchors)
    publish(report, options.out)


if __name__ == "__main__":
    main()
