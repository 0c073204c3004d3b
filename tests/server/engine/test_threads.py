"""Threads of device calls, whose count is nobody else's."""

import sys
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import processes
import pytest
import torch
from acpc.contract import NumericMode
from acpc_server.engine import DeviceClient
from acpc_server.engine.accelerator import own_threads
from acpc_server.observe import Metrics
from acpc_server.scheduling import Priority, RequestContext
from plain_model import CARD, PlainModel

THREADS = 3
CHECKPOINTS = Path(__file__).parents[3] / "examples/two_room/checkpoints"
# Threads that are not Python's, beyond those of the imports, once a device has computed.
DEVICE = f"""
import os
import sys
import threading
from pathlib import Path
import torch
from acpc.contract import NumericMode
from acpc_server.engine import DeviceClient, owner
from acpc_server.models import load_checkpoint
from acpc_server.observe import Metrics
from acpc_server.scheduling import Priority, RequestContext


def native():
    return len(os.listdir("/proc/self/task")) - threading.active_count()


torch.set_num_threads({THREADS})
owner.THREADED_WORK = 0  # the demo's network is small
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


def test_a_block_has_threads_of_its_own_and_gives_them_back() -> None:
    seen: list[int] = []
    with pytest.raises(ValueError, match="it"), own_threads(1):
        assert torch.get_num_threads() == 1
        other = threading.Thread(target=lambda: seen.append(torch.get_num_threads()))
        other.start()
        other.join()
        raise ValueError("it")
    assert torch.get_num_threads() == THREADS
    assert seen == [THREADS], "torch's own setter would have given it one"


@pytest.mark.parametrize(("parameters", "expected"), [(1, 1), (10**11, THREADS)])
def test_threads_follow_the_size_of_the_call(parameters: int, expected: int) -> None:
    seen: list[int] = []
    engine = DeviceClient(torch.device("cpu"), Metrics(), threads=THREADS)
    model = PlainModel(lambda _: seen.append(torch.get_num_threads()))
    model.card = replace(CARD, parameter_count=parameters)
    context = RequestContext(Priority.INTERACTIVE)
    engine.encode(model, torch.zeros(1, 3, 8, 8), context, NumericMode.FP32)
    engine.close()
    assert seen == [expected]


@pytest.mark.process
def test_a_device_has_the_only_team_of_threads() -> None:
    """With a second team, OpenMP has threads that wait in either sleep at once, whatever is set."""
    code = [sys.executable, "-c", DEVICE, CHECKPOINTS]
    *_, last = processes.run(code, imported="acpc-server").stdout.splitlines()
    assert last == f"{THREADS - 1}"
