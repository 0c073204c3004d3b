"""Rules, alerts and dashboards in a real Prometheus that watches a real server and a neighbour."""

import math
import os
import re
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import processes
import pytest
import wire
from acpc_client import AcpcClient, DatasetAnchors, GaussianNoise, RetryPolicy, Tls
from acpc_client.errors import AcpcError
from acpc_server.access import Role, create_key
from credentials import Authority
from deployment_files import ROOT, alerts, dashboard_queries, rules
from installed_package import install
from job_world import JobWorld
from postgres_server import PostgresServer
from programs import required
from prometheus_client import CollectorRegistry, Gauge, start_http_server
from prometheus_server import Monitoring, faster, find_programs
from server_process import ServerProcess, free_port
from waiting import GENEROUS_SECONDS, wait_until

pytestmark = [
    pytest.mark.nightly,  # test_monitoring.py asks whether the queries match what is exported
    pytest.mark.skipif(
        not find_programs() and not required("prometheus"), reason="there is no Prometheus"
    ),
]

OWN = ROOT / "examples" / "bring_your_own"
# Causes that take longer than a test has: hours in a queue, a server that is started again and
# again, a day of planning. deploy/prometheus/rules_test.yml has them.
UNIT_TESTED = {
    *("AcpcJobsStuck", "AcpcJobWaitsLong", "AcpcServerRestarting", "AcpcEncoderShift"),
}
# Series that begin with what does not happen here: compiled code, a device that errs.
RARE = re.compile(r"acpc_(jobs_queued|graphs_rejected|not_finite|numeric_mode_off)")
FAULTS = {"AcpcErrorRatioHigh", "AcpcInternalError", "AcpcJobsFailing"}
SLOWNESS = {"AcpcInteractiveLatencyHigh", "AcpcQueueWaitHigh"}
WINDOW = "10s"
# What a plug-in family may do wrong. A file says what it does now.
MOODS = """
import os, time
from pathlib import Path
_encode = ConvJepa.encode
def _moody(self, frames):
    mood = Path(os.environ["MOOD"]).read_text()
    if mood == "broken":
        raise RuntimeError("a fault of the family")
    time.sleep({"slow": 1.3, "stuck": 7.0}.get(mood, 0.0))
    return _encode(self, frames)
ConvJepa.encode = _moody
"""


class Site:
    """A server with TLS and keys, whose plug-in family has moods."""

    def __init__(self, folder: Path, record: str) -> None:
        self._mood = folder / "mood"
        self.mood("well")
        packages = install(OWN, folder / "site")
        with (packages / "acpc_conv_jepa" / "network.py").open("a") as network:
            network.write(MOODS)
        world = JobWorld(folder)
        world.datasets.mkdir()
        world.write_dataset(seed=5)
        self._folder, self._authority = folder, Authority()
        self.certify(days=10)
        keys = folder / "keys.json"
        self._key = create_key(keys, "lab", Role.ADMIN)
        path = os.pathsep.join([str(packages), os.environ.get("PYTHONPATH", "")])
        self.metrics_port = free_port()
        self._flags = {
            "port": free_port(),
            "metrics_port": self.metrics_port,
            "tls_certificate": folder / "server.pem",
            "tls_key": folder / "server.key",
            "keys_file": keys,
            "jobs_url": record,
            "drain_seconds": 20,
            "environment": {"PYTHONPATH": path, "MOOD": str(self._mood)},
        }
        self.server = ServerProcess(
            OWN / "checkpoints", world.datasets, folder / "state", **self._flags
        )

    def mood(self, mood: str) -> None:
        fresh = self._mood.with_suffix(".new")
        fresh.write_text(mood)
        fresh.replace(self._mood)

    def certify(self, days: int) -> None:
        """Give the server a certificate that ends after some days."""
        until = datetime.now(UTC) + timedelta(days=days)
        self._authority.issue("localhost", until=until).write(self._folder, "server")
        (self._folder / "ca.pem").write_bytes(self._authority.pem)

    def spoil_certificate(self) -> None:
        """What a certificate is replaced by when a disk is full."""
        (self._folder / "server.pem").write_text("")

    def client(self, key: str = "") -> AcpcClient:
        """Every call once, so that it counts once."""
        target, tls = f"localhost:{self._flags['port']}", Tls(self._folder / "ca.pem")
        once = RetryPolicy(attempts=1)
        return AcpcClient(target, tls=tls, token=key or self._key, retry=once, patience=0)


class Load:
    """Threads that ask again and again until the ``with`` block ends; errors are expected."""

    def __init__(self) -> None:
        self._over = threading.Event()
        self._seed = 0

    @contextmanager
    def of(self, *callers: Callable[[int], object]) -> Iterator[None]:
        self._over.clear()
        threads = [threading.Thread(target=self._ask, args=(caller,)) for caller in callers]
        for thread in threads:
            thread.start()
        try:
            yield
        finally:
            self._over.set()
            for thread in threads:
                thread.join()

    def _ask(self, caller: Callable[[int], object]) -> None:
        while not self._over.wait(0.1):
            self._seed += 1
            with suppress(AcpcError):
                caller(self._seed)


def compare(client: AcpcClient, seed: int, timeout: float = GENEROUS_SECONDS) -> None:
    """A pair that no cache has seen."""
    frames = wire.frames(1, height=40, width=40, seed=seed)
    noise = GaussianNoise(0.08)
    client.compare_pair("conv-base", frames, wire.blocks(4), perturbations=noise, timeout=timeout)


def moment(seed: int) -> tuple[np.ndarray, dict[str, Any]]:
    asked = {"perturbations": GaussianNoise(0.05), "elite_count": 2}
    return wire.frames(2, height=40, width=40, seed=seed), asked


def pool(seed: int) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal((8, 3, 10), np.float32)


def certify(client: AcpcClient, seed: int) -> None:
    frames, asked = moment(seed)
    client.certify_pool("conv-base", frames[:1], pool(seed), frames[1], **asked)


def plan(client: AcpcClient, seed: int) -> None:
    """A session that certifies one pool: its first message is answered by the family."""
    frames, asked = moment(seed)
    with client.plan("conv-base", frames[:1], frames[1], **asked) as session:
        session.certify(pool(seed))


def score(client: AcpcClient, seed: int) -> None:
    anchors = DatasetAnchors("rooms.h5", "tworoom", count=20, seed=seed)
    name, reference = "conv-augmented", "conv-base"
    job = client.score_checkpoint(name, anchors, GaussianNoise(0.08), reference=reference)
    job.result(GENEROUS_SECONDS)


def _neighbour() -> CollectorRegistry:
    """Another service with series of these names: half its calls are faults, and it takes none."""
    registry = CollectorRegistry()
    names = ("grpc_type", "grpc_service", "grpc_method", "grpc_code")
    handled = Gauge(
        "grpc_server_handled_total", "Grows as a counter does.", names, registry=registry
    )
    begun = time.monotonic()
    for code in ("OK", "INTERNAL"):
        count = handled.labels("unary", "other.v1.Service", "Get", code)
        count.set_function(lambda: 50 * (time.monotonic() - begun))
    Gauge("acpc_ready", "It is not.", registry=registry).set(0)
    return registry


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory, postgres: PostgresServer) -> Iterator[Site]:
    found = Site(tmp_path_factory.mktemp("watched"), postgres.new_database())
    with found.server:
        yield found


@pytest.fixture(scope="module")
def watched(site: Site, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Monitoring]:
    server, thread = start_http_server(0, addr="127.0.0.1", registry=_neighbour())
    try:
        targets = {
            "acpc": f"127.0.0.1:{site.metrics_port}",
            "other": f"127.0.0.1:{server.server_port}",
        }
        monitoring = Monitoring(tmp_path_factory.mktemp("monitoring") / "files", targets)
        with monitoring.running() as found:
            yield found
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def test_alerts_fire_for_their_causes_and_clear(
    site: Site, watched: Monitoring, postgres: PostgresServer
) -> None:
    begun = time.time()
    other = 'rate(grpc_server_handled_total{job="other", grpc_code="INTERNAL"}[10s])'
    wait_until(lambda: (watched.value(other) or 0) > 10, "the neighbour is not scraped", pause=0.5)
    load, seen = Load(), set[str]()

    def fires(*wanted: str) -> None:
        def found() -> bool:
            seen.update(watched.firing())
            return {*wanted} <= seen

        wait_until(found, f"{wanted} do not fire, only {watched.firing()}", pause=0.5)

    with site.client() as client, site.client("acpc_" + "0" * 12 + "_" + "0" * 64) as unknown:
        anchors = DatasetAnchors("rooms.h5", "tworoom", count=4)
        client.anchors.create(anchors, history=3, horizon=4)
        good = [partial(caller, client) for caller in (compare, certify, plan)]
        with load.of(*good, lambda seed: score(client, seed)):
            fires("AcpcCertificateExpires")
        assert site.server.bugs() == [], "\n".join(site.server.bugs())
        assert watched.firing() == {"AcpcCertificateExpires"}  # whatever the neighbour does
        site.mood("slow")
        with load.of(lambda seed: plan(client, seed)):  # whose stream alone lasts
            fires("AcpcInteractiveLatencyHigh")
        strangers = [lambda seed: compare(unknown, seed)] * 2
        with load.of(*[lambda seed: compare(client, seed)] * 4, *strangers):
            fires(*SLOWNESS, "AcpcAuthenticationFailures")
        wait_until(lambda: watched.told() >= SLOWNESS, "Alertmanager is not told", pause=0.5)
        site.mood("broken")
        with load.of(good[0], lambda seed: score(client, seed)):
            fires(*FAULTS)
        site.mood("stuck")
        with load.of(lambda seed: compare(client, seed, timeout=6.0)):
            fires("AcpcDeadlinesMissed")
        site.mood("well")
        site.spoil_certificate()
        fires("AcpcReloadFailed")
        site.certify(days=20)
        postgres.stop()
        try:
            fires("AcpcJobRecordAway")
        finally:
            postgres.start()
        with load.of(*good, lambda seed: score(client, seed)):
            wait_until(lambda: not watched.firing(), "an alert does not clear", pause=0.5)
        frames = wire.frames(2, height=40, width=40)
        noise = GaussianNoise(0.1)
        with client.plan("conv-base", frames[:1], frames[1], perturbations=noise):
            ending = threading.Thread(target=site.server.terminate)
            ending.start()  # and waits for the session
            fires("AcpcNotReady")
        ending.join()
        fires("AcpcServerDown")
        site.server.start()
        wait_until(lambda: not watched.firing(), "an alert does not clear", pause=0.5)
    assert seen == alerts() - UNIT_TESTED
    _check_history(watched, begun)


def _check_history(watched: Monitoring, begun: float) -> None:
    """Afterwards: the neighbour raised nothing, rules work, panels but rare ones show something."""
    asked = {"start": begun, "end": time.time(), "step": "2s"}
    fired = watched.ask("query_range", query='ALERTS{alertstate="firing"}', **asked)["result"]
    assert {series["metric"]["job"] for series in fired} == {"acpc"}
    groups = watched.ask("rules")["groups"]
    states = [(rule["name"], rule["health"]) for group in groups for rule in group["rules"]]
    assert {health for _, health in states} == {"ok"}
    assert len(states) == len(rules())
    silent = [
        query for query in dashboard_queries()
        if not RARE.search(query) and not any(
            not math.isnan(float(value))
            for series in watched.ask("query_range", query=_filled_in(query), **asked)["result"]
            for _, value in series["values"]
        )
    ]  # fmt: skip
    assert silent == []


def _filled_in(query: str) -> str:
    """A panel's query as Grafana sends it."""
    for name, value in (("job", "acpc"), ("__rate_interval", WINDOW)):
        query = query.replace(f"${name}", value)
    for name in ("instance", "method", "checkpoint"):
        query = query.replace(f"${name}", ".*")
    return query


def test_the_faster_clock_leaves_no_minute_and_changes_nothing_else() -> None:
    text = "increase(x:rate5m[10m]) offset 10m > 3600 for 10 minutes\nfor: 5m\nconst: 14 * 86400"
    assert faster(text) == (
        "increase(x:rate5m[20s]) offset 20s > 3600 for 10 minutes\nfor: 10s\nconst: 14 * 86400"
    )


@pytest.mark.parametrize(
    "command",
    [
        ["promtool", "check", "config", "prometheus.yml"],
        ["promtool", "test", "rules", "rules_test.yml"],
        ["amtool", "check-config", "alertmanager.yml"],
    ],
    ids=" ".join,
)
def test_the_tools_accept_the_files(command: list[str]) -> None:
    processes.run(command, cwd=ROOT / "deploy" / "prometheus")
