"""The device's queue: alike requests share a call, callers go round, jobs go last."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Hashable, Iterable, Sequence
from concurrent.futures import Future, InvalidStateError
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from acpc_server.errors import (
    Cancelled,
    DeadlineExceeded,
    DeviceFailed,
    ResourceExhausted,
    Unavailable,
)
from acpc_server.observe import Metrics
from acpc_server.scheduling.admission import RETRY_SECONDS, Admission
from acpc_server.scheduling.context import Priority, RequestContext
from acpc_server.scheduling.turns import Turns

T = TypeVar("T")
# A job's chunk that has waited this long goes next, so that jobs progress under steady load.
MAX_JOB_WAIT = 0.5
# While other requests are under way, a call that they may join is delayed: until none has come for
# the first of these seconds, and never longer than the second.
MAX_ARRIVAL_GAP, MAX_QUEUE_DELAY = 0.004, 0.02


@dataclass(frozen=True)
class Work(Generic[T]):
    """What the device does in one call, alone or for several requests, and what it becomes.

    Attributes:
        primitive: ``encode``, ``rollout``, ``pool``, ``tangent``, ``pair`` and so on.
        kind: Work of one primitive and kind may share a call, if it ``merges``.
        compute: Called in the device's thread with the payloads of all that share the call, of at
            most ``max_rows`` together, and a context in which everything is computed at once;
            returns an answer, or an AcpcError of that request alone, for each. For a request that
            is large it is called in the caller's thread, with the caller's context, and so queues
            one chunk after another.
        drawing: Work of drawing its views.
        finish: Makes the answer of what was computed.
    """

    primitive: str
    kind: tuple[Hashable, ...]
    payload: Any
    compute: Callable[[Sequence[Any], RequestContext], Sequence[Any]]
    rows: int
    max_rows: int = 2**31
    drawing: float = 0.0
    finish: Callable[[Any], T] = lambda found: found
    merges: bool = False


@dataclass(eq=False)
class Chunk:
    """Work in line, and the future that its request waits on: ``loop``'s, or a thread's."""

    work: Work[Any]
    context: RequestContext
    loop: asyncio.AbstractEventLoop | None = None
    queued_at: float = field(default_factory=time.perf_counter)

    def __post_init__(self) -> None:
        self.future: Any = Future() if self.loop is None else self.loop.create_future()


class DeviceQueue:
    """Interactive chunks before job chunks that can wait; with ``merge`` some share a call."""

    def __init__(self, metrics: Metrics, admission: Admission, *, merge: bool = True) -> None:
        self._merge = merge
        self._depths = {p: metrics.queue_depth.labels(p.name.lower()) for p in Priority}
        self._admission = admission
        self._changed = admission.changed
        self._lines: dict[Priority, Turns[Chunk]] = {p: Turns() for p in Priority}
        self._closed = False
        self._taken: list[Chunk] = []  # of the device call under way
        self._failure = ""

    def put(self, chunk: Chunk) -> None:
        """Queue a chunk; Unavailable when the queue is closed."""
        priority = chunk.context.priority
        with self._changed:
            if self._failure:
                raise DeviceFailed(self._failure)
            if self._closed:
                raise Unavailable("the server is draining", retry_after=RETRY_SECONDS)
            self._lines[priority].add(chunk.context.caller, chunk)
            self._depths[priority].set(len(self._lines[priority]))
            self._changed.notify_all()

    def take(self) -> list[Chunk]:
        """Take the next chunk and all that share its device call; none once closed and drained.

        Blocks while there is no work. Only what merges shares a call. What is not wanted any
        more is rejected instead.
        """
        with self._changed:
            self._taken = []  # so that an idle device holds on to no frames and to no model
            while (line := self._next_line()) is not None:
                first = line.take()
                if _is_wanted(first):
                    self._taken = [first]
                    if first.work.merges and self._merge:
                        self._delay(first, line)
                        self._taken += self._alike(first, line)
                priority = first.context.priority
                self._depths[priority].set(len(line))
                if self._taken:
                    break
            return list(self._taken)

    def close(self) -> None:
        """Reject further chunks; those that wait are still served."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    def fail(self, why: str) -> None:
        """Reject every chunk with DeviceFailed: those under way, those that wait, those to come."""
        with self._changed:
            self._closed, self._failure = True, why
            rejected = [*self._taken, *(chunk for line in self._lines.values() for chunk in line)]
            self._lines = {priority: Turns() for priority in Priority}
            self._changed.notify_all()
        settle((chunk, DeviceFailed(why)) for chunk in rejected)

    def _next_line(self) -> Turns[Chunk] | None:
        """Wait until there is work and return its line; None once closed and drained."""
        while True:
            interactive, jobs = self._lines.values()
            overdue = time.perf_counter() - MAX_JOB_WAIT
            if jobs and (not interactive or any(one.queued_at <= overdue for one in jobs)):
                return jobs
            if interactive:
                return interactive
            if self._closed:
                return None
            self._changed.wait()

    def _delay(self, first: Chunk, line: Turns[Chunk]) -> None:
        """Wait for requests that are being prepared: together they take little longer than one."""
        begun = latest = time.perf_counter()
        seen, rows = 0, first.work.rows
        while not self._lines[Priority.JOB] and not self._closed:
            if len(line) > seen:
                seen, latest = len(line), time.perf_counter()
                rows = first.work.rows + sum(chunk.work.rows for chunk in line)
            left = min(latest + MAX_ARRIVAL_GAP, begun + MAX_QUEUE_DELAY) - time.perf_counter()
            if left <= 0 or rows >= first.work.max_rows or self._admission.under_way <= 1 + seen:
                return
            self._changed.wait(left)

    def _alike(self, first: Chunk, line: Turns[Chunk]) -> list[Chunk]:
        """Take the chunks that may share the call of ``first``, in turn, up to its rows."""
        asked, alike = first.work, list[Chunk]()
        rows = asked.rows
        for chunk in line:
            work = chunk.work
            if work.merges and (work.primitive, work.kind) == (asked.primitive, asked.kind):
                rows += work.rows
                if rows > asked.max_rows:
                    break
                alike.append(chunk)
        for chunk in alike:
            line.remove(chunk.context.caller, chunk)
        return [chunk for chunk in alike if _is_wanted(chunk)]


def _is_wanted(chunk: Chunk) -> bool:
    """Return whether to compute a chunk; reject it where its request should not go on.

    One that others have kept waiting until it would be late is not begun.
    """
    if isinstance(chunk.future, Future) and not chunk.future.set_running_or_notify_cancel():
        return False
    context, now = chunk.context, time.monotonic()
    try:
        context.check()
        deadline = context.deadline if context.waits else None
        if deadline is not None and now + context.expected > deadline:
            raise late(context.expected)
    except (Cancelled, DeadlineExceeded, ResourceExhausted) as error:
        settle([(chunk, error)])
        return False
    return True


def late(retry_after: float = RETRY_SECONDS) -> ResourceExhausted:
    """Make the error of a request that others have kept waiting for too long."""
    return ResourceExhausted(
        "the device is busy, and this request would be late; allow more time or try again later",
        reason="DEADLINE_CANNOT_BE_MET",
        retry_after=max(retry_after, RETRY_SECONDS),
    )


def settle(outcomes: Iterable[tuple[Chunk, object]]) -> None:
    """Give chunks their answers, or their errors; those of one event loop wake it once."""
    loops: dict[asyncio.AbstractEventLoop, list[tuple[Any, object]]] = {}
    for chunk, outcome in outcomes:
        if chunk.loop is None:
            _settle([(chunk.future, outcome)])
        else:
            loops.setdefault(chunk.loop, []).append((chunk.future, outcome))
    for loop, some in loops.items():
        with suppress(RuntimeError):  # the loop is closed: nobody waits
            loop.call_soon_threadsafe(_settle, some)


def _settle(outcomes: list[tuple[Any, object]]) -> None:
    for future, outcome in outcomes:
        with suppress(InvalidStateError, asyncio.InvalidStateError):  # answered, or withdrawn
            if isinstance(outcome, Exception):
                future.set_exception(outcome)
            else:
                future.set_result(outcome)
