"""Structure-aware fuzzer over every RPC: wrong messages, bytes, orders, endings and metadata.

    python tests/hostile/fuzzer.py [--requests 100000] [--seed 1]
    python tests/hostile/fuzzer.py --seed 1 --only 4711        # one case again

A sound server answers none of it with a fault of its own, ends every call, and is the same
afterwards.
"""

import argparse
import contextlib
import itertools
import json
import re
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

if __name__ == "__main__":
    tests = Path(__file__).parent.parent
    sys.path[:0] = [str(tests / "harness"), str(tests / "reference")]

import anchor_wire
import given_wire
import grpc
import planning_wire
import wire
from acpc.v1 import anchor_service_pb2_grpc, diagnostic_service_pb2_grpc, scoring_service_pb2_grpc
from cases import HANG_SECONDS, LARGE, Case, Cases, Names
from google.longrunning import operations_pb2, operations_pb2_grpc
from google.protobuf.message import Message
from grpc_health.v1 import health_pb2, health_pb2_grpc
from served_world import never_written, write_world
from server_process import ServerProcess
from waiting import GENEROUS_SECONDS, wait_until
from watching import MIB, Resident, holdings

# The server's own faults, whatever a caller has sent.
FAULTS = ("UNKNOWN", "INTERNAL", "UNAVAILABLE", "DATA_LOSS")
WORKERS = 8
# What a server may hold more after the run than before: pools keep their threads, caches fill.
LEAK = {"threads": 120, "files": 100, "rss_mib": 1200}
# What all requests of the small world together may move beside their own prices: predictions and
# drawings held a piece at a time, a checkpoint that is loaded, what a cache or an allocator keeps.
ALLOWANCE_MIB = 400
MAX_ANSWERS = 200
SEED_OF_VALID_CALLS = 40  # no case has frames of this one, so that no case has cached their latents
# Limits under which no valid request takes long on a slow machine, nor a message that arrives late.
PRELOADED = {"preload": "lewm,pldm"}


@dataclass
class Report:
    """What a run has found.

    Attributes:
        codes: Ends by status code.
        offences: What a sound server does not do; empty is good.
    """

    seed: int
    requests: int = 0
    codes: Counter[str] = field(default_factory=Counter)
    rise_mib: int = 0  # most that the server's memory rose at once beyond the requests' prices
    offences: list[str] = field(default_factory=list)


def send(channel: grpc.Channel, case: Case) -> tuple[str, str, float]:
    """Send a case and read its answers to the end: status name, its message, and the seconds."""
    over = threading.Event()
    call: Any = None
    ready = threading.Event()

    def messages() -> Iterator[bytes]:
        yield from case.messages
        if case.end == "cancel":
            over.wait(case.pause)
            ready.wait()
            call.cancel()
        elif case.end == "open":
            over.wait(case.timeout + GENEROUS_SECONDS)

    started = time.monotonic()
    try:
        call = channel.stream_stream(case.path)(
            messages(), timeout=case.timeout, metadata=case.metadata, compression=case.compression
        )
        ready.set()
        for _ in itertools.islice(call, MAX_ANSWERS):
            pass
        call.cancel()  # of a stream that has not ended yet; no harm to one that has
        code, details = call.code().name, call.details()
    except grpc.RpcError as error:
        code, details = error.code().name, error.details()
    finally:
        over.set()
        ready.set()
    return code, details or "", time.monotonic() - started


def offence(case: Case, code: str, details: str, seconds: float) -> str | None:
    """What is wrong about an end, or None."""
    if code in FAULTS:
        return f"{code}: {details[:300]}"
    if code == "DEADLINE_EXCEEDED" and case.timeout == HANG_SECONDS:
        return f"no end within {seconds:.0f} s"
    if seconds > case.timeout + GENEROUS_SECONDS:
        return f"ended {seconds - case.timeout:.0f} s after its deadline"
    return None


class Fuzzer:
    """Sends the cases of a seed to a server.

    Args:
        address: ``host:port``.
        names: What exists there.
        pid: Its process, whose memory is watched.
    """

    def __init__(self, address: str, seed: int, names: Names, pid: int) -> None:
        self._address = address
        self._pid = pid
        self._seed = seed
        self._cases = Cases(seed, names)
        self._local = threading.local()
        self._channels: list[grpc.Channel] = []

    def run(self, indices: Iterable[int]) -> Report:
        report, lock = Report(self._seed), threading.Lock()

        def one(index: int) -> None:
            case = self._cases.case(index)
            with watch.request(index, case.price):
                ended = send(self._channel(), case)
            wrong = offence(case, *ended)
            with lock:
                report.requests += 1
                report.codes[ended[0]] += 1
                if wrong:
                    where = f"--seed {self._seed} --only {index}"
                    report.offences.append(f"{case.path}: {wrong} (again: {where})")

        watch = Resident(self._pid)
        with ThreadPoolExecutor(WORKERS) as pool, watch:
            for _ in pool.map(one, indices):
                pass
        report.rise_mib = watch.highest // MIB
        if report.rise_mib > ALLOWANCE_MIB:
            cases = ", ".join(map(str, watch.under))
            report.offences.append(
                f"resident memory rose by {report.rise_mib} MiB more than the price of cases "
                f"{cases} (again: --seed {self._seed} --only one of them)"
            )
        for channel in self._channels:
            channel.close()
        return report

    def _channel(self) -> grpc.Channel:
        """A connection for each worker, so that what breaks one breaks no other's calls."""
        if not hasattr(self._local, "channel"):
            options = [("grpc.use_local_subchannel_pool", 1), ("grpc.max_send_message_length", -1)]
            self._local.channel = grpc.insecure_channel(self._address, options)
            self._channels.append(self._local.channel)
        return self._local.channel


def prepare(channel: grpc.Channel, metadata: tuple[tuple[str, str], ...] = ()) -> Names:
    """A job and two anchor sets for the cases to name."""
    given: dict[str, Any] = {"timeout": GENEROUS_SECONDS, "metadata": metadata}
    scoring = scoring_service_pb2_grpc.ScoringServiceStub(channel)
    operation = scoring.ScoreCheckpoint(wire.score(request_id="fuzz"), **given).name
    stub = anchor_service_pb2_grpc.AnchorServiceStub(channel)
    stored = stub.UploadAnchors(anchor_wire.upload("fuzz-set"), **given)
    given_set = stub.UploadAnchors(given_wire.upload("given-set"), **given)
    return Names(operation, stored.anchor_set.digest, given_set.anchor_set.digest)


def valid_answers(channel: grpc.Channel) -> dict[str, bytes]:
    stub = diagnostic_service_pb2_grpc.DiagnosticServiceStub(channel)
    history = wire.tensor(wire.frames(wire.HISTORY, seed=SEED_OF_VALID_CALLS))
    calls: dict[str, tuple[Callable[..., Message], Message]] = {
        "ComparePair": (stub.ComparePair, wire.pair(history=history, request_id="v")),
        "CertifyPool": (stub.CertifyPool, planning_wire.certify(history=history, request_id="v")),
        "PlanPaired": (stub.PlanPaired, planning_wire.paired(history=history, request_id="v")),
        "a given pair": (stub.ComparePair, given_wire.pair(history=history, request_id="v")),
        "a given pool": (stub.CertifyPool, given_wire.certify(history=history, request_id="v")),
    }
    answers = {}
    for name, (method, request) in calls.items():
        answer: Any = method(request, timeout=GENEROUS_SECONDS, wait_for_ready=True)
        answer.ClearField("timing")
        answers[name] = answer.SerializeToString(deterministic=True)
    return answers


def cancel_all(channel: grpc.Channel) -> None:
    stub = operations_pb2_grpc.OperationsStub(channel)
    given = {"timeout": GENEROUS_SECONDS}

    def left() -> list[str]:
        found = []
        for state in ("queued", "running"):
            wanted = operations_pb2.ListOperationsRequest(filter=f"state={state}", page_size=1000)
            found += [one.name for one in stub.ListOperations(wanted, **given).operations]
        return found

    for name in left():
        stub.CancelOperation(operations_pb2.CancelOperationRequest(name=name), **given)
    wait_until(lambda: not left(), "jobs that go on after they were cancelled", pause=0.2)


def calls_in_flight(server: ServerProcess) -> int:
    text = server.metrics()

    def total(name: str) -> float:
        lines = re.findall(rf"^{name}\{{.*\}} (\S+)$", text, re.MULTILINE)
        return sum(float(value) for value in lines)

    return round(total("grpc_server_started_total") - total("grpc_server_handled_total"))


def fuzz(server: ServerProcess, seed: int, indices: Iterable[int]) -> Report:
    """Fuzz a server of one's own, and compare it with what it was before."""
    with grpc.insecure_channel(server.address) as channel:
        expected = valid_answers(channel)
        fuzzer = Fuzzer(server.address, seed, prepare(channel), server.pid)
        before = holdings(server.pid)
        report = fuzzer.run(indices)
        wrong = report.offences
        health = health_pb2_grpc.HealthStub(channel).Check(
            health_pb2.HealthCheckRequest(), timeout=GENEROUS_SECONDS, wait_for_ready=True
        )
        if health.status != health_pb2.HealthCheckResponse.SERVING:
            wrong.append("health does not say SERVING")
        cancel_all(channel)
        with contextlib.suppress(AssertionError):
            wait_until(lambda: calls_in_flight(server) == 0, pause=0.2)
        if left := calls_in_flight(server):
            wrong.append(f"{left} calls never ended at the server")
        changed = [
            name for name, answer in valid_answers(channel).items() if answer != expected[name]
        ]
        wrong += [f"{name}: other bytes than before" for name in changed]
    after = holdings(server.pid)
    for name, most in LEAK.items():
        if after[name] > before[name] + most:
            wrong.append(f"{name}: {before[name]} before, {after[name]} after")
    wrong += [f"a bug in the server's log: {bug[-2000:]}" for bug in server.bugs()]
    return report


def main() -> None:
    command = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    command.add_argument("--requests", type=int, default=100_000)
    command.add_argument("--seed", type=int, default=1)
    command.add_argument("--only", type=int, help="send one case")
    given = command.parse_args()
    indices = range(given.requests) if given.only is None else [given.only]
    with tempfile.TemporaryDirectory() as folder:
        world = write_world(Path(folder))
        given_wire.write_dino(world.checkpoint_root)
        never_written(world.dataset_root / LARGE, 512)
        with world.server(**PRELOADED) as server:
            report = fuzz(server, given.seed, indices)
    print(json.dumps(vars(report), indent=2))
    sys.exit(bool(report.offences))


if __name__ == "__main__":
    main()
