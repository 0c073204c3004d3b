"""A server whose device fails says so, keeps nobody waiting, and ends, to be started again.

``-s`` prints the seconds of docs/operate/recover.md.
"""

import resource
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import grpc
import numpy as np
import processes
import pytest
from acpc.v1 import diagnostic_service_pb2_grpc
from acpc_server.app import SERVICES
from acpc_server.rpc.probes import LIVENESS
from acpc_server.watchdog import DEVICE_FAILED
from faulty_world import FaultyWorld, write_faulty_world
from grpc_health.v1 import health_pb2, health_pb2_grpc
from server_process import ServerProcess
from waiting import GENEROUS_SECONDS, wait_until
from wire import HISTORY, Refusal, frames, pair, refusal, tensor

pytestmark = pytest.mark.process
SERVING = health_pb2.HealthCheckResponse.SERVING
NOT_SERVING = health_pb2.HealthCheckResponse.NOT_SERVING


@pytest.fixture(scope="module")
def faulty(tmp_path_factory: pytest.TempPathFactory) -> FaultyWorld:
    return write_faulty_world(tmp_path_factory.mktemp("faulty"))


class Asked:
    def __init__(self, process: ServerProcess, channel: grpc.Channel) -> None:
        self.process = process
        self.pair = diagnostic_service_pb2_grpc.DiagnosticServiceStub(channel).ComparePair
        self._health = health_pb2_grpc.HealthStub(channel)

    def compare(self, seed: int = 1) -> Refusal | None:
        """How a call is refused, without a deadline of the caller's."""
        history = tensor(frames(HISTORY, seed=seed))
        return refusal(lambda: self.pair(pair(checkpoint={"name": "model"}, history=history)))

    def health(self, service: str = "") -> int:
        """The status, or NOT_SERVING once nobody answers."""
        try:
            return self._health.Check(health_pb2.HealthCheckRequest(service=service)).status
        except grpc.RpcError:
            return NOT_SERVING


@contextmanager
def asked(process: ServerProcess) -> Iterator[Asked]:
    with process, grpc.insecure_channel(process.address) as channel:
        server = Asked(process, channel)
        assert server.compare() is None
        yield server


@pytest.mark.parametrize(
    ("fault", "written"), [("poison", "failed"), ("nan", "failed"), ("hang", "in encode")]
)
def test_a_device_that_fails_or_hangs_takes_the_server_out(
    faulty: FaultyWorld, fault: str, written: str
) -> None:
    """All that wait are answered; of a call that hangs the stacks say where."""
    with (
        asked(faulty.server(fault, device_call_seconds=3)) as server,
        ThreadPoolExecutor(4) as pool,
    ):
        names = ["", LIVENESS, *SERVICES]
        assert [server.health(name) for name in names] == [SERVING] * len(names)
        faulty.inject(fault, fault)
        started = time.monotonic()
        for refused in pool.map(server.compare, (2, 3), timeout=GENEROUS_SECONDS):
            assert (refused.code, refused.reason) == ("UNAVAILABLE", "DEVICE_FAILED")
        wait_until(lambda: server.health() == NOT_SERVING)
        unready = time.monotonic() - started
        assert server.process.wait() == DEVICE_FAILED
        gone = time.monotonic() - started
        print(f"{fault}: NOT_SERVING after {unready:.1f} s, gone after {gone:.1f} s")
        events = [str(line["event"]) for line in server.process.log()]
        assert any(written in event for event in events)
        assert server.process.bugs() == []


BROKEN = """
import torch
from torch.nn import functional
right = functional.linear
functional.linear = lambda x, *given: right(x, *given) * (1 + (x.dtype is torch.float32) / 100)
from acpc_server.cli import main
main()
"""


def test_a_device_that_is_broken_at_the_start_serves_nobody(faulty: FaultyWorld) -> None:
    command = [sys.executable, "-c", BROKEN, *faulty.server("broken").command[1:]]
    done = processes.run(command, check=False, imported="acpc-server", seconds=GENEROUS_SECONDS)
    assert done.returncode == DEVICE_FAILED
    assert "fails its self-test: fp32 is off by" in done.stderr.splitlines()[-1]
    assert "serving" not in done.stderr and "Traceback" not in done.stderr


def test_a_server_short_of_memory_rejects_and_stays(faulty: FaultyWorld) -> None:
    """Large messages would take all that its address space may still grow."""
    views = tensor(np.zeros((80, HISTORY, 200, 200, 3), np.uint8))
    large = pair(history=tensor(frames(HISTORY, height=200, width=200)), explicit_views=views)
    with asked(faulty.server("memory")) as server:
        pid = server.process.pid
        pages = int(Path(f"/proc/{pid}/statm").read_text().split()[0])
        size = pages * resource.getpagesize() + 200 * 2**20
        _, hard = resource.prlimit(pid, resource.RLIMIT_AS, (size, resource.RLIM_INFINITY))
        with ThreadPoolExecutor(12) as pool:
            refused = pool.map(lambda _: refusal(lambda: server.pair(large)), range(12))
            assert "HOST_SHORTAGE" in [one.reason for one in refused if one]
        resource.prlimit(pid, resource.RLIMIT_AS, (hard, hard))
        assert server.compare(seed=2) is None
        assert server.health() == SERVING
