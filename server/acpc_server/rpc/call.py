"""One call: what the door and the servicers know of it, and the one place where it ends."""

from __future__ import annotations

import asyncio
import random
import threading
import time
import uuid
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TypeAlias, TypeVar

import grpc
import structlog
from acpc import tracing
from acpc.contract import MAX_REQUEST_ID
from google.protobuf.descriptor import MethodDescriptor
from google.protobuf.message import DecodeError, Message
from google.protobuf.message_factory import GetMessageClass
from google.rpc import status_pb2

from acpc_server.access import ANYONE, AUDITED, LOCAL, Principal, Role, require_role, subject
from acpc_server.errors import (
    AcpcError,
    InvalidArgument,
    ResourceExhausted,
    Unauthenticated,
    UnknownName,
    shortage,
)
from acpc_server.observe import Metrics
from acpc_server.rpc.request import CALL_ID
from acpc_server.rpc.status import plain_status, to_status
from acpc_server.scheduling import RETRY_SECONDS, WorkerPool

log = structlog.get_logger("acpc.rpc")
audit_log = structlog.get_logger("acpc.audit")
REQUEST_ID_HEADER = "x-request-id"
# A call that waits for others is rejected while this share of its time is left, or so many seconds.
LAST_SHARE, LAST_SECONDS = 0.1, 0.1
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

T = TypeVar("T")
Metadata: TypeAlias = "tuple[tuple[str, str | bytes], ...]"
Admit: TypeAlias = "Callable[[str, Metadata, Mapping[str, Any], str], Principal]"
Dialogue: TypeAlias = "Generator[Message | None, Any, Message | None]"


def admit_all(
    method: str, metadata: Metadata, auth_context: Mapping[str, Any], peer: str
) -> Principal:
    """The principal of a server without authentication."""
    return LOCAL


class Rejected(Exception):
    """A call that has ended with a status; its metrics and log line are written."""

    def __init__(self, status: status_pb2.Status) -> None:
        super().__init__(status.message)
        self.status = status


@dataclass(frozen=True)
class Conversation:
    """How a servicer answers a stream of messages.

    Attributes:
        dialogue: Is sent each message, and None at the end; yields what to answer, or None. Each
            step runs in a worker; closed when the call ends. May return a last answer.
        idle_seconds: How long the caller may be silent.
        hint: What a caller is told that was silent for longer.
        reason: Reason of its DEADLINE_EXCEEDED.
    """

    dialogue: Dialogue
    idle_seconds: float
    hint: str
    reason: str


class Method:
    """One method of a service: its messages, and its series in the metrics."""

    def __init__(self, descriptor: MethodDescriptor, metrics: Metrics) -> None:
        self.service: str = descriptor.containing_service.full_name
        self.name: str = descriptor.name
        self.path = f"/{self.service}/{self.name}"
        self.streams: bool = descriptor.client_streaming
        self.audited = self.path in AUDITED
        self.probes = self.service.startswith(PROBES)
        self._request: Any = GetMessageClass(descriptor.input_type)
        kind = KINDS[descriptor.client_streaming, descriptor.server_streaming]
        self._labels = (kind, self.service, self.name)
        self._kind = kind
        self._metrics = metrics
        self._handled = metrics.rpc_handled
        self.started = metrics.rpc_started.labels(*self._labels)
        self._handling = metrics.rpc_handling.labels(*self._labels)

    def parse(self, data: bytes | None) -> Any:  # noqa: ANN401 - a message of any type
        """The message; InvalidArgument when there is none, or bytes of something else."""
        if data is None:
            raise InvalidArgument("request", "the call ended before a whole message was sent")
        try:
            return self._request.FromString(data)
        except (DecodeError, ValueError, RuntimeError) as error:
            raise InvalidArgument(
                "request", f"the bytes are not the message this method takes ({error})"
            ) from error

    def ended(self, call: Call, code: str, seconds: float) -> None:
        """Count, time and log a call that has ended."""
        left = call.time_remaining()
        if code == "CANCELLED" and left is not None and left < DEADLINE_SLACK:
            code = "DEADLINE_EXCEEDED"  # the caller's library leaves when its time is up
        self._handled.labels(*self._labels, code).inc()
        trace = {"trace_id": call.span.trace_id} if call.span.trace_id else {}
        self._handling.observe(seconds, trace or None)
        call.span.end(code)
        self.audit(call, code)
        if self.probes:
            return
        name = call.principal.name if call.admitted else "unknown"
        self._metrics.count_call(name, call.agent, code, kind=self._kind, budget=call.budget)
        if (
            call.admitted
        ):  # access control has logged the others, without letting them fill the disk
            log.info(
                "rpc",
                request_id=call.request_id,
                service=self.service,
                method=self.name,
                code=code,
                seconds=round(seconds, 6),
                peer=call.peer,
                principal=name,
                tenant=call.principal.tenant,
                user_agent=call.agent,
                **trace,
            )

    def audit(self, call: Call, code: str) -> None:
        """Say who had what changed; a call of an unknown caller changed nothing."""
        if self.audited and call.admitted:
            audit_log.info(
                "audit",
                request_id=call.request_id,
                method=self.path,
                code=code,
                principal=call.principal.name,
                tenant=call.principal.tenant,
                peer=call.peer,
                user_agent=call.agent,
                subject=call.subject,
            )


class Call:
    """One call, as servicers see it.

    Attributes:
        method: Which method is called.
        metadata: Headers that the caller sent.
        peer: Address of the caller's connection.
        principal: Who calls.
        admitted: Whether that was known once, also when the credentials have ended since.
        budget: Seconds the caller allowed, as they were on arrival, or None.
        span: The call's stretch of the caller's trace, if there is one.
        caller: What limits count by: the principal, or the connection of an unknown one.
        subject: What an audited call is about, as far as is known.
    """

    now = staticmethod(time.monotonic)

    def __init__(self, method: Method, context: Any, workers: WorkerPool) -> None:  # noqa: ANN401
        self.method = method
        self.metadata: Metadata = context.invocation_metadata()
        self.peer: str = context.peer()
        self.principal = LOCAL
        self.admitted = False
        self.caller = self.peer
        self.subject: dict[str, str] = {}
        self._context = context
        self._workers = workers
        self._started = self.now()
        self.budget: float | None = context.time_remaining()
        self._deadline = None if self.budget is None else self._started + self.budget
        self.span = tracing.OFF
        if tracing.active() and not method.probes:
            self.span = tracing.begin(
                f"server {method.name}", self.header(tracing.HEADER), "SERVER"
            )
        self._task = asyncio.current_task()
        self._interrupted: AcpcError | None = None
        self._lock = threading.Lock()
        self._callbacks: list[Callable[[], None]] = []
        self._active = True
        self._open = True
        self._waits = True  # for a thread, until admission knows better
        self._id = ""
        method.started.inc()

    def admit(self, admit: Admit) -> None:
        """Have ``admit`` say who calls; raises what it raises."""
        auth: Mapping[str, Any] = {} if admit is admit_all else self._context.auth_context()
        who = admit(self.method.path, self.metadata, auth, self.peer)
        if self.admitted and (who.name, who.tenant) != (self.principal.name, self.principal.tenant):
            # What the call has begun belongs to who it was.
            raise Unauthenticated(
                "these credentials now name another caller; call again", reason="BAD_CREDENTIALS"
            )
        self.principal, self.admitted = who, True
        if self.principal is not LOCAL and self.principal is not ANYONE:
            self.caller = self.principal.name
        require_role(self.principal, self.method.path)

    def note(self, message: Message) -> None:
        """Remember for the audit log what a request or an answer is about."""
        if self.method.audited:
            self.subject.update(subject(message))

    @property
    def request_id(self) -> str:
        """The id of the call in the log and in errors."""
        if not self._id:
            # Not uuid4, whose system call lets another thread have the interpreter first.
            made = uuid.UUID(int=random.getrandbits(128), version=4)
            self._id = self.header(REQUEST_ID_HEADER)[:MAX_REQUEST_ID] or str(made)
        return self._id

    @property
    def agent(self) -> str:
        """What the caller's library calls itself."""
        return self.header("user-agent")[:MAX_AGENT]

    def header(self, name: str) -> str:
        """What the caller sent under a name; empty without."""
        given = next((value for key, value in self.metadata if key == name), "")
        return given if isinstance(given, str) else ""

    def time_remaining(self) -> float | None:
        """Seconds until the caller's deadline, or None."""
        return None if self._deadline is None else max(0.0, self._deadline - self.now())

    def is_active(self) -> bool:
        """Whether the caller is still there."""
        return self._active

    def add_callback(self, callback: Callable[[], None]) -> bool:
        """Have ``callback`` called when the call ends; False when it has ended."""
        with self._lock:
            if self._active:
                self._callbacks.append(callback)
            return self._active

    def when_over(self, callback: Callable[[], None]) -> None:
        """Have ``callback`` called once the answer has left. For the event loop's thread."""
        if self._task is not None:  # gRPC's own way would keep the call until garbage is collected
            self._task.add_done_callback(lambda _: callback())

    async def in_worker(self, work: Callable[..., T], *args: Any) -> T:  # noqa: ANN401
        """Have a worker call ``work`` for an asynchronous servicer; errors are the call's."""
        return await self._workers.run_aside(self.caller, self._bound, work, args)

    async def receive(self) -> bytes | None:
        """The bytes of the next message, or None at the end of them."""
        data = await self._context.read()
        return None if data is grpc.aio.EOF else data

    def waits_for_others(self, waits: bool) -> None:
        """Whether it is only for others that its deadline might pass."""
        self._waits = waits

    @contextmanager
    def rejected_in_time(self) -> Iterator[None]:
        """Interrupt the call shortly before its deadline, if it still waits for others then.

        Its caller is told when to try again, which a deadline that passes does not tell. For the
        event loop's thread.
        """
        if self.budget is None or (left := self.time_remaining()) is None:
            yield
            return
        last = left - min(LAST_SHARE * self.budget, LAST_SECONDS)
        timer = asyncio.get_running_loop().call_later(last, self._give_up)
        try:
            yield
        finally:
            timer.cancel()

    def _give_up(self) -> None:
        if self._open and self._waits:
            self.interrupt(
                ResourceExhausted(
                    f"{self.now() - self._started:.3f} s were not enough for this request and "
                    "those ahead of it; allow more time or try again later",
                    reason="DEADLINE_CANNOT_BE_MET",
                    retry_after=RETRY_SECONDS,
                )
            )

    def interrupt(self, error: AcpcError) -> None:
        """End the call with an error, whatever it waits for. For the event loop's thread."""
        if self._interrupted is None and self._task is not None:
            self._interrupted = error
            self._task.cancel()

    def interruption(self) -> AcpcError | None:
        """Why the call's task was cancelled, when it was not the caller that left."""
        if self._interrupted is not None and self._task is not None:
            self._task.uncancel()
        return self._interrupted

    @contextmanager
    def observed(self, message: Any = None) -> Iterator[None]:  # noqa: ANN401
        """Work on the call under its request id; an error ends it, as :class:`Rejected`."""
        given = getattr(message, "request_id", "")
        if given:
            # Log lines that people read must not be written by callers.
            self._id = (
                given[:MAX_REQUEST_ID] if given.isprintable() else ascii(given)[:MAX_REQUEST_ID]
            )
        structlog.contextvars.bind_contextvars(request_id=self.request_id)
        CALL_ID.set(self.request_id)
        try:
            with self.span.entered():
                yield
        except Rejected:
            raise
        except AcpcError as error:
            raise Rejected(self.reject(self.named(error))) from error
        except BaseException as error:
            raise Rejected(self.fault(error)) from error
        finally:
            structlog.contextvars.unbind_contextvars("request_id")

    def named(self, error: AcpcError) -> AcpcError:
        """The error; for a caller that may list names, with those nearest to an unknown one."""
        if isinstance(error, UnknownName) and Role.READ in self.principal.roles:
            return error.with_names()
        return error

    def reject(self, error: AcpcError) -> status_pb2.Status:
        """End the call with an error; returns what to answer."""
        self.end(error.code)
        return to_status(error, self.request_id)

    def fault(self, error: BaseException) -> status_pb2.Status:
        """End the call with what nobody expected: a host that is short of something, or a bug.

        Returns what to answer. Called where ``error`` is handled.
        """
        if (short := shortage(error)) is not None:
            return self.reject(short)
        log.exception("rpc_bug", method=self.method.name, request_id=self.request_id)
        self.end("INTERNAL")
        message = f"a fault of the server, not of the request; quote request id {self.request_id}"
        return plain_status("INTERNAL", message, [])

    def end(self, code: str) -> None:
        """Write metrics and the log line, once: the one place where a call ends."""
        with self._lock:
            ends, self._open = self._open, False
        if ends:
            self.method.ended(self, code, self.now() - self._started)
        elif code == "OK":  # the caller had left, and what it asked for was done all the same
            self.method.audit(self, code)

    def leave(self) -> None:
        """Tell whoever works on the call that nobody waits for it any longer."""
        with self._lock:
            self._active = False
            callbacks, self._callbacks = self._callbacks, []
        for callback in callbacks:
            callback()

    def _bound(self, work: Callable[..., T], args: tuple[Any, ...]) -> T:
        with self.observed():
            return work(*args)
