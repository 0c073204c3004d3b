"""Spans of a client's calls: sent when a collector is named, and otherwise nothing at all."""

# ruff: noqa: ANN401 - a side is either client

import sys
from collections.abc import Iterator
from typing import Any

import grpc
import numpy as np
import pytest
from acpc import tracing
from acpc.contract import GaussianNoise
from acpc_client import AcpcClient
from acpc_client.errors import AcpcError, ArgumentError
from acpc_client.inputs import Pair
from client_counterparty import Counterparty
from client_messages import status
from otlp_collector import Collector, collecting

pytestmark = pytest.mark.edge


@pytest.fixture
def collector(monkeypatch: pytest.MonkeyPatch) -> Iterator[Collector]:
    with collecting() as found:
        monkeypatch.setenv("ACPC_OTLP_ENDPOINT", found.address)
        yield found
        tracing.stop()


def _compare(side: Any, history: np.ndarray, blocks: np.ndarray) -> None:
    shift = GaussianNoise(0.1)
    side.ask(lambda client: client.compare_pair("model", history, blocks, perturbations=shift))


def test_a_call_and_a_failed_attempt_are_spans(
    collector: Collector, side: Any, counterparty: Counterparty, history: np.ndarray,
    blocks: np.ndarray,
) -> None:  # fmt: skip
    missing = status(grpc.StatusCode.NOT_FOUND, "no such checkpoint")
    counterparty.refusals["ComparePair"].append(missing)
    with pytest.raises(AcpcError):
        _compare(side, history, blocks)
    _compare(side, history, blocks)
    tracing.stop()
    spans = collector.named("client ComparePair")
    assert [one.failed for one in spans] == ["NOT_FOUND", ""]
    assert {one.service for one in spans} == {"acpc-client"}
    assert not any(one.parent for one in spans)


def test_a_stream_the_server_ended_is_a_span_of_the_servers_status(
    collector: Collector, side: Any, counterparty: Counterparty, history: np.ndarray,
    blocks: np.ndarray,
) -> None:  # fmt: skip
    pairs = [Pair(history, blocks, GaussianNoise(0.1))] * 3
    for _ in range(20):
        counterparty.refusals["ComparePairs"].append(status(grpc.StatusCode.ABORTED, "other"))
        with pytest.raises(AcpcError, match="other"):
            side.collect(lambda client: client.compare_pairs("model", pairs))
    tracing.stop()
    spans = collector.named("client ComparePairs")
    # A thread of gRPC's ends the last spans, perhaps too late to be sent.
    assert {one.failed for one in spans} == {"ABORTED"}


def test_a_call_belongs_to_the_span_of_the_application(
    collector: Collector, target: str, history: np.ndarray, blocks: np.ndarray
) -> None:
    with AcpcClient(target) as client, tracing.span("planning") as above:
        client.compare_pair("model", history, blocks, perturbations=GaussianNoise(0.1))
    tracing.stop()
    (call,) = collector.named("client ComparePair")
    assert above.traceparent.split("-")[1:3] == [call.span.trace_id.hex(), call.parent.hex()]


@pytest.mark.parametrize(
    ("variable", "value"),
    [("OTEL_SERVICE_NAME", "robot-7"), ("OTEL_RESOURCE_ATTRIBUTES", "service.name=robot-7")],
)
def test_the_standard_variables_name_the_service(
    collector: Collector, monkeypatch: pytest.MonkeyPatch, target: str, variable: str, value: str
) -> None:
    monkeypatch.setenv(variable, value)
    with AcpcClient(target), tracing.span("planning"):
        pass
    tracing.stop()
    assert [one.service for one in collector.received] == ["robot-7"]


def test_nothing_is_traced_unless_it_is_asked_for(target: str) -> None:
    with AcpcClient(target):
        assert not tracing.active()
        assert tracing.begin("nothing") is tracing.OFF
        assert tracing.here() == ""


def test_traces_without_their_libraries_say_what_to_install(
    monkeypatch: pytest.MonkeyPatch, target: str
) -> None:
    monkeypatch.setitem(sys.modules, "opentelemetry.sdk.trace", None)
    with pytest.raises(ArgumentError, match=r"\[tracing\]"):
        AcpcClient(target, otlp_endpoint="localhost:4317")
