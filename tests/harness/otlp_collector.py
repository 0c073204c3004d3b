"""An OpenTelemetry collector on a socket, which keeps the spans it is sent."""

from collections.abc import Iterator
from concurrent import futures
from contextlib import contextmanager
from dataclasses import dataclass

import grpc
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2, trace_service_pb2_grpc
from opentelemetry.proto.trace.v1 import trace_pb2


@dataclass(frozen=True)
class Received:
    """One span, and the service that sent it."""

    service: str
    span: trace_pb2.Span

    @property
    def parent(self) -> bytes:
        return self.span.parent_span_id

    @property
    def attributes(self) -> dict[str, str | int]:
        values = {a.key: a.value for a in self.span.attributes}
        return {key: v.string_value or v.int_value for key, v in values.items()}

    @property
    def failed(self) -> str:
        """The code it ended with; empty when all went well."""
        return self.span.status.message


class Collector(trace_service_pb2_grpc.TraceServiceServicer):
    """Keeps every span.

    Attributes:
        received: The spans, in the order of their arrival.
        address: Where it listens.
    """

    def __init__(self) -> None:
        self.received: list[Received] = []
        self.address = ""

    def Export(
        self, request: trace_service_pb2.ExportTraceServiceRequest, context: grpc.ServicerContext
    ) -> trace_service_pb2.ExportTraceServiceResponse:
        for resource in request.resource_spans:
            facts = {a.key: a.value.string_value for a in resource.resource.attributes}
            for scope in resource.scope_spans:
                self.received += [Received(facts["service.name"], span) for span in scope.spans]
        return trace_service_pb2.ExportTraceServiceResponse()


@contextmanager
def collecting() -> Iterator[Collector]:
    collector = Collector()
    server = grpc.server(futures.ThreadPoolExecutor(2))
    trace_service_pb2_grpc.add_TraceServiceServicer_to_server(collector, server)
    collector.address = f"127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}"
    server.start()
    try:
        yield collector
    finally:
        server.stop(None).wait()
