"""A server whose device fails says so, keeps nobody waiting, and ends, to be started again.

``-s`` prints the seconds of docs/operate/recover.md.
"""

import os
import resource
import signal
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import grpc
import numpy as np
import pytest
from acpc.v1 import diagnostic_service_pb2_grpc
from acpc_server.app import SERVICES
from acpc_server.rpc.probes import LIVENESS
from acpc_server.watchdog import DEVICE_FAILED
from faulty_world import SOUND, FaultyWorld, write_faulty_world
from grpc_health.v1 import health_pb2, health_pb2_grpc
from server_process import ServerProcess
from waiting import GENEROUS_SECONDS, wait_until
from wire import HISTORY, frames, pair, refusal, tensor

pytestmark = pytest.mark.process
SERVING = health_pb2.HealthCheckResponse.SERVING
NOT_SERVING = health_pb2.HealthCheckResponse.NOT_SERVING


@pytest.fixture(scope="module")
def faulty(tmp_path_factory: pytest.TempPathFactory) -> FaultyWorld:
    return write_faulty_world(tmp_path_factory.mktemp("faulty"))


class Asked:
    """A server that answers, and what it says."""

    def __init__(self, process: ServerProcess, channel: grpc.Channel) -> None:
        self.process = process
        stub = diagnostic_service_pb2_grpc.DiagnosticServiceStub(channel)
        self.pair = stub.ComparePair
        self._health = health_pb2_grpc.HealthStub(channel)

    def compare(self, checkpoint: str = "model", seed: int = 1) -> object:
        """Without a deadline of the caller's: it has an answer nevertheless."""
        return self.pair(
            pair(checkpoint={"name": checkpoint}, history=tensor(frames(HISTORY, seed=seed)))
        )

    def health(self, service: str = "") -> int:
        """The status, or NOT_SERVING once nobody answers."""
        try:
            return self._health.Check(health_pb2.HealthCheckRequest(service=service)).status
        except grpc.RpcError:
            return NOT_SERVING

    def seconds_until_gone(self, since: float, label: str) -> None:
        """Wait for the verdict and the end, and print when they came."""
        wait_until(lambda: self.health() == NOT_SERVING)
        unready = time.monotonic() - since
        code = self.process.wait()
        gone = time.monotonic() - since
        print(f"{label}: NOT_SERVING after {unready:.1f} s, gone after {gone:.1f} s, exit {code}")
        assert code == DEVICE_FAILED


@contextmanager
def asked(process: ServerProcess) -> Iterator[Asked]:
    with process, grpc.insecure_channel(process.address) as channel:
        server = Asked(process, channel)
        server.compare()
        yield server


def told(answer: Callable[[], object]) -> tuple[str, str]:
    status = refusal(answer)
    return status.code, status.reason


@pytest.mark.parametrize("fault", ["poison", "nan"])
def test_a_device_that_fails_takes_the_server_out(faulty: FaultyWorld, fault: str) -> None:
    with asked(faulty.server(fault)) as server:
        names = ["", LIVENESS, *SERVICES]
        assert [server.health(name) for name in names] == [SERVING] * len(names)
        faulty.inject(fault, fault)
        started = time.monotonic()
        assert told(lambda: server.compare(seed=2)) == ("UNAVAILABLE", "DEVICE_FAILED")
        server.seconds_until_gone(started, fault)
        wait_until(lambda: any(line["event"] == "failed" for line in server.process.log()))
        assert server.process.bugs() == []


def test_a_call_that_hangs_is_ended_with_all_that_wait(faulty: FaultyWorld) -> None:
    with (
        asked(faulty.server("hang", device_call_seconds=3)) as server,
        ThreadPoolExecutor(4) as pool,
    ):
        faulty.inject("hang", "hang")
        started = time.monotonic()
        calls: list[Future[tuple[str, str]]] = [
            pool.submit(told, lambda seed=seed: server.compare(seed=seed)) for seed in (2, 3)
        ]
        for call in calls:
            assert call.result(GENEROUS_SECONDS) == ("UNAVAILABLE", "DEVICE_FAILED")
        server.seconds_until_gone(started, "hang")
        written = "\n".join(str(line["event"]) for line in server.process.log())
        assert "in encode" in written, "the stacks say where it hangs"


@pytest.mark.parametrize("fault", ["bug", "exit"])
def test_a_bug_of_one_family_leaves_the_server_to_the_others(
    faulty: FaultyWorld, fault: str
) -> None:
    with asked(faulty.server(fault)) as server:
        faulty.inject(fault, fault)
        for seed in range(2, 5):
            assert told(lambda seed=seed: server.compare(seed=seed))[0] == "INTERNAL"
            server.compare(SOUND, seed=seed)
        assert server.health() == SERVING


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
        server.compare(seed=2)
        assert server.health() == SERVING


@pytest.mark.nightly  # tests/server/test_watchdog.py has it without the seconds
def test_a_server_that_was_stopped_does_not_leave(faulty: FaultyWorld) -> None:
    """Stopped in the middle of a device call, for longer than one may take."""
    bound, stopped_seconds = 20, 25
    with (
        asked(faulty.server("stopped", device_call_seconds=bound)) as server,
        ThreadPoolExecutor(1) as pool,
    ):
        faulty.inject("stopped", "hang")
        call = pool.submit(server.compare, seed=2)
        wait_until(lambda: faulty.hangs("stopped"))
        os.kill(server.process.pid, signal.SIGSTOP)
        time.sleep(stopped_seconds)
        os.kill(server.process.pid, signal.SIGCONT)
        with pytest.raises(TimeoutError):  # within some looks of the watchdog
            call.result(3)
        faulty.inject("stopped", "")
        assert call.result(GENEROUS_SECONDS) is not None
        assert server.health() == SERVING
