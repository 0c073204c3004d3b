"""One call: who makes it, its messages, its end and status, and what is written about it."""

from __future__ import annotations

import asyncio
import random
import time
import uuid
from collections.abc import AsyncIterator, Callable, Mapping
from functools import cache
from typing import Any, TypeAlias, TypeVar

import grpc
import structlog
from acpc.contract import MAX_REQUEST_ID
from google.protobuf import duration_pb2
from google.protobuf.descriptor import MethodDescriptor
from google.protobuf.message import DecodeError, Message
from google.protobuf.message_factory import GetMessageClass
from google.rpc import error_details_pb2, status_pb2

from acpc_server.access import ANYONE, CHANGES, LOCAL, Principal, Role, require_role, subject
from acpc_server.errors import AcpcError, InvalidArgument, Unauthenticated, UnknownName, shortage
from acpc_server.observe import Metrics, begin_span, log_call
from acpc_server.rpc.limits import Limits, ReadLimit, Workers, memory_short

log = structlog.get_logger("acpc.rpc")
access_log = structlog.get_logger("acpc.access")
REQUEST_ID_HEADER = "x-request-id"
# Seconds by which a caller may see its deadline before the server does.
DEADLINE_SLACK = 0.05
# Characters of a user agent that are logged.
MAX_AGENT = 200
# Messages up to so many bytes are parsed, and worked on, on the event loop.
LOOP_BYTES = 2**18
DOMAIN = "acpc.v1"
# A status travels in trailers, of which a client takes 8 KiB. The message goes twice, once with
# every byte beyond ASCII written as three, and callers' own text may be quoted in it.
MAX_TEXT_BYTES, MAX_FIELD_BYTES = 1024, 256
# Not logged.
PROBES = ("grpc.health.v1.Health", "grpc.reflection.")
# Counted as uploads.
UPLOADS = ("UploadAnchors", "CreateAnchorSet")
# By (request streams, response streams): the kind in the metrics.
KINDS = {
    (False, False): "unary",
    (False, True): "server_stream",
    (True, False): "client_stream",
    (True, True): "bidi_stream",
}

T = TypeVar("T")
Metadata: TypeAlias = "tuple[tuple[str, str | bytes], ...]"
Identify: TypeAlias = "Callable[[str, Metadata, Mapping[str, Any], str], Principal]"
# Of a method, a caller and the seconds left: raises for a call that is not to be read.
Check: TypeAlias = "Callable[[str, str, float | None], None]"


class Method:
    """One method of a service: its messages, what it counts as, and its series in the metrics."""

    def __init__(
        self,
        descriptor: MethodDescriptor,
        metrics: Metrics,
        limits: Limits,
        workers: Workers,
        check: Check | None = None,
    ) -> None:
        self.service, self.name = descriptor.containing_service.full_name, descriptor.name
        self.path = f"/{self.service}/{self.name}"
        self.limits, self.workers, self.check = limits, workers, check
        self.streams: bool = descriptor.client_streaming
        self.counted = ["calls"] + ["streams"] * self.streams
        self.counted += ["uploads"] * (self.name in UPLOADS)
        self.changes = self.path in CHANGES
        self.probes = self.service.startswith(PROBES)
        self.kind = KINDS[descriptor.client_streaming, descriptor.server_streaming]
        self.metrics = metrics
        labels = self.kind, self.service, self.name
        self.started = metrics.rpc_started.labels(*labels)
        self.handled = cache(lambda code: metrics.rpc_handled.labels(*labels, code))
        self.handling = metrics.rpc_handling.labels(*labels)
        self.messages = metrics.stream_message.labels(*labels)
        self._request: Any = GetMessageClass(descriptor.input_type)

    def parse(self, data: bytes) -> Any:  # noqa: ANN401 - a message of any type
        """Parse a message; InvalidArgument when it is something else."""
        try:
            return self._request.FromString(data)
        except (DecodeError, ValueError, RuntimeError) as error:
            if memory_short(len(data)):  # the parser, too, says no more than that it failed
                raise MemoryError from error
            raise InvalidArgument(
                "request", f"the bytes are not the message this method takes ({error})"
            ) from error


class Call:
    """One call, as the door and servicers see it; but for attributes, for the event loop's thread.

    ``identify`` returns the caller, or raises; without it every caller is LOCAL.

    Attributes:
        caller: What limits count by: the principal, or the connection of an unknown one.
        task: What serves it.
        small: Whether its latest message is to be worked on where it was read.
        active: Whether its caller is still there.
        interrupted: Why the task was cancelled, when it was not the caller that left.
    """

    def __init__(self, method: Method, context: Any, identify: Identify | None) -> None:  # noqa: ANN401
        self.method = method
        self.peer: str = context.peer()
        self.principal, self.caller = LOCAL, self.peer
        self.small = self.active = True
        self.interrupted: AcpcError | None = None
        self._known = identify is None
        self._began = time.monotonic()
        self._budget: float | None = context.time_remaining()
        self._context = context
        self._identify = identify
        task = asyncio.current_task()
        assert task is not None  # noqa: S101 - a coroutine runs in one
        self.task = task
        self._bytes = 0  # of its latest message, counted in the limits
        self._subject = ""
        self._metadata: Metadata = context.invocation_metadata()
        headers = {key: value for key, value in self._metadata if isinstance(value, str)}
        # Not uuid4, whose system call lets another thread have the interpreter first.
        made = str(uuid.UUID(int=random.getrandbits(128), version=4))
        self.request_id = headers.get(REQUEST_ID_HEADER, "")[:MAX_REQUEST_ID] or made
        self._agent = headers.get("user-agent", "")[:MAX_AGENT]
        parent = headers.get("traceparent", "")
        span = None if method.probes else begin_span(method.service, method.name, parent)
        self._span = span
        # For a bucket of a histogram; None where no trace is kept.
        self._exemplar = {"trace_id": span.trace_id} if span is not None and span.sampled else None
        method.started.inc()

    def identify(self) -> None:
        """Find out who calls; raises what ``identify`` does, and PermissionDenied."""
        if self._identify is None:
            return
        method = self.method.path
        who = self._identify(method, self._metadata, self._context.auth_context(), self.peer)
        if self._known and who.name != self.principal.name:
            # What the call has begun belongs to who it was.
            raise Unauthenticated(
                "these credentials now name another caller; call again", reason="BAD_CREDENTIALS"
            )
        self.principal, self._known = who, True
        if who is not LOCAL and who is not ANYONE:
            self.caller = who.name
        require_role(who, method)

    def remaining(self) -> float | None:
        """Return the seconds until the caller's deadline, or None."""
        if self._budget is None:
            return None
        return max(0.0, self._began + self._budget - time.monotonic())

    async def message(self) -> Any:  # noqa: ANN401 - a message of any type
        """Return the one message of a call that sends one."""
        data = await self.method.limits.read(self.caller, self._context.read)
        if data is grpc.aio.EOF:
            raise InvalidArgument("request", "the call ended before a whole message was sent")
        message = await self._parsed(data)
        if given := getattr(message, "request_id", ""):
            # Log lines that people read must not be written by callers.
            self.request_id = (given if given.isprintable() else ascii(given))[:MAX_REQUEST_ID]
        structlog.contextvars.bind_contextvars(request_id=self.request_id)
        if self.method.changes:
            self._subject = subject(self.method.path, message)
        return message

    async def messages(self, limit: ReadLimit) -> AsyncIterator[Any]:
        """Yield the messages of a stream, which may be silent until ``limit`` once it has begun."""
        structlog.contextvars.bind_contextvars(request_id=self.request_id)
        limits = self.method.limits
        # A stream that shows none soon yields.
        receive = limits.read(self.caller, self._context.read, limit)
        while (data := await receive) is not grpc.aio.EOF:
            self.identify()
            began = time.monotonic()
            try:
                yield await self._parsed(data)
            finally:
                self.method.messages.observe(time.monotonic() - began, self._exemplar)
            receive = limits.listen(self._context.read, limit)

    async def _parsed(self, data: bytes) -> Any:  # noqa: ANN401
        self.method.limits.held_bytes += len(data) - self._bytes
        self._bytes, self.small = len(data), len(data) <= LOOP_BYTES
        if self.small:
            return self.method.parse(data)
        return await self.aside(self.method.parse, data)

    def aside(self, work: Callable[..., T], *args: Any) -> asyncio.Future[T]:  # noqa: ANN401
        """Have a worker call ``work``, in turn with those of other callers."""
        return self.method.workers.run(self.caller, work, *args)

    def leave(self) -> None:
        """Tell whoever works on the call that nobody waits for it any longer."""
        self.active = False
        self.method.limits.held_bytes -= self._bytes
        self._bytes = 0

    def named(self, error: AcpcError) -> AcpcError:
        """Add the names nearest to an unknown one, for a caller that may list names."""
        if isinstance(error, UnknownName) and self.principal.has(Role.READ):
            return error.with_names()
        return error

    def rejected(self, error: BaseException) -> status_pb2.Status:
        """End the call with an error; returns what to answer. Called where ``error`` is handled.

        An unexpected one is a host that is short of something, or a bug.
        """
        known = self.named(error) if isinstance(error, AcpcError) else shortage(error)
        if known is not None:
            self.end(known.code)
            return to_status(known, self.request_id)
        log.exception("rpc_bug", method=self.method.name, request_id=self.request_id)
        self.end("INTERNAL")
        message = f"a fault of the server, not of the request; quote request id {self.request_id}"
        return plain_status("INTERNAL", message)

    def end(self, code: str) -> None:
        """Write everything, once: the one place where a call ends."""
        method, budget, seconds = self.method, self._budget, time.monotonic() - self._began
        if code == "CANCELLED" and budget is not None and budget - seconds < DEADLINE_SLACK:
            code = "DEADLINE_EXCEEDED"  # the caller's library leaves when its time is up
        method.handled(code).inc()
        method.handling.observe(seconds, self._exemplar)
        if self._span is not None:
            self._span.end(code, int(grpc.StatusCode[code].value[0]), self.request_id)
        if method.changes or code == "PERMISSION_DENIED":
            self.log_access(code)
        if method.probes:
            return
        name = self.principal.name if self._known else "unknown"
        method.metrics.count_call(name, self._agent, code, kind=method.kind, budget=budget)
        if self._known:  # access control has logged the others, without filling the disk
            facts = {"service": method.service, "method": method.name, "seconds": round(seconds, 6)}
            log_call(self._whose(code) | facts)

    def log_access(self, code: str) -> None:
        """Log who had what changed, or was denied it; those unknown have a line already."""
        if self._known:
            facts = {"method": self.method.path, "subject": self._subject}
            access_log.info("access", **self._whose(code), **facts)

    def _whose(self, code: str) -> dict[str, str]:
        return {
            "request_id": self.request_id,
            "code": code,
            "peer": self.peer,
            "principal": self.principal.name,
            "credential": self.principal.credential,
            "user_agent": self._agent,
            **({} if self._span is None else {"trace_id": self._span.trace_id}),
        }


def to_status(error: AcpcError, identity: str) -> status_pb2.Status:
    """Make a status with ErrorInfo, RequestInfo and, where they apply, BadRequest and RetryInfo."""
    details: list[Message] = [
        error_details_pb2.ErrorInfo(reason=error.reason, domain=DOMAIN),
        error_details_pb2.RequestInfo(request_id=identity),
    ]
    if error.violations:
        fields = [
            error_details_pb2.BadRequest.FieldViolation(
                field=_clipped(violation.field, MAX_FIELD_BYTES),
                description=_clipped(violation.description, MAX_TEXT_BYTES),
            )
            for violation in error.violations
        ]
        details.append(error_details_pb2.BadRequest(field_violations=fields))
    if error.retry_after is not None:
        delay = duration_pb2.Duration()
        delay.FromNanoseconds(round(error.retry_after * 1e9))
        details.append(error_details_pb2.RetryInfo(retry_delay=delay))
    return plain_status(error.code, error.message, *details)


def plain_status(code: str, message: str, *details: Message) -> status_pb2.Status:
    """Make a status from a code's name; a message too long for the trailers is cut."""
    number: int = grpc.StatusCode[code].value[0]
    status = status_pb2.Status(code=number, message=_clipped(message, MAX_TEXT_BYTES))
    for detail in details:
        status.details.add().Pack(detail)
    return status


def _clipped(text: str, limit: int) -> str:
    data = text.encode("utf-8", "replace")
    if len(data) <= limit:
        return text
    return data[: limit - 3].decode("utf-8", "ignore") + "..."
