"""A worker process a device behind one port: killed, told to stop, and asked as one server."""

import asyncio
import os
import queue
import re
import signal
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

import grpc
import planning_wire as planning
import processes
import pytest
import wire
from acpc.v1 import diagnostic_service_pb2 as pb
from acpc.v1.diagnostic_service_pb2_grpc import DiagnosticServiceStub
from acpc_client import AsyncAcpcClient, GaussianNoise, Tls
from acpc_client.errors import Unavailable
from acpc_client.retries import RetryPolicy
from acpc_client.sync.client import AcpcClient
from credentials import Authority
from google.rpc import code_pb2
from grpc_health.v1 import health_pb2, health_pb2_grpc
from job_world import JobCaller
from served_world import ServedWorld
from server_process import ServerProcess
from waiting import GENEROUS_SECONDS, wait_until

pytestmark = pytest.mark.slow  # kills servers
WORKERS = ("cpu-0", "cpu-1")
Answer = health_pb2.HealthCheckResponse
ALONE = [("grpc.use_local_subchannel_pool", 1)]


class Session:
    """A planning session on a connection of its own, opened."""

    def __init__(self, server: ServerProcess) -> None:
        self.channel = grpc.insecure_channel(server.address, ALONE)
        self.messages: queue.SimpleQueue[pb.PlanRequest | None] = queue.SimpleQueue()
        asked = iter(self.messages.get, None)
        self.answers: Iterator[pb.PlanResponse] = DiagnosticServiceStub(self.channel).Plan(
            asked, timeout=GENEROUS_SECONDS
        )
        self.messages.put(planning.start())
        next(self.answers)

    def certify(self) -> pb.PlanResponse:
        self.messages.put(planning.explicit(planning.pool()))
        return next(self.answers)

    def close(self) -> None:
        self.messages.put(None)
        self.channel.close()


def value(text: str, name: str, *labels: str) -> float:
    """Of the one series with this name and these labels; 0 where there is none."""
    lines = [line for line in text.splitlines() if line.startswith(name + "{")]
    found = [line for line in lines if all(label in line for label in labels)]
    assert len(found) <= 1, found
    return float(found[0].rpartition(" ")[2]) if found else 0.0


def sessions(server: ServerProcess, worker: str) -> float:
    names = ('grpc_method="Plan"', f'worker="{worker}"')
    return value(server.metrics(), "grpc_server_started_total", *names)


def of(event: str, worker: str, server: ServerProcess) -> list[dict[str, object]]:
    return [
        line
        for line in server.log()
        if line["event"] == event and worker in (line.get("of"), line.get("worker"))
    ]


def running(pid: int) -> bool:
    """Whether a thread of a process runs; the first may end while others hold its sockets."""
    try:
        states = [task.read_text() for task in Path(f"/proc/{pid}/task").glob("*/stat")]
    except (FileNotFoundError, ProcessLookupError):
        return True  # one of them has just ended
    return any(state.rpartition(")")[2].split()[0] not in "ZX" for state in states)


def status(health: health_pb2_grpc.HealthStub) -> int:
    return int(health.Check(health_pb2.HealthCheckRequest(), timeout=GENEROUS_SECONDS).status)


def freeze(server: ServerProcess, worker: str) -> None:
    """A worker that hangs is killed, and blocks nobody for longer than a call usually may take.

    On connections that are open, and on new ones.
    """
    with ExitStack() as opened:
        clients = [opened.enter_context(AcpcClient(server.address)) for _ in range(8)]
        for client in clients:
            assert client.checkpoints.list()
        started = of("worker_started", worker, server)
        os.kill(int(str(started[-1]["pid"])), signal.SIGSTOP)
        fresh = [opened.enter_context(AcpcClient(server.address)) for _ in range(8)]
        with ThreadPoolExecutor(16) as pool:
            answers = pool.map(lambda client: client.checkpoints.list(), clients + fresh)
            assert all(map(list, answers))
        server.wait_for_log(lambda line: line["event"] == "worker_hung")
        wait_until(lambda: len(of("worker_serving", worker, server)) == len(started) + 1)


def test_a_killed_worker_costs_its_sessions_and_a_frozen_one_nothing(
    world: ServedWorld, tmp_path: Path
) -> None:
    with world.server(tmp_path, devices="cpu,cpu") as server, ExitStack() as opened:
        channel = opened.enter_context(grpc.insecure_channel(server.address, ALONE))
        jobs = JobCaller(channel)
        name = jobs.submit(
            wire.score(
                dataset={"dataset": "tworoom.h5", "task": "tworoom", "count": 30},
                protocol={"draws": 100},
            )
        ).name
        line = server.wait_for_log(lambda line: line["event"] == "job_step")
        runner = str(line["worker"])
        (other,) = set(WORKERS) - {runner}
        open_sessions: list[Session] = []
        counts = [0.0, 0.0]

        def counted() -> bool:
            counts[:] = [sessions(server, worker) for worker in (runner, other)]
            return sum(counts) >= len(open_sessions)

        while not all(counts):
            assert len(open_sessions) < 60, "sixty connections came to one worker"
            open_sessions.append(Session(server))
            opened.callback(open_sessions[-1].close)
            # The page of series may be one that was made for an earlier question.
            wait_until(counted, "a session is not counted")

        killed = int(str(of("worker_started", runner, server)[-1]["pid"]))
        os.kill(killed, signal.SIGKILL)
        wait_until(lambda: not running(killed), "it still holds its connections")

        ended = []
        for session in open_sessions:
            try:
                session.certify()
                ended.append("OK")
            except grpc.RpcError as error:
                ended.append(error.code().name)
        assert set(ended) == {"OK", "UNAVAILABLE"}
        with AcpcClient(server.address, retry=RetryPolicy(attempts=5)) as client:
            assert client.checkpoints.list()
        with grpc.insecure_channel(server.address, ALONE) as fresh:
            assert status(health_pb2_grpc.HealthStub(fresh)) == Answer.SERVING
            done = JobCaller(fresh).finished(name)
            assert done.error.code == code_pb2.OK, done.error
        wait_until(lambda: len(of("worker_serving", runner, server)) == 2)
        wait_until(lambda: value(server.metrics(), "acpc_worker_up", f'worker="{runner}"') == 1)
        text = server.metrics()
        assert value(text, "acpc_worker_starts_total", f'worker="{runner}"') == 2
        assert value(text, "acpc_worker_starts_total", f'worker="{other}"') == 1
        families = re.findall(r"^# TYPE (\S+)", text, re.MULTILINE)
        assert len(families) == len(set(families))
        freeze(server, other)
        # Loading comes before logs are set up.
        told = [line for line in server.log() if line["event"] != "loading"]
        assert {line.get("worker") for line in told} == {*WORKERS, "supervisor"}
        assert server.bugs() == []
        pids = [int(str(of("worker_started", name, server)[-1]["pid"])) for name in WORKERS]
        os.kill(server.pid, signal.SIGKILL)
        wait_until(lambda: not any(map(running, pids)), "workers outlive their supervisor")


def test_clients_outlast_the_only_worker_and_are_told_of_the_end(
    world: ServedWorld, tmp_path: Path
) -> None:
    authority = Authority()
    certificate, key = authority.issue("localhost").write(tmp_path, "server")
    tls = Tls(authority.write(tmp_path, "ca")[0])
    flags = {"tls_certificate": certificate, "tls_key": key, "lame_duck_seconds": 3600}
    patient = RetryPolicy(attempts=10**6, maximum=0.5)
    shift, arguments = GaussianNoise(0.1), ("lewm", wire.frames(2), wire.blocks(3))
    given = {"tls": tls, "retry": patient, "timeout": 3 * GENEROUS_SECONDS}
    moment = {"goal": wire.frames(1)[0], "perturbations": shift}

    async def in_a_loop(server: ServerProcess, kill: Callable[[], None]) -> None:
        async with (
            AsyncAcpcClient(server.address, **given) as client,
            client.plan("lewm", wire.frames(1), **moment) as session,
        ):
            await session.certify(planning.pool())
            kill()
            with pytest.raises(Unavailable, match="open another") as ended:
                await session.certify(planning.pool())
            assert ended.value.retry_after
            assert (await client.compare_pair(*arguments, perturbations=shift)).results

    with (
        world.server(tmp_path / "state", devices="cpu", **flags) as server,
        AcpcClient(server.address, **given) as client,
        client.plan("lewm", wire.frames(1), **moment) as session,
    ):
        session.certify(planning.pool())
        (started,) = of("worker_started", "cpu", server)
        asyncio.run(in_a_loop(server, lambda: os.kill(int(str(started["pid"])), signal.SIGKILL)))
        with pytest.raises(Unavailable, match="open another") as ended:
            session.certify(planning.pool())
        assert ended.value.retry_after
        assert client.compare_pair(*arguments, perturbations=shift).results
        assert len(of("worker_started", "cpu", server)) == 2

        command = [*server.command]
        command[command.index("--port") + 1] = str(server.port)
        refused = processes.run(command, check=False)
        assert refused.returncode == 1
        assert "choose another --port" in refused.stderr

        trusted = grpc.ssl_channel_credentials((tmp_path / "ca.pem").read_bytes())
        with grpc.secure_channel(
            server.address.replace("127.0.0.1", "localhost"), trusted
        ) as channel:
            health = health_pb2_grpc.HealthStub(channel)
            assert status(health) == Answer.SERVING
            os.kill(server.pid, signal.SIGTERM)
            wait_until(lambda: status(health) == Answer.NOT_SERVING)
            diagnostics = DiagnosticServiceStub(channel)
            assert diagnostics.ComparePair(wire.pair(), timeout=GENEROUS_SECONDS).results
            assert server.terminate() == 0, "the second signal ends the lame duck"
