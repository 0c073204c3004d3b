"""Each call is a span of its caller's trace, at the collector that the OTEL_* variables name."""

import sys
import urllib.request
from collections.abc import Iterator
from concurrent import futures
from contextlib import contextmanager
from typing import Any

import grpc
import pytest
import structlog
from acpc.v1.diagnostic_service_pb2_grpc import DiagnosticServiceStub
from acpc_server.observe import begin_span, start_traces
from job_world import JobWorld
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2, trace_service_pb2_grpc
from server_process import ServerProcess
from waiting import wait_until
from wire import pair

# Batches leave at once, and not after five seconds.
PROMPT = {"OTEL_BSP_SCHEDULE_DELAY": "50"}
TRACE, ABOVE = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"


class Collector(trace_service_pb2_grpc.TraceServiceServicer):
    """An OpenTelemetry collector, which keeps the spans it is sent, and which service sent each."""

    def __init__(self) -> None:
        self.services: set[str] = set()
        self.spans: list[Any] = []

    def Export(self, request: Any, context: grpc.ServicerContext) -> Any:
        for resource in request.resource_spans:
            self.services.add(attributes(resource.resource)["service.name"])
            for scope in resource.scope_spans:
                self.spans += scope.spans
        return trace_service_pb2.ExportTraceServiceResponse()


def attributes(of: Any) -> dict[str, str | int]:
    return {a.key: a.value.string_value or a.value.int_value for a in of.attributes}


@contextmanager
def collecting() -> Iterator[tuple[Collector, str]]:
    collector, server = Collector(), grpc.server(futures.ThreadPoolExecutor(2))
    trace_service_pb2_grpc.add_TraceServiceServicer_to_server(collector, server)
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    try:
        yield collector, f"http://127.0.0.1:{port}"
    finally:
        server.stop(None).wait()


def test_a_call_is_a_span_of_its_callers_trace(job_world: JobWorld) -> None:
    with collecting() as (collector, address):
        environment = {**PROMPT, "OTEL_EXPORTER_OTLP_ENDPOINT": address}
        with (
            job_world.server("state", environment=environment) as server,
            grpc.insecure_channel(server.address) as channel,
        ):
            compare = DiagnosticServiceStub(channel).ComparePair
            compare(
                pair(checkpoint={"name": "model"}),
                metadata=[("traceparent", f"00-{TRACE}-{ABOVE}-01")],
            )
            with pytest.raises(grpc.RpcError):
                compare(pair(checkpoint={"name": "nothing"}))
            wait_until(lambda: len(collector.spans) == 2, "spans are missing")
            done, failed = collector.spans
            line = server.wait_for_log(lambda one: one["event"] == "rpc" and one["code"] == "OK")
            exemplars = _exemplars(server)
    assert collector.services == {"acpc-server"}
    assert {span.name for span in collector.spans} == {"acpc.v1.DiagnosticService/ComparePair"}
    assert (done.trace_id.hex(), done.parent_span_id.hex()) == (TRACE, ABOVE)
    assert attributes(done) == {
        "rpc.system": "grpc",
        "rpc.service": "acpc.v1.DiagnosticService",
        "rpc.method": "ComparePair",
        "rpc.grpc.status_code": 0,
        "acpc.request_id": line["request_id"],
    }
    assert line["trace_id"] == TRACE
    assert TRACE in exemplars
    assert (failed.status.message, failed.parent_span_id) == ("NOT_FOUND", b"")
    assert attributes(failed)["rpc.grpc.status_code"] == grpc.StatusCode.NOT_FOUND.value[0]


def _exemplars(server: ServerProcess) -> set[str]:
    """Trace ids beside the buckets of the latency, as a scraper that knows of them is sent."""
    accepted = {"Accept": "application/openmetrics-text; version=1.0.0"}
    url = f"http://127.0.0.1:{server.metrics_port}/metrics"
    with urllib.request.urlopen(urllib.request.Request(url, headers=accepted)) as page:
        lines = page.read().decode().splitlines()
    found = [line for line in lines if line.startswith("grpc_server_handling_seconds_bucket")]
    return {line.partition('trace_id="')[2][:32] for line in found if "trace_id" in line}


def test_without_the_libraries_the_log_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://localhost:4317")
    monkeypatch.setitem(sys.modules, "opentelemetry.sdk.trace", None)
    with structlog.testing.capture_logs() as lines:
        start_traces()
    assert [line["event"] for line in lines] == ["traces_not_sent"]
    assert "pip install '.[tracing]'" in lines[0]["hint"]
    assert begin_span("acpc.v1.DiagnosticService", "ComparePair", "") is None
