"""A span for each call, where the standard ``OTEL_*`` variables name a collector.

Nothing of OpenTelemetry is imported unless they do.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import structlog
from acpc.extras import install_line

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.trace import Span

log = structlog.get_logger("acpc.app")
_provider: TracerProvider | None = None


class CallSpan:
    """The span of a call; its trace may not be ``sampled``, and can then not be looked up."""

    def __init__(self, span: Span) -> None:
        context = span.get_span_context()
        self.trace_id, self.sampled = f"{context.trace_id:032x}", context.trace_flags.sampled
        self._span = span

    def end(self, code: str, number: int, request_id: str) -> None:
        """End it with the name and the number of a status code."""
        from opentelemetry.trace import StatusCode  # noqa: PLC0415 - loaded with the first span

        self._span.set_attributes({"rpc.grpc.status_code": number, "acpc.request_id": request_id})
        if code != "OK":
            self._span.set_status(StatusCode.ERROR, code)
        self._span.end()


def start_traces() -> None:
    """Send spans from now on, if a variable names a collector and the libraries are there."""
    global _provider  # noqa: PLW0603 - one of a process, like its log
    names = ("OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT")
    if not any(map(os.environ.get, names)):
        return
    try:
        from opentelemetry.exporter.otlp.proto.grpc import trace_exporter  # noqa: PLC0415
        from opentelemetry.sdk import resources  # noqa: PLC0415
        from opentelemetry.sdk.trace import TracerProvider, export  # noqa: PLC0415
    except ImportError as error:
        log.warning("traces_not_sent", missing=error.name, hint=install_line("tracing"))
        return
    named = resources.OTELResourceDetector().detect().attributes  # as by OTEL_SERVICE_NAME
    resource = resources.Resource.create({"service.name": "acpc-server", **named})
    _provider = TracerProvider(resource=resource)
    _provider.add_span_processor(export.BatchSpanProcessor(trace_exporter.OTLPSpanExporter()))


def stop_traces() -> None:
    """Send what is left, and make no spans any more."""
    global _provider
    provider, _provider = _provider, None
    if provider is not None:
        provider.shutdown()


def begin_span(service: str, method: str, parent: str) -> CallSpan | None:
    """Begin the span of a call below ``parent``, a W3C traceparent; None where none are sent."""
    if _provider is None:
        return None
    from opentelemetry.trace import SpanKind  # noqa: PLC0415
    from opentelemetry.trace.propagation import tracecontext  # noqa: PLC0415

    facts = {"rpc.system": "grpc", "rpc.service": service, "rpc.method": method}
    above = tracecontext.TraceContextTextMapPropagator().extract({"traceparent": parent})
    tracer = _provider.get_tracer("acpc")
    return CallSpan(tracer.start_span(f"{service}/{method}", above, SpanKind.SERVER, facts))
