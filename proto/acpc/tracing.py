"""Traces: spans of a call in client, door, queue, device and job steps, for an OTLP collector.

Nothing of OpenTelemetry is imported before :func:`start`, and until then every span is
:data:`OFF`. Spans are named across threads, processes and records by their W3C ``traceparent``.
``opentelemetry-api`` alone is not used: the thin client would have to require and import it.
"""

from __future__ import annotations

import importlib
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import TYPE_CHECKING

from acpc.extras import install_line

if TYPE_CHECKING:
    from opentelemetry import trace

HEADER = "traceparent"


class NotInstalled(ImportError):
    """The libraries of the extra [tracing] are missing; the message says how to install them."""


class Span:
    """A stretch of work. This one is recorded nowhere.

    Attributes:
        traceparent: Its name for those who go on with the trace; empty when it has none.
    """

    traceparent = ""

    @property
    def trace_id(self) -> str:
        """The trace it is part of; empty without one."""
        return self.traceparent[3:35]

    @property
    def sampled(self) -> bool:
        """Whether the trace is kept, so that its id can be looked up."""
        return int(self.traceparent[-2:] or "0", 16) & 1 == 1

    def entered(self) -> AbstractContextManager[object]:
        """Make it the parent of the spans that this thread or task begins within."""
        return nullcontext()

    def describe(self, **attributes: str | int) -> None:
        """Add attributes to it."""

    def end(self, code: str = "OK") -> None:
        """End the span with the name of a status code; later calls change nothing."""


OFF = Span()


class _Recorded(Span):
    def __init__(self, otel: _Export, span: trace.Span, *, of_call: bool = False) -> None:
        self._otel = otel
        self._of_call = of_call
        self._span = span
        context = span.get_span_context()
        self.traceparent = (
            f"00-{context.trace_id:032x}-{context.span_id:016x}-{context.trace_flags:02x}"
        )

    def entered(self) -> AbstractContextManager[object]:
        return self._otel.enter(self._span)

    def describe(self, **attributes: str | int) -> None:
        self._span.set_attributes(attributes)

    def end(self, code: str = "OK") -> None:
        if self._span.is_recording():
            if self._of_call:
                self.describe(**{"rpc.grpc.status_code": self._otel.number(code)})
            self._otel.close(self._span, code)


class _Export:
    """Records and exports spans by OpenTelemetry's libraries."""

    def __init__(self, endpoint: str, service: str) -> None:
        try:
            self._api = importlib.import_module("opentelemetry.trace")
            sdk = importlib.import_module("opentelemetry.sdk.trace")
            batches = importlib.import_module("opentelemetry.sdk.trace.export")
            resources = importlib.import_module("opentelemetry.sdk.resources")
            parents = importlib.import_module("opentelemetry.trace.propagation.tracecontext")
            otlp = importlib.import_module("opentelemetry.exporter.otlp.proto.grpc.trace_exporter")
        except ImportError as error:
            raise NotInstalled(f"traces need {error.name}: {install_line('tracing')}") from error
        self._codes = importlib.import_module("grpc").StatusCode  # which the exporter has loaded
        self._parents = parents.TraceContextTextMapPropagator()
        named = resources.OTELResourceDetector().detect().attributes  # by OTEL_SERVICE_NAME
        resource = resources.Resource.create({"service.name": service, **named})
        self._provider = sdk.TracerProvider(resource=resource)
        address = endpoint if "://" in endpoint else f"http://{endpoint}"
        exporter = otlp.OTLPSpanExporter(endpoint=address)
        self._provider.add_span_processor(batches.BatchSpanProcessor(exporter))
        self._tracer = self._provider.get_tracer("acpc")

    def begin(
        self, name: str, parent: str, kind: str, began: float, attributes: object
    ) -> trace.Span:
        opened: trace.Span = self._tracer.start_span(
            name,
            context=self._parents.extract({HEADER: parent}) if parent else None,
            kind=self._api.SpanKind[kind],
            attributes=attributes,
            start_time=_nanoseconds(began),
        )
        return opened

    def enter(self, span: object) -> AbstractContextManager[object]:
        entered: AbstractContextManager[object] = self._api.use_span(
            span, record_exception=False, set_status_on_exception=False
        )
        return entered

    def close(self, span: trace.Span, code: str, ended: float | None = None) -> None:
        if code != "OK":
            span.set_status(self._api.StatusCode.ERROR, code)
        span.end(None if ended is None else _nanoseconds(ended))

    def number(self, code: str) -> int:
        return int(self._codes[code].value[0])

    def describe_current(self, attributes: object) -> None:
        self._api.get_current_span().set_attributes(attributes)

    def current(self) -> str:
        carrier: dict[str, str] = {}
        self._parents.inject(carrier)
        return carrier.get(HEADER, "")

    def stop(self) -> None:
        self._provider.shutdown()


_export: _Export | None = None


def start(endpoint: str, service: str) -> None:
    """Send the spans of this process to an OTLP collector over gRPC, in batches.

    Args:
        endpoint: ``host:port`` or a URL; ``https`` is spoken when the URL says so.
        service: What the process is called in the traces.

    Raises NotInstalled: The extra [tracing] is not installed.
    """
    global _export  # noqa: PLW0603 - one of a process, like its log
    if _export is None:
        _export = _Export(endpoint, service)


def stop() -> None:
    """Send what is left, and record nothing from now on."""
    global _export
    export, _export = _export, None
    if export is not None:
        export.stop()


def active() -> bool:
    """Whether spans are recorded."""
    return _export is not None


def here() -> str:
    """``traceparent`` of the span that this thread or task is in; empty without one."""
    return "" if _export is None else _export.current()


def begin(name: str, parent: str = "", kind: str = "INTERNAL", **attributes: str | int) -> Span:
    """Begin a span below ``parent``, a traceparent, or below the one of this thread or task."""
    if _export is None:
        return OFF
    span = _export.begin(name, parent, kind, time.perf_counter(), attributes)
    return _Recorded(_export, span)


def begin_call(side: str, service: str, method: str, parent: str = "") -> Span:
    """Begin the span of a gRPC call at its ``CLIENT`` or ``SERVER``."""
    if _export is None:
        return OFF
    facts = {"rpc.system": "grpc", "rpc.service": service, "rpc.method": method}
    name = f"{side.lower()} {method}"
    opened = _export.begin(name, parent, side, time.perf_counter(), facts)
    return _Recorded(_export, opened, of_call=True)


def describe(**attributes: str | int) -> None:
    """Add attributes to the span that this thread or task is in, if any."""
    if _export is not None:
        _export.describe_current(attributes)


@contextmanager
def span(name: str, parent: str = "", **attributes: str | int) -> Iterator[Span]:
    """A span around a block; an error ends it with the error's code."""
    opened = begin(name, parent, "INTERNAL", **attributes)
    code = "OK"
    try:
        with opened.entered():
            yield opened
    except BaseException as error:
        code = str(getattr(error, "code", type(error).__name__))
        raise
    finally:
        opened.end(code)


def record(name: str, parent: str, began: float, ended: float, **attributes: str | int) -> None:
    """Record a span that is over, between two moments of ``time.perf_counter``."""
    if _export is not None and parent:
        _export.close(_export.begin(name, parent, "INTERNAL", began, attributes), "OK", ended)


def _nanoseconds(moment: float) -> int:
    """Since 1970, of a moment of ``time.perf_counter``."""
    return time.time_ns() - round((time.perf_counter() - moment) * 1e9)
