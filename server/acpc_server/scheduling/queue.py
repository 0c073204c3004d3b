"""The device's queue: alike requests share a call, callers go round, jobs go last."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future, InvalidStateError
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from acpc.contract import NumericMode

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
from acpc_server.scheduling.serving_options import DEFAULT_SERVING, ServingOptions
from acpc_server.scheduling.turns import Turns

T = TypeVar("T")
# A job's work that has waited this long goes next, so that jobs progress under steady load.
MAX_JOB_WAIT = 0.5
# While other requests are under way, a call that they may join is delayed: for as long as its
# checkpoint's options say, or until none has come for this share of that.
ARRIVAL_GAP = 0.2
# Answers of a shared call that an event loop writes before it looks for what else has come.
SETTLED = 4


@dataclass(frozen=True)
class CallKind:
    """What a device call computes. Work of one kind may share a call, where the kind ``merges``.

    Attributes:
        primitive: ``encode``, ``rollout``, ``pool``, ``tangent``, ``pair`` and so on.
        checkpoint: Digest of the model that computes it.
        mode: Numeric mode of the model.
        shapes: Of the arrays of a request.
        max_rows: Rows of a call.
        serving: Of the checkpoint.
    """

    primitive: str
    checkpoint: str = ""
    mode: NumericMode | None = None
    shapes: tuple[tuple[int, ...], ...] = ()
    max_rows: int = 2**31
    serving: ServingOptions = DEFAULT_SERVING
    merges: bool = False

    @property
    def delay(self) -> float:
        """Seconds that its calls may be held back."""
        return self.serving.batch_delay_seconds


@dataclass(eq=False)
class Work(Generic[T]):
    """What the device does in one call, alone or for several requests, and what it becomes.

    Attributes:
        kind: What it is.
        compute: Called in the device's thread with the payloads of all that share the call, of at
            most its ``max_rows`` together, and a context in which everything is computed at once;
            returns an answer, or an AcpcError of that request alone, for each. For a request that
            is large it is called in the caller's thread, with the caller's context, and so queues
            one piece after another.
        drawing: Work of drawing its views.
        finish: Makes the answer of what was computed.
        context, loop, future, queued_at: Of work in line: its request, which waits on the future
            of its event loop, or of a thread.
    """

    kind: CallKind
    payload: Any
    compute: Callable[[Sequence[Any], RequestContext], Sequence[Any]]
    rows: int
    drawing: float = 0.0
    finish: Callable[[Any], T] = lambda found: found
    context: RequestContext = field(init=False, repr=False)
    loop: asyncio.AbstractEventLoop | None = field(init=False, repr=False)
    future: Any = field(init=False, repr=False)
    queued_at: float = field(init=False)


class DeviceQueue:
    """Interactive work before a job's that can wait; with ``merge`` some shares a call."""

    def __init__(self, metrics: Metrics, admission: Admission, *, merge: bool = True) -> None:
        self._merge = merge
        self._depths = {p: metrics.queue_depth.labels(p.name.lower()) for p in Priority}
        self._admission = admission
        self._changed = threading.Condition()
        self._delayed: tuple[Work[Any], Turns[Work[Any]]] | None = None  # and its line
        admission.on_end = self._look
        self._lines: dict[Priority, Turns[Work[Any]]] = {p: Turns() for p in Priority}
        self._closed = False
        self._taken: list[Work[Any]] = []  # in the device call under way
        self._failure = ""

    def put(
        self,
        work: Work[Any],
        context: RequestContext,
        loop: asyncio.AbstractEventLoop | None = None,
    ) -> Any:  # noqa: ANN401 - a future of the loop, or of a thread
        """Queue work and return the future of its answer; Unavailable when the queue is closed."""
        work.context, work.loop, work.queued_at = context, loop, time.perf_counter()
        work.future = Future() if loop is None else loop.create_future()
        with self._changed:
            if self._failure:
                raise DeviceFailed(self._failure)
            if self._closed:
                raise Unavailable("the server is draining", retry_after=RETRY_SECONDS)
            line = self._lines[context.priority]
            line.add(context.caller, work)
            self._depths[context.priority].set(len(line))
            # Each time that the device's thread wakes it takes the interpreter from the others.
            delayed = self._delayed
            if not delayed or work.kind.delay < delayed[0].kind.delay or self._is_complete():
                self._changed.notify()
        return work.future

    def take(self) -> list[Work[Any]]:
        """Take the next work and all that shares its device call; none once closed and drained.

        Blocks while there is none. Only what merges shares a call, in turn, up to its rows. What
        is not wanted any more is rejected instead.
        """
        with self._changed:
            self._taken = []  # so that an idle device holds on to no frames and to no model
            while not self._taken and (line := self._next_line()) is not None:
                first = line.take()
                if _is_wanted(first):
                    self._taken = [first]
                    if first.kind.merges and self._merge:
                        self._delay(first, line)
                        alike, rows = list[Work[Any]](), first.rows
                        for work in line:
                            if work.kind == first.kind:
                                rows += work.rows
                                if rows > first.kind.max_rows:
                                    break
                                alike.append(work)
                        for work in alike:
                            line.remove(work.context.caller, work)
                        self._taken += filter(_is_wanted, alike)
                self._depths[first.context.priority].set(len(line))
            return list(self._taken)

    def close(self) -> None:
        """Reject further work; what waits is still served."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    def fail(self, why: str) -> None:
        """Reject all work with DeviceFailed: what is under way, what waits, what is to come."""
        with self._changed:
            self._closed, self._failure = True, why
            rejected = [*self._taken, *(work for line in self._lines.values() for work in line)]
            self._lines = {priority: Turns() for priority in Priority}
            self._changed.notify_all()
        settle((work, DeviceFailed(why)) for work in rejected)

    def _next_line(self) -> Turns[Work[Any]] | None:
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

    def _delay(self, first: Work[Any], line: Turns[Work[Any]]) -> None:
        """Wait for requests under preparation: together they take little longer than one.

        What waits in line meanwhile, of any kind, is not held back for longer than it may be.
        """
        begun, self._delayed = time.perf_counter(), (first, line)
        while not self._is_complete():
            latest = max((work.queued_at for work in line), default=begun)
            ends = max(begun, latest) + ARRIVAL_GAP * first.kind.delay
            for work in (first, *line):
                ends = min(ends, max(begun, work.queued_at) + work.kind.delay)
            if (left := ends - time.perf_counter()) <= 0:
                break
            self._changed.wait(left)
        self._delayed = None

    def _is_complete(self) -> bool:
        """Return whether what is delayed need not wait for anything that may come."""
        assert self._delayed is not None  # noqa: S101
        first, line = self._delayed
        full = first.rows + sum(work.rows for work in line) >= first.kind.max_rows
        alone = self._admission.under_way <= 1 + len(line)
        return full or alone or self._closed or len(self._lines[Priority.JOB]) > 0

    def _look(self) -> None:
        with self._changed:
            if self._delayed is not None and self._is_complete():
                self._changed.notify()


def _is_wanted(work: Work[Any]) -> bool:
    """Return whether to compute work; reject it where its request should not go on.

    One that others have kept waiting until it would be late is not begun.
    """
    if work.loop is None and not work.future.set_running_or_notify_cancel():
        return False
    context, now = work.context, time.monotonic()
    try:
        context.check()
        deadline = context.deadline if context.waits else None
        if deadline is not None and now + context.expected > deadline:
            raise late(context.expected)
    except (Cancelled, DeadlineExceeded, ResourceExhausted) as error:
        settle([(work, error)])
        return False
    return True


def late(retry_after: float = RETRY_SECONDS) -> ResourceExhausted:
    """Make the error of a request that others have kept waiting for too long."""
    return ResourceExhausted(
        "the device is busy, and this request would be late; allow more time or try again later",
        reason="DEADLINE_CANNOT_BE_MET",
        retry_after=max(retry_after, RETRY_SECONDS),
    )


def settle(outcomes: Iterable[tuple[Work[Any], object]]) -> None:
    """Give work its answers, or its errors; what is of one event loop wakes it once."""
    loops: dict[asyncio.AbstractEventLoop, list[tuple[Any, object]]] = {}
    for work, outcome in outcomes:
        if work.loop is None:
            _settle([(work.future, outcome)], None)
        else:
            loops.setdefault(work.loop, []).append((work.future, outcome))
    for loop, some in loops.items():
        with suppress(RuntimeError):  # the loop is closed: nobody waits
            loop.call_soon_threadsafe(_settle, some, loop)


def _settle(outcomes: list[tuple[Any, object]], loop: asyncio.AbstractEventLoop | None) -> None:
    """Give futures their outcomes; an event loop's a few at a time, so that others get a turn."""
    if loop is not None and len(outcomes) > SETTLED:
        loop.call_soon(_settle, outcomes[SETTLED:], loop)
        outcomes = outcomes[:SETTLED]
    for future, outcome in outcomes:
        with suppress(InvalidStateError, asyncio.InvalidStateError):  # answered, or withdrawn
            if isinstance(outcome, Exception):
                future.set_exception(outcome)
            else:
                future.set_result(outcome)
