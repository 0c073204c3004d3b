"""A job that is larger than its host's memory fails, and the jobs behind it run."""

import resource
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import grpc
import h5py
import pytest
from google.rpc import code_pb2, error_details_pb2
from job_world import JobCaller, job, write_job_world
from waiting import GENEROUS_SECONDS

T = TypeVar("T")

pytestmark = pytest.mark.slow  # a server waits between its tries
SIDE = 2760  # 251 MB an anchor, of which the file holds nothing
ROOM = 300 * 2**20  # what a server that takes messages has at least is 256 MiB
DATA = {"task": "tworoom", "count": 10}


def write_large_frames(source: Path, target: Path) -> None:
    with h5py.File(source) as small, h5py.File(target, "w") as large:
        for name, values in small.items():
            if name == "pixels":
                shape = len(values), SIDE, SIDE, 3
                large.create_dataset(name, shape, "uint8", chunks=(1, SIDE, SIDE, 3))
            else:
                large[name] = values[...]


def patient(call: Callable[[], T]) -> T:
    """Ask until the server has room for the message; the job holds it at times."""
    end = time.monotonic() + GENEROUS_SECONDS
    while True:
        try:
            return call()
        except grpc.RpcError as error:
            if error.code() != grpc.StatusCode.RESOURCE_EXHAUSTED or time.monotonic() > end:
                raise
            time.sleep(0.2)


def test_a_job_without_memory_fails_and_the_next_one_runs(tmp_path: Path) -> None:
    world = write_job_world(tmp_path)
    write_large_frames(world.datasets / "rooms.h5", world.datasets / "large.h5")
    with world.server("state") as server, grpc.insecure_channel(server.address) as channel:
        calls = JobCaller(channel)
        small = job("before", dataset={**DATA, "dataset": "rooms.h5"}, reference=None)
        calls.result(small)
        pages = int(Path(f"/proc/{server.pid}/statm").read_text().split()[0])
        size = pages * resource.getpagesize() + ROOM
        resource.prlimit(server.pid, resource.RLIMIT_AS, (size, resource.RLIM_INFINITY))
        large = job("large", dataset={**DATA, "dataset": "large.h5"}, reference=None)
        done = patient(lambda: calls.finished(calls.submit(large).name))
        info = error_details_pb2.ErrorInfo()
        assert done.error.details[0].Unpack(info), done
        assert (done.error.code, info.reason) == (code_pb2.RESOURCE_EXHAUSTED, "JOB_TOO_LARGE")
        small.request_id = "behind"
        patient(lambda: calls.result(small))
        assert server.bugs() == []
