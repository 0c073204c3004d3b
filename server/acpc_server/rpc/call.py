"""One call: what a servicer sees of it, and how long it lives."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TypeAlias, TypeVar

import grpc
import structlog
from google.protobuf.message import Message
from google.rpc import status_pb2

from acpc_server.access import ANYONE, LOCAL, Principal, Role, require_role
from acpc_server.errors import (
    AcpcError,
    DeadlineExceeded,
    ResourceExhausted,
    Unauthenticated,
    UnknownName,
    shortage,
)
from acpc_server.rpc.record import CallRecord, Metadata, ServedMethod
from acpc_server.rpc.request import CALL_ID, plain_status, to_status
from acpc_server.scheduling import RETRY_SECONDS, WorkerPool

log = structlog.get_logger("acpc.rpc")
# A call that waits for others is rejected while this share of its time is left, or so many seconds.
LAST_SHARE, LAST_SECONDS = 0.1, 0.1

T = TypeVar("T")
Admit: TypeAlias = "Callable[[str, Metadata, Mapping[str, Any], str], Principal]"
Dialogue: TypeAlias = "Generator[Message | None, Any, Message | None]"


def admit_all(
    method: str, metadata: Metadata, auth_context: Mapping[str, Any], peer: str
) -> Principal:
    """Return the principal of a server without authentication."""
    return LOCAL


class Rejected(Exception):
    """A call that has ended with a status; its metrics and log line are written."""

    def __init__(self, status: status_pb2.Status) -> None:
        super().__init__(status.message)
        self.status = status


@dataclass(frozen=True)
class ReadLimit:
    """How long a message may take from when the server is ready for it, and the error then."""

    seconds: float
    hint: str = "send the whole message at once"
    reason: str = "MESSAGE_LATE"

    def passed(self) -> DeadlineExceeded:
        """Make the error of a message that is late."""
        return DeadlineExceeded(
            f"no message for {self.seconds:g} seconds; {self.hint}", reason=self.reason
        )


class Conversation:
    """How a servicer answers a stream of messages, one worker at a time.

    ``dialogue`` receives each message, and None at the end; it yields the answer, or None. Each
    step runs in a worker; it is closed when the call ends, and may return a last answer. A caller
    may be silent until ``limit``.
    """

    def __init__(self, dialogue: Dialogue, limit: ReadLimit) -> None:
        self.limit = limit
        self.over = False
        self._dialogue = dialogue
        self._lock = threading.Lock()
        next(dialogue)

    def send(self, message: Message | None) -> Message | None:
        """Send the next message; returns the answer, if there is one."""
        with self._lock:
            if self.over:
                return None
            try:
                return self._dialogue.send(message)
            except StopIteration as end:
                self.over = True
                last: Message | None = end.value
                return last

    def close(self) -> None:
        """End the dialogue, once the step under way has ended."""
        with self._lock:
            self.over = True
            try:
                self._dialogue.close()
            except Exception:  # nobody waits for it
                log.exception("rpc_bug", method="close")


class Lifetime:
    """How long a call lives: its deadline after ``budget`` seconds, its interruption, its end."""

    def __init__(self, budget: float | None) -> None:
        self._began = time.monotonic()
        self._budget = budget
        self._task = asyncio.current_task()
        self._interrupted: AcpcError | None = None
        self._lock = threading.Lock()
        self._callbacks: list[Callable[[], None]] = []
        self._active = True
        self._waits = True  # for a thread, until admission knows better

    def time_remaining(self) -> float | None:
        """Return the seconds until the caller's deadline, or None."""
        if self._budget is None:
            return None
        return max(0.0, self._began + self._budget - time.monotonic())

    def is_active(self) -> bool:
        """Whether the caller is still there."""
        return self._active

    def add_callback(self, callback: Callable[[], None]) -> bool:
        """Have ``callback`` called when the call ends; False when it has ended."""
        with self._lock:
            if self._active:
                self._callbacks.append(callback)
            return self._active

    def leave(self) -> None:
        """Tell whoever works on the call that nobody waits for it any longer."""
        with self._lock:
            self._active = False
            callbacks, self._callbacks = self._callbacks, []
        for callback in callbacks:
            callback()

    def when_over(self, callback: Callable[[], None]) -> None:
        """Have ``callback`` called once the answer has left. For the event loop's thread."""
        if self._task is not None:  # gRPC's own way would keep the call until garbage is collected
            self._task.add_done_callback(lambda _: callback())

    def waits_for_others(self, waits: bool) -> None:
        """Set whether it is only for others that the deadline might pass."""
        self._waits = waits

    @contextmanager
    def rejected_in_time(self, record: CallRecord) -> Iterator[None]:
        """Interrupt the call shortly before its deadline, if it still waits for others then.

        Unlike a passed deadline, the error says when to try again. For the event loop's thread.
        """
        budget, left = self._budget, self.time_remaining()
        if budget is None or left is None:
            yield
            return

        def give_up() -> None:
            if record.open and self._waits:
                took = time.monotonic() - self._began
                self.interrupt(
                    ResourceExhausted(
                        f"{took:.3f} s were not enough for this request and those ahead of it; "
                        "allow more time or try again later",
                        reason="DEADLINE_CANNOT_BE_MET",
                        retry_after=RETRY_SECONDS,
                    )
                )

        last = left - min(LAST_SHARE * budget, LAST_SECONDS)
        timer = asyncio.get_running_loop().call_later(last, give_up)
        try:
            yield
        finally:
            timer.cancel()

    def interrupt(self, error: AcpcError) -> None:
        """End the call with an error, whatever it waits for. For the event loop's thread."""
        if self._interrupted is None and self._task is not None:
            self._interrupted = error
            self._task.cancel()

    def interruption(self) -> AcpcError | None:
        """Return why the call's task was cancelled, when it was not the caller that left."""
        if self._interrupted is not None and self._task is not None:
            self._task.uncancel()
        return self._interrupted


class Call:
    """One call, as servicers see it.

    Limits count by ``caller``: the principal, or the connection of an unknown one.
    """

    def __init__(self, method: ServedMethod, context: Any, workers: WorkerPool) -> None:  # noqa: ANN401
        self.method = method
        self.principal = LOCAL
        self.record = CallRecord(method, context)
        self.life = Lifetime(self.record.budget)
        self.caller = self.record.peer
        self._context = context
        self._workers = workers

    def admit(self, admit: Admit) -> None:
        """Identify the caller with ``admit``; raises what it raises."""
        auth: Mapping[str, Any] = {} if admit is admit_all else self._context.auth_context()
        record = self.record
        who, was = admit(self.method.path, record.metadata, auth, record.peer), record.principal
        if was and who.name != was.name:
            # What the call has begun belongs to who it was.
            raise Unauthenticated(
                "these credentials now name another caller; call again", reason="BAD_CREDENTIALS"
            )
        self.principal = record.principal = who
        if who is not LOCAL and who is not ANYONE:
            self.caller = who.name
        require_role(who, self.method.path)

    async def in_worker(self, work: Callable[..., T], *args: Any) -> T:  # noqa: ANN401
        """Have a worker call ``work`` for an asynchronous servicer; errors are the call's."""
        return await self._workers.run_aside(self.caller, self.observed()(work), *args)

    async def receive(self) -> bytes | None:
        """Return the bytes of the next message, or None at the end of them."""
        data = await self._context.read()
        return None if data is grpc.aio.EOF else data

    @contextmanager
    def observed(self, message: Any = None) -> Iterator[None]:  # noqa: ANN401
        """Work on the call under its request id; an error ends it, as :class:`Rejected`."""
        record = self.record
        record.use_id(getattr(message, "request_id", ""))
        structlog.contextvars.bind_contextvars(request_id=record.request_id)
        CALL_ID.set(record.request_id)
        try:
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
        """Add the names nearest to an unknown one, for a caller that may list names."""
        if isinstance(error, UnknownName) and self.principal.has(Role.READ):
            return error.with_names()
        return error

    def reject(self, error: AcpcError) -> status_pb2.Status:
        """End the call with an error; returns what to answer."""
        self.record.end(error.code)
        return to_status(error, self.record.request_id)

    def fault(self, error: BaseException) -> status_pb2.Status:
        """End the call with an unexpected error: a host that is short of something, or a bug.

        Returns what to answer. Called where ``error`` is handled.
        """
        if (short := shortage(error)) is not None:
            return self.reject(short)
        identity = self.record.request_id
        log.exception("rpc_bug", method=self.method.name, request_id=identity)
        self.record.end("INTERNAL")
        message = f"a fault of the server, not of the request; quote request id {identity}"
        return plain_status("INTERNAL", message, [])
