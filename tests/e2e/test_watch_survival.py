"""A watch outlives kill -9 of itself and of its server: each checkpoint is scored exactly once."""

import contextlib
import json
import random
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from subprocess import DEVNULL
from typing import Any

import processes
import pytest
from acpc_client.sync.client import AcpcClient
from acpc_lab.sweeps import SweepResults, TaskState
from job_world import JobWorld, write_job_world
from public_checkpoint import public_config, write_checkpoint
from server_process import ServerProcess, free_port
from waiting import GENEROUS_SECONDS, wait_until

EPOCHS = 5
SHIFTS = 2
KILLS = (
    ("watcher", "arrived", 1),
    ("server", "submitted", 2),
    ("watcher", "submitted", 4),
    ("server", "ended", 4),
    ("watcher", "reported", 3),
)
"""What is killed a moment after how many events of a kind are in the journal."""
ACPC = str(Path(sys.executable).with_name("acpc"))


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> JobWorld:
    return write_job_world(tmp_path_factory.mktemp("watched"))


@pytest.fixture
def server(world: JobWorld) -> Iterator[ServerProcess]:
    """A server that is always found at the same port."""
    with world.server("state", port=free_port()) as process:
        yield process
        assert process.bugs() == []


def write_file(world: JobWorld) -> Path:
    """A sweep file whose checkpoints are the epochs of a run."""
    group = {"name": "runs/7", "weights": "weights_epoch_{epoch}.pt", "reference": "base"}
    document = {
        "name": "gate",
        "checkpoints": [group],
        "anchors": {"dataset": "rooms.h5", "task": "tworoom", "count": 20},
        "shifts": [{"gaussian_noise": [0.02, 0.08]}],
    }
    file = world.root / "gate.yaml"
    file.write_text(json.dumps(document))
    return file


def write_slowly(content: bytes, file: Path, wait: threading.Event) -> None:
    """Write a file part by part, as a trainer does over a network."""
    with file.open("wb") as opened:
        for start in range(0, len(content), len(content) // 4):
            opened.write(content[start : start + len(content) // 4])
            opened.flush()
            wait.wait(0.05)


@contextmanager
def training(world: JobWorld) -> Iterator[threading.Event]:
    """Epochs that appear while the block lasts; the event is set once all are there."""
    folder, stop, done = world.checkpoints / "runs/7", threading.Event(), threading.Event()
    folder.mkdir(parents=True)
    written = [
        write_checkpoint(world.root / f"epoch{epoch}", public_config(), seed=epoch)
        for epoch in range(EPOCHS)
    ]
    (folder / "config.json").write_bytes((written[0] / "config.json").read_bytes())

    def train() -> None:
        for epoch, source in enumerate(written):
            content = (source / "weights.pt").read_bytes()
            write_slowly(content, folder / f"weights_epoch_{epoch}.pt", stop)
        done.set()

    trainer = threading.Thread(target=train)
    trainer.start()
    try:
        yield done
    finally:
        stop.set()
        trainer.join()


def events(file: Path) -> Counter[str]:
    """How many cells have each kind of event in the journal; a line half written counts not."""
    journal = file.with_name("gate.watch") / "journal.jsonl"
    if not journal.exists():
        return Counter()
    lines = map(json.loads, journal.read_bytes().split(b"\n")[:-1])
    return Counter(kind for kind, _ in {(kind_of(line), line["cell"]) for line in lines})


def kind_of(line: dict[str, Any]) -> str:
    """A job that moved is ended or submitted, where the server has it."""
    if line["event"] != "moved":
        return str(line["event"])
    return "ended" if TaskState(line["state"]).done else "submitted" * ("operation" in line)


@pytest.mark.slow
def test_kills_at_random_moments_double_nothing_and_lose_nothing(
    world: JobWorld, server: ServerProcess
) -> None:
    file, moment = write_file(world), random.Random(15)
    command = [ACPC, "watch", str(world.checkpoints / "runs"), "--prefix", "runs"]
    command += ["--sweep", str(file), "--target", server.address, "--interval", "0.1"]

    with training(world) as done, contextlib.ExitStack() as watching:
        watched = False
        for victim, kind, count in KILLS:
            if not watched:
                watching.enter_context(processes.running(command, stdout=DEVNULL, stderr=DEVNULL))
            wait_until(lambda kind=kind, count=count: events(file)[kind] >= count)
            time.sleep(moment.uniform(0.0, 0.2))
            watched = victim == "server"
            if watched:
                server.kill()
                server.restart()
            else:
                watching.close()  # kill -9
        assert done.wait(GENEROUS_SECONDS)
    processes.run([*command, "--once"], check=False)

    with AcpcClient(server.address) as client:
        names = [operation.name for operation in client.operations.list()]
    assert len(names) == EPOCHS * SHIFTS
    results = SweepResults.open(file.with_name("gate.watch"))
    scored = Counter(item.cell.checkpoint.weights for item in results)
    assert scored == {f"weights_epoch_{epoch}.pt": SHIFTS for epoch in range(EPOCHS)}
    assert {item.state for item in results} == {TaskState.SUCCEEDED}
    assert {item.operation for item in results} == set(names)
    assert {item.attempt for item in results} == {1}
    assert not results.inconsistencies
    assert events(file)["arrived"] == events(file)["reported"] == EPOCHS
