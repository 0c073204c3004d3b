"""Threads of device calls, whose count is nobody else's, and the memory that a process keeps."""

import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import processes
import pytest
import torch
from acpc_server.engine.host import THREADED_WORK, by_work
from torch import Tensor

THREADS = 3
ROW = torch.zeros(1, 1)
CHECKPOINTS = Path(__file__).parents[3] / "examples/two_room/checkpoints"
# Threads that are not Python's, beyond those of the imports, once a device has computed.
DEVICE = f"""
import os
import sys
import threading
from pathlib import Path
import torch
from acpc.contract import NumericMode
from acpc_server.engine import DeviceClient, host
from acpc_server.models import load_checkpoint
from acpc_server.observe import Metrics
from acpc_server.scheduling import Priority, RequestContext


def native():
    return len(os.listdir("/proc/self/task")) - threading.active_count()


torch.set_num_threads({THREADS})
host.THREADED_WORK = 0  # the demo's network is small
before, cpu = native(), torch.device("cpu")
engine = DeviceClient(cpu, Metrics(), threads={THREADS})
torch.set_num_threads(1)  # as the server does
model = load_checkpoint(Path(sys.argv[1]), "two-room-base", device=cpu)
frames, context = torch.rand(256, 3, 32, 32), RequestContext(Priority.JOB)
engine.encode(model, frames, context, NumericMode.FP32)
print(native() - before)
"""


@pytest.fixture(autouse=True)
def threads() -> Iterator[None]:
    """This thread has several, and gives them back."""
    before = torch.get_num_threads()
    torch.set_num_threads(THREADS)
    yield
    torch.set_num_threads(before)


def counted(rows: Tensor) -> Tensor:
    """The thread's count, for each row."""
    return torch.full((len(rows),), torch.get_num_threads())


@pytest.mark.parametrize(
    ("work", "rows", "expected"),
    [(THREADED_WORK, 1, THREADS), (THREADED_WORK / 2, 1, 1), (THREADED_WORK / 2, 2, THREADS)],
)
def test_threads_follow_the_size_of_the_call(work: float, rows: int, expected: int) -> None:
    assert by_work(work, counted)(torch.zeros(rows, 1)).tolist() == [expected] * rows
    assert torch.get_num_threads() == THREADS


def test_a_call_that_fails_gives_its_threads_back() -> None:
    def fail(rows: Tensor) -> Tensor:
        raise ValueError(rows)

    with pytest.raises(ValueError, match="tensor"):
        by_work(0.0, fail)(ROW)
    assert torch.get_num_threads() == THREADS


def test_a_thread_that_starts_meanwhile_keeps_the_default() -> None:
    seen: list[int] = []

    def start_another(rows: Tensor) -> Tensor:
        other = threading.Thread(target=lambda: seen.append(torch.get_num_threads()))
        other.start()
        other.join()
        return rows

    by_work(0.0, start_another)(ROW)
    assert seen == [THREADS], "torch's own setter would have given it one"


@pytest.mark.process
def test_a_device_has_the_only_team_of_threads() -> None:
    """With a second team, OpenMP has threads that wait in either sleep at once, whatever is set."""
    code = [sys.executable, "-c", DEVICE, CHECKPOINTS]
    *_, last = processes.run(code, imported="acpc-server").stdout.splitlines()
    assert last == f"{THREADS - 1}"
