"""What another caller sees of a server, and what its process holds."""

import os
import threading
import time
import urllib.request
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Self

import anchor_wire
import grpc
import wire
from acpc.v1.anchor_service_pb2_grpc import AnchorServiceStub
from acpc.v1.diagnostic_service_pb2 import ComparePairsRequest
from acpc.v1.diagnostic_service_pb2_grpc import DiagnosticServiceStub
from google.longrunning.operations_pb2 import ListOperationsRequest
from google.longrunning.operations_pb2_grpc import OperationsStub
from grpc_health.v1.health_pb2 import HealthCheckRequest
from grpc_health.v1.health_pb2_grpc import HealthStub
from waiting import GENEROUS_SECONDS

MIB = 2**20
PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
RISE_SECONDS = 1.0


def holdings(pid: int) -> dict[str, int]:
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


LIMIT = {"timeout": GENEROUS_SECONDS}
QUESTIONS: tuple[Callable[[grpc.Channel], object], ...] = (
    lambda channel: DiagnosticServiceStub(channel).ComparePair(wire.pair(), **LIMIT),
    lambda channel: list(
        DiagnosticServiceStub(channel).ComparePairs(
            iter([ComparePairsRequest(pair_id="one", pair=wire.pair())]), **LIMIT
        )
    ),
    lambda channel: AnchorServiceStub(channel).UploadAnchors(anchor_wire.upload(), **LIMIT),
    lambda channel: OperationsStub(channel).ListOperations(ListOperationsRequest(), **LIMIT),
    lambda channel: HealthStub(channel).Check(HealthCheckRequest(), **LIMIT),
)


def ask_all(address: str, metrics: str) -> None:
    """Ask each question at once, on a connection of its own; raises where one is not answered."""

    def ask(question: Callable[[grpc.Channel], object]) -> object:
        options = [("grpc.use_local_subchannel_pool", 1)]
        with grpc.insecure_channel(address, options) as channel:
            return question(channel)

    def scrape() -> bytes:
        url = f"http://{metrics}/metrics"
        with urllib.request.urlopen(url, timeout=GENEROUS_SECONDS) as answer:
            return answer.read()

    with ThreadPoolExecutor(len(QUESTIONS) + 1) as pool:
        scraped = pool.submit(scrape)
        list(pool.map(ask, QUESTIONS))
        scraped.result()
