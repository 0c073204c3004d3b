"""Records a call: its series, its span and its lines in the log."""

from __future__ import annotations

import random
import threading
import time
import uuid
from typing import Any, TypeAlias

import grpc
import structlog
from acpc.contract import MAX_REQUEST_ID
from google.protobuf.descriptor import MethodDescriptor
from google.protobuf.message import DecodeError, Message
from google.protobuf.message_factory import GetMessageClass

from acpc_server.access import CHANGES, Principal, subject
from acpc_server.errors import InvalidArgument
from acpc_server.observe import CallSpan, Metrics, begin_span
from acpc_server.rpc.removed import RemovedFields
from acpc_server.scheduling import memory_short

log = structlog.get_logger("acpc.rpc")
access_log = structlog.get_logger("acpc.access")
REQUEST_ID_HEADER = "x-request-id"
# Seconds by which a caller may see its deadline before the server does.
DEADLINE_SLACK = 0.05
# Characters of a user agent that are logged.
MAX_AGENT = 200
# Not logged.
PROBES = ("grpc.health.v1.Health", "grpc.reflection.")
# By (request streams, response streams): the kind in the metrics.
KINDS = {
    (False, False): "unary",
    (False, True): "server_stream",
    (True, False): "client_stream",
    (True, True): "bidi_stream",
}
Metadata: TypeAlias = "tuple[tuple[str, str | bytes], ...]"


class ServedMethod:
    """One method of a service: its messages, and its series in the metrics."""

    def __init__(self, descriptor: MethodDescriptor, metrics: Metrics) -> None:
        service, self.name = descriptor.containing_service.full_name, descriptor.name
        self.path = f"/{service}/{self.name}"
        self.streams: bool = descriptor.client_streaming
        self.changes = self.path in CHANGES
        self.probes = service.startswith(PROBES)
        self.kind = KINDS[descriptor.client_streaming, descriptor.server_streaming]
        self.labels = (self.kind, service, self.name)
        self.metrics = metrics
        self.started = metrics.rpc_started.labels(*self.labels)
        self.handling = metrics.rpc_handling.labels(*self.labels)
        self.messages = metrics.stream_message.labels(*self.labels) if self.streams else None
        self._request: Any = GetMessageClass(descriptor.input_type)
        self._removed = RemovedFields(descriptor.input_type)

    def parse(self, data: bytes | None) -> Any:  # noqa: ANN401 - a message of any type
        """Parse the message.

        InvalidArgument when there is none, or bytes of something else, or a field that is reserved:
        what it meant would not be done.
        """
        if data is None:
            raise InvalidArgument("request", "the call ended before a whole message was sent")
        try:
            message = self._request.FromString(data)
        except (DecodeError, ValueError, RuntimeError) as error:
            if memory_short(len(data)):  # the parser, too, says no more than that it failed
                raise MemoryError from error
            raise InvalidArgument(
                "request", f"the bytes are not the message this method takes ({error})"
            ) from error
        if found := self._removed.find(data):
            raise InvalidArgument(found, "was removed in this release; see CHANGELOG")
        return message


class CallRecord:
    """Metrics, log lines and span of one call.

    ``budget`` is the seconds the caller allowed, or None; ``principal`` is set once the caller is
    known, and stays when the credentials end.
    """

    def __init__(self, method: ServedMethod, context: Any) -> None:  # noqa: ANN401
        self.metadata: Metadata = context.invocation_metadata()
        self.peer: str = context.peer()
        self.budget: float | None = context.time_remaining()
        self.principal: Principal | None = None
        self.open = True
        self._span: CallSpan | None = None
        if not method.probes:
            _, service, name = method.labels
            self._span = begin_span(service, name, self._header("traceparent"))
        self._method = method
        self._began = time.monotonic()
        self._id = ""
        self._subject = ""
        self._lock = threading.Lock()
        method.started.inc()

    @property
    def request_id(self) -> str:
        """The id of the call in the log and in errors."""
        if not self._id:
            # Not uuid4, whose system call lets another thread have the interpreter first.
            made = uuid.UUID(int=random.getrandbits(128), version=4)
            self._id = self._header(REQUEST_ID_HEADER)[:MAX_REQUEST_ID] or str(made)
        return self._id

    def use_id(self, given: str) -> None:
        """Call the request by the id that its message has, if any."""
        if given:
            # Log lines that people read must not be written by callers.
            self._id = (given if given.isprintable() else ascii(given))[:MAX_REQUEST_ID]

    def note(self, request: Message) -> None:
        """Remember for the log what a request that changes something is about."""
        if self._method.changes:
            self._subject = subject(self._method.path, request)

    def answered(self, began: float) -> None:
        """Record that a message of a stream, taken at a moment of ``time.monotonic``, is done."""
        if self._method.messages is not None:
            self._method.messages.observe(time.monotonic() - began, self._exemplar)

    def end(self, code: str) -> None:
        """Write everything, once: the one place where a call ends."""
        with self._lock:
            ends, self.open = self.open, False
        if ends:
            self._write(code, time.monotonic() - self._began)
        elif code == "OK":  # the caller had left, and what it asked for was done all the same
            self._log_access(code)

    def _write(self, code: str, seconds: float) -> None:
        method, budget = self._method, self.budget
        if code == "CANCELLED" and budget is not None and budget - seconds < DEADLINE_SLACK:
            code = "DEADLINE_EXCEEDED"  # the caller's library leaves when its time is up
        method.metrics.rpc_handled.labels(*method.labels, code).inc()
        method.handling.observe(seconds, self._exemplar)
        if self._span is not None:
            self._span.end(code, int(grpc.StatusCode[code].value[0]), self.request_id)
        self._log_access(code)
        if method.probes:
            return
        name = self.principal.name if self.principal else "unknown"
        method.metrics.count_call(name, self._agent, code, kind=method.kind, budget=budget)
        if self.principal:  # access control has logged the others, without filling the disk
            _, service, name = method.labels
            whose = self._whose(code, self.principal)
            log.info("rpc", **whose, service=service, method=name, seconds=round(seconds, 6))

    def _log_access(self, code: str) -> None:
        """Log who had what changed, and who was denied it; those unknown have a line already."""
        if self.principal and (self._method.changes or code == "PERMISSION_DENIED"):
            whose = self._whose(code, self.principal)
            access_log.info("access", **whose, method=self._method.path, subject=self._subject)

    def _whose(self, code: str, principal: Principal) -> dict[str, str]:
        trace = {} if self._span is None else {"trace_id": self._span.trace_id}
        return {
            "request_id": self.request_id,
            "code": code,
            "peer": self.peer,
            "principal": principal.name,
            "credential": principal.credential,
            "user_agent": self._agent,
            **trace,
        }

    @property
    def _exemplar(self) -> dict[str, str] | None:
        """The call's trace, for a bucket of a histogram; None where no trace is kept."""
        span = self._span
        return {"trace_id": span.trace_id} if span is not None and span.sampled else None

    @property
    def _agent(self) -> str:
        return self._header("user-agent")[:MAX_AGENT]

    def _header(self, name: str) -> str:
        given = next((value for key, value in self.metadata if key == name), "")
        return given if isinstance(given, str) else ""
