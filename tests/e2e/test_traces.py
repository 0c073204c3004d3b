"""One trace tells where a call's time went, from the client to the device and the job's steps."""

import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import processes
import pytest
from acpc import tracing
from acpc_client import AcpcClient, DatasetAnchors, GaussianNoise
from job_world import JobWorld
from otlp_collector import Collector, Received, collecting
from server_process import ServerProcess
from waiting import wait_until
from wire import HISTORY, blocks, frames

pytestmark = pytest.mark.process

# Batches leave at once, and not after five seconds.
PROMPT = {"OTEL_BSP_SCHEDULE_DELAY": "50"}
STEPS = 1 + 2 * (6 + 1)


@pytest.fixture
def collector() -> Iterator[Collector]:
    with collecting() as found:
        yield found
        tracing.stop()


@pytest.fixture
def server(job_world: JobWorld, collector: Collector) -> Iterator[ServerProcess]:
    flags = {"otlp_endpoint": collector.address, "environment": PROMPT}
    with job_world.server("state", **flags) as process:
        yield process


def _children(collector: Collector, parent: Received) -> list[str]:
    """Names of the spans right below one, of its own trace."""
    found = [one.span for one in list(collector.received) if one.parent == parent.span.span_id]
    assert all(span.trace_id == parent.span.trace_id for span in found)
    return sorted(span.name for span in found)


def test_a_call_is_followed_from_the_client_to_the_device(
    server: ServerProcess, collector: Collector
) -> None:
    with AcpcClient(server.address, otlp_endpoint=collector.address) as client:
        client.compare_pair(
            "model", frames(HISTORY), blocks(), perturbations=GaussianNoise(0.08), draws=2
        )
    tracing.stop()
    wait_until(lambda: collector.named("client") and collector.named("server"), "spans are missing")
    (call,), (served,) = collector.named("client"), collector.named("server")
    assert (call.service, served.service) == ("acpc-client", "acpc-server")
    assert call.span.name == "client ComparePair"
    assert served.parent == call.span.span_id
    assert served.span.trace_id == call.span.trace_id
    below = ["device pair", "load", "queue"]
    wait_until(lambda: _children(collector, served) == below, "the device's spans are missing")
    for one in collector.named("device"):
        assert served.span.start_time_unix_nano <= one.span.start_time_unix_nano
        assert one.span.end_time_unix_nano <= served.span.end_time_unix_nano
    line = server.wait_for_log(lambda line: line["event"] == "rpc")
    facts = {"rpc.system": "grpc", "rpc.service": "acpc.v1.DiagnosticService"}
    facts |= {"rpc.method": "ComparePair", "rpc.grpc.status_code": 0}
    own = {"acpc.request_id": line["request_id"], "acpc.checkpoint": "model"}
    assert (call.attributes, served.attributes) == (facts, {**facts, **own})
    assert line["trace_id"] == call.span.trace_id.hex()
    assert _exemplars(server) == {call.span.trace_id.hex()}


def _exemplars(server: ServerProcess) -> set[str]:
    """Trace ids beside the buckets of the latency, as a scraper that knows of them is told."""
    accepted = {"Accept": "application/openmetrics-text; version=1.0.0"}
    url = f"http://127.0.0.1:{server.metrics_port}/metrics"
    with urllib.request.urlopen(urllib.request.Request(url, headers=accepted)) as page:
        lines = page.read().decode().splitlines()
    found = [line for line in lines if line.startswith("grpc_server_handling_seconds_bucket")]
    return {line.partition('trace_id="')[2][:32] for line in found if "trace_id" in line}


def test_a_jobs_steps_belong_to_the_call_that_submitted_it(
    server: ServerProcess, collector: Collector
) -> None:
    """The job's trace is remembered with it; two jobs of one spec have equal results."""
    anchors, noise = DatasetAnchors("rooms.h5", "tworoom", count=60), GaussianNoise(0.08)
    with AcpcClient(server.address, otlp_endpoint=collector.address) as client:
        traced = client.score_checkpoint("model", anchors, noise, reference="base").result()
        tracing.stop()
        plain = client.score_checkpoint("model", anchors, noise, reference="base").result()
    assert traced.verdict == plain.verdict
    assert traced.receipt == plain.receipt
    wait_until(lambda: len(collector.named("job")) == 2, "the jobs' spans are missing")
    (submitted,) = collector.named("client ScoreCheckpoint")
    above = {one.span.span_id: one for one in collector.named("server ScoreCheckpoint")}
    (job,) = [one for one in collector.named("job") if one.span.trace_id == submitted.span.trace_id]
    assert above[job.parent].parent == submitted.span.span_id
    names = _children(collector, job)
    assert len(names) == STEPS
    assert all(name.startswith("step ") for name in names)
    step = next(one for one in collector.named("step measuring") if one.parent == job.span.span_id)
    assert "device rollout" in _children(collector, step)


def test_a_server_without_the_libraries_says_what_to_install(tmp_path: Path) -> None:
    code = "import sys; sys.modules['opentelemetry.sdk.trace'] = None\n"
    code += "import acpc_server.__main__ as m; m.main()"
    given = ["--checkpoint-root", ".", "--dataset-root", ".", "--state-dir", str(tmp_path / "s")]
    given += ["--port", "0", "--metrics-port", "-1", "--otlp-endpoint", "localhost:4317"]
    command = [sys.executable, "-c", code, "serve", *given]
    shown = processes.run(command, check=False, cwd=tmp_path, imported="acpc-server")
    assert shown.returncode == 1
    assert "pip install '.[tracing]'" in shown.stderr.splitlines()[-1]


def test_a_server_that_traces_nothing_loads_nothing_of_it(job_world: JobWorld) -> None:
    code = "import sys, acpc_server.app; print('opentelemetry' in sys.modules)"
    shown = processes.run([sys.executable, "-c", code], imported="acpc-server")
    assert shown.stdout.strip() == "False"
