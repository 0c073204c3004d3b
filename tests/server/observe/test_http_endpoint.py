"""The HTTP endpoint answers probes and scrapes, and nobody can fill it.

Of the health that it tells: readiness has causes that come and go; sickness stays.
"""

import gzip
import http.client
import socket
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
from acpc_server.observe import HttpEndpoint, Metrics, ServerHealth
from prometheus_client import CollectorRegistry, Metric
from prometheus_client.openmetrics.parser import text_string_to_metric_families as open_families
from prometheus_client.parser import text_string_to_metric_families as plain_families
from waiting import GENEROUS_SECONDS

pytestmark = pytest.mark.edge


class Served:
    def __init__(self, registry: CollectorRegistry | None = None) -> None:
        self.health = ServerHealth()
        self.endpoint = HttpEndpoint(registry or Metrics().registry, self.health)
        self.port = self.endpoint.start("127.0.0.1", 0)

    def ask(
        self, path: str, method: str = "GET", **headers: str
    ) -> tuple[int, bytes, dict[str, str]]:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=GENEROUS_SECONDS)
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        try:
            connection.request(method, path, headers=named)
            answer = connection.getresponse()
            return answer.status, answer.read(), dict(answer.headers)
        finally:
            connection.close()

    def connect(self) -> socket.socket:
        return socket.create_connection(("127.0.0.1", self.port), GENEROUS_SECONDS)

    def send(self, data: bytes) -> bytes:
        """Everything it answers to some bytes, until it closes."""
        with self.connect() as connection:
            connection.sendall(data)
            return connection.makefile("rb").read()


@pytest.fixture
def served() -> Iterator[Served]:
    made = Served()
    yield made
    made.endpoint.stop()


def test_readiness_and_liveness_are_two_answers(served: Served) -> None:
    assert served.ask("/livez")[:2] == (200, b"ok\n")
    assert served.ask("/readyz")[:2] == (503, b"starting: the server starts\n")
    served.health.clear("starting")
    assert served.ask("/readyz?verbose")[:2] == (200, b"ok\n")
    served.health.fail("the device fell off")
    assert served.ask("/livez")[:2] == (503, b"the device fell off\n")
    assert served.ask("/readyz")[:2] == (503, b"sick: the device fell off\n")


def test_series_come_as_they_are_asked_for(served: Served) -> None:
    status, plain, headers = served.ask("/metrics")
    assert (status, headers["Content-Type"]) == (200, "text/plain; version=0.0.4; charset=utf-8")
    assert "acpc_jobs" in {family.name for family in plain_families(plain.decode())}
    wanted = {"Accept": "application/openmetrics-text; version=1.0.0", "Accept_Encoding": "gzip"}
    status, packed, headers = served.ask("/metrics", **wanted)
    assert headers["Content-Type"].startswith("application/openmetrics-text")
    assert headers["Content-Encoding"] == "gzip"
    text = gzip.decompress(packed).decode()
    assert "acpc_jobs" in {family.name for family in open_families(text)}


@pytest.mark.parametrize(
    ("sent", "status"),
    [
        (b"POST /metrics HTTP/1.1\r\nContent-Length: 0\r\n\r\n", b"405"),
        (b"GET / HTTP/1.1\r\n\r\n", b"404"),
        (b"GET /metrics/../livez HTTP/1.1\r\n\r\n", b"404"),
        (b"GET /livez HTTP/1.1\r\n" + b"a: b\r\n" * 200 + b"\r\n", b"431"),
        (b"GET /" + b"x" * 2**16 + b" HTTP/1.1\r\n\r\n", b"414"),
    ],
)
def test_other_requests_are_told_so(served: Served, sent: bytes, status: bytes) -> None:
    assert served.send(sent).startswith(b"HTTP/1.0 " + status)
    assert served.ask("/livez")[0] == 200


class _Series:
    """A series whose collection is what ``collect`` does."""

    def __init__(self, collect: Callable[[], str]) -> None:
        self._collect = collect

    def describe(self) -> list[Metric]:
        return []

    def collect(self) -> Iterator[Metric]:
        yield Metric("slow", self._collect(), "gauge")


def test_a_series_that_hangs_stops_no_probe() -> None:
    entered, free = threading.Event(), threading.Event()

    def collect() -> str:
        entered.set()
        assert free.wait(GENEROUS_SECONDS)
        return "text"

    registry = CollectorRegistry()
    registry.register(_Series(collect))
    served = Served(registry)
    with ThreadPoolExecutor(4) as pool:
        asked = [pool.submit(served.ask, "/metrics") for _ in range(4)]
        assert entered.wait(GENEROUS_SECONDS)
        assert served.ask("/livez")[0] == 200
        free.set()
        assert {answer.result()[0] for answer in asked} == {200}
    served.endpoint.stop()
