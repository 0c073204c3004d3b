"""What others see of a server, and what its process holds, before, under and after an attack."""

import contextlib
import os
import threading
import time
import urllib.request
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Self

import anchor_wire
import grpc
import wire
from acpc.v1 import anchor_service_pb2_grpc, diagnostic_service_pb2, diagnostic_service_pb2_grpc
from attacks import Attack, Target
from google.longrunning import operations_pb2, operations_pb2_grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc

MIB = 2**20
PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
RISE_SECONDS = 1.0
PROBE_SECONDS = 5.0
RECOVERY_SECONDS = 30.0
# Until a server has taken up what an attack has sent.
SETTLE_SECONDS = 1.0
# Threads, open files and MiB that a server may hold more after an attack than before; a pool of
# workers keeps its threads.
SLACK = {"threads": 80, "files": 32, "rss_mib": 512}


def holdings(pid: int) -> dict[str, int]:
    """Threads, open files and resident MiB of a process."""
    status = dict(
        line.split(":", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines()
    )
    return {
        "threads": int(status["Threads"]),
        "files": sum(1 for _ in Path(f"/proc/{pid}/fd").iterdir()),
        "rss_mib": int(status["VmRSS"].split()[0]) // 1024,
    }


class Resident:
    """Watches the resident memory of a process while requests are under way, in a thread.

    Attributes:
        highest: Most that it rose ``within`` some seconds, beyond what was under way, in bytes.
        under: Keys of the requests that were under way then.
        looked: How often it has looked.
    """

    def __init__(self, pid: int, within: float = RISE_SECONDS) -> None:
        self._pid, self._within = pid, within
        self._prices: dict[int, int] = {}
        self._seen: deque[tuple[float, int]] = deque()
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch)
        self.highest, self.under, self.looked = 0, (), 0

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    @contextmanager
    def request(self, key: int, price: int) -> Iterator[None]:
        """Count a request of this price while it is under way, and a moment longer."""
        self._prices[key] = price
        try:
            yield
        finally:
            timer = threading.Timer(RISE_SECONDS, self._prices.pop, (key, None))
            timer.daemon = True
            timer.start()

    def _watch(self) -> None:
        statm = Path(f"/proc/{self._pid}/statm")
        while not self._over.wait(0.01):
            now, resident = time.monotonic(), int(statm.read_text().split()[1]) * PAGE_BYTES
            self._seen.append((now, resident))
            while self._seen[0][0] < now - self._within:
                self._seen.popleft()
            under = dict(self._prices)
            rise = resident - min(held for _, held in self._seen) - sum(under.values())
            self.looked += 1
            if rise > self.highest:
                self.highest, self.under = rise, tuple(under)


@dataclass(frozen=True)
class Caller:
    """Another caller than the attacker, with a connection of its own for every question.

    Attributes:
        seconds: How long it waits for an answer.
    """

    address: str
    metrics: str = ""
    seconds: float = PROBE_SECONDS

    def questions(self) -> dict[str, Callable[[], object]]:
        """What it asks, by name; each raises when it is not answered in time."""
        asked = {name: partial(self._ask, method) for name, method in QUESTIONS.items()}
        return {**asked, **({"scrape": self._scrape} if self.metrics else {})}

    def _ask(self, method: Callable[[grpc.Channel, float], object]) -> object:
        options = [("grpc.use_local_subchannel_pool", 1)]
        with grpc.insecure_channel(self.address, options) as channel:
            return method(channel, self.seconds)

    def _scrape(self) -> object:
        url = f"http://{self.metrics}/metrics"
        with urllib.request.urlopen(url, timeout=self.seconds) as answer:
            return answer.read()


def _stream(channel: grpc.Channel, seconds: float) -> object:
    request = diagnostic_service_pb2.ComparePairsRequest(pair_id="one", pair=wire.pair())
    stub = diagnostic_service_pb2_grpc.DiagnosticServiceStub(channel)
    return list(stub.ComparePairs(iter([request]), timeout=seconds))


QUESTIONS: dict[str, Callable[[grpc.Channel, float], object]] = {
    "pair": lambda channel, seconds: diagnostic_service_pb2_grpc.DiagnosticServiceStub(
        channel
    ).ComparePair(wire.pair(), timeout=seconds),
    "stream": _stream,
    "upload": lambda channel, seconds: anchor_service_pb2_grpc.AnchorServiceStub(
        channel
    ).UploadAnchors(anchor_wire.upload(), timeout=seconds),
    "operations": lambda channel, seconds: operations_pb2_grpc.OperationsStub(
        channel
    ).ListOperations(operations_pb2.ListOperationsRequest(page_size=1), timeout=seconds),
    "health": lambda channel, seconds: health_pb2_grpc.HealthStub(channel).Check(
        health_pb2.HealthCheckRequest(), timeout=seconds
    ),
}


def ask(caller: Caller, rounds: int) -> dict[str, dict[str, Any]]:
    """Each question ``rounds`` times, all kinds at once: answered, slowest ms, wrong codes."""

    def kind(question: Callable[[], object]) -> dict[str, Any]:
        seconds, wrong = [], set()
        for _ in range(rounds):
            started = time.perf_counter()
            try:
                question()
                seconds.append(time.perf_counter() - started)
            except grpc.RpcError as error:
                wrong.add(error.code().name)
            except OSError as error:
                wrong.add(type(error).__name__)
        slowest = round(max(seconds) * 1e3) if seconds else None
        told = {"answered": f"{len(seconds)}/{rounds}", "slowest_ms": slowest}
        return {**told, **({"errors": sorted(wrong)} if wrong else {})}

    questions = caller.questions()
    with ThreadPoolExecutor(len(questions)) as pool:
        return dict(zip(questions, pool.map(kind, questions.values()), strict=True))


def watched(
    attack: Attack,
    target: Target,
    caller: Caller,
    pid: int,
    rounds: int = 3,
    memory_seconds: float = RECOVERY_SECONDS,
) -> dict[str, Any]:
    """What an attack does to a caller and to the server; the process may die of it.

    Its memory may stay with the allocator, and is waited for only so long.
    """
    before, most = holdings(pid), holdings(pid)
    over = threading.Event()

    def sample() -> None:
        while not over.wait(0.1):
            with contextlib.suppress(OSError, KeyError):
                now = holdings(pid)
                most.update({name: max(most[name], now[name]) for name in now})

    sampler = threading.Thread(target=sample)
    sampler.start()
    try:
        with attack(target) as notes:
            time.sleep(SETTLE_SECONDS)
            under = ask(caller, rounds)
    finally:
        over.set()
        sampler.join()
    told = {"attack": notes, "others": under, "before": before, "most": most}
    return {**told, **_recovery(caller, pid, before, memory_seconds)}


def _recovery(
    caller: Caller, pid: int, before: dict[str, int], memory_seconds: float
) -> dict[str, Any]:
    """How long it takes until everybody is answered and the process holds no more than before."""
    started, answered = time.monotonic(), None
    while (waited := time.monotonic() - started) < max(RECOVERY_SECONDS, caller.seconds):
        try:
            after = holdings(pid)
        except (OSError, KeyError):
            return {"crashed": True}
        if answered is None and all(one["answered"] == "1/1" for one in ask(caller, 1).values()):
            answered = round(time.monotonic() - started, 1)
        held = {name for name in before if after[name] > before[name] + SLACK[name]}
        if answered is not None and (
            not held or (held == {"rss_mib"} and waited >= memory_seconds)
        ):
            break
        time.sleep(0.5)
    return {"after": after, "answered_again_seconds": answered, "all_given_back": not held}
