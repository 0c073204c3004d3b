"""The device's queue: two priorities, and dynamic batching of interactive work."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Hashable, Iterable, Sequence
from concurrent.futures import Future, InvalidStateError
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from acpc_server.errors import AcpcError, DeviceFailed, Unavailable
from acpc_server.observe import Metrics
from acpc_server.scheduling.admission import START_MARGIN, AdmissionController
from acpc_server.scheduling.callers import RETRY_SECONDS
from acpc_server.scheduling.context import Priority, RequestContext
from acpc_server.scheduling.gate import ConcurrencyLimiter, Turns
from acpc_server.scheduling.latency import Work

# A job's chunk that has waited this long goes next, so that jobs progress under steady load.
MAX_JOB_WAIT = 0.5
# While requests are being prepared, a call that others may join is delayed: until none has come
# for the first of these seconds, and never longer than the second.
MAX_ARRIVAL_GAP, MAX_QUEUE_DELAY = 0.004, 0.02
POLL_SECONDS = 0.001


@dataclass(eq=False)
class Chunk:
    """One piece of device work and the future its request waits on.

    ``compute`` makes of the payloads of chunks that share a call an answer for each; one that is an
    AcpcError is that chunk's alone.
    """

    primitive: str  # ``encode``, ``rollout``, ``pool``, ``tangent`` or ``pair``
    kind: Hashable  # one kind has one speed per row, and one network in one mode
    payload: Any
    rows: int
    compute: Callable[[list[Any]], Sequence[Any]]
    context: RequestContext
    mergeable: bool
    max_rows: int
    future: Future[Any] = field(default_factory=Future)
    queued_at: float = field(default_factory=time.perf_counter)

    @property
    def work(self) -> Work:
        """The chunk as the latency model sees it."""
        return Work(self.kind, self.rows)

    def answer(self, outcome: object) -> None:
        """Give its request the answer, or its error."""
        if isinstance(outcome, AcpcError):
            self.reject(outcome)
        else:
            self.future.set_result(outcome)

    def reject(self, error: Exception) -> None:
        """Give its request an error, unless it was answered or withdrawn."""
        with suppress(InvalidStateError):
            self.future.set_exception(error)


class BatchQueue:
    """Interactive chunks before job chunks that can wait; callers take turns in each."""

    def __init__(
        self, metrics: Metrics, admission: AdmissionController, limiter: ConcurrencyLimiter
    ) -> None:
        self._depths = {p: metrics.queue_depth.labels(p.name.lower()) for p in Priority}
        self._admission = admission
        self._limiter = limiter
        self._waiting: dict[Priority, Turns[Chunk]] = {p: Turns() for p in Priority}
        self._changed = threading.Condition()
        self._closed = False
        self._taken: list[Chunk] = []  # of the device call under way
        self._failure = ""

    def put(self, chunk: Chunk) -> None:
        """Queue a chunk."""
        priority = chunk.context.priority
        with self._changed:
            waiting = self._waiting[priority]
            if self._failure:
                raise DeviceFailed(self._failure)
            if self._closed:
                raise Unavailable("the server is draining", retry_after=RETRY_SECONDS)
            if priority is Priority.INTERACTIVE:
                for gone in [one for one in waiting if one.future.cancelled()]:
                    waiting.remove(gone.context.caller, gone)  # or they would keep others out
                ahead = [one.work for one in waiting.ahead_of(chunk.context.caller)]
                self._admission.chunk(chunk.work, ahead, chunk.context, len(waiting))
            waiting.add(chunk.context.caller, chunk)
            self._report(priority)
            self._changed.notify()

    def take(self) -> list[Chunk]:
        """Take the next chunk and all that share its device call; none once closed and drained.

        Blocks while there is no work. Only mergeable chunks share a call; a job's never do.
        """
        with self._changed:
            # So that an idle device holds on to no frames and to no model.
            self._taken = []
            waiting = self._wait_for_work()
            if waiting is None:
                return []
            first = waiting.take()
            self._taken = [first]
            if first.mergeable:
                self._delay(first, waiting)
                self._taken += self._take_alike(first, waiting)
            self._report(first.context.priority)
            return list(self._taken)

    def close(self) -> None:
        """Reject further chunks; those that wait are still served."""
        with self._changed:
            self._closed = True
            self._changed.notify()

    def fail(self, why: str) -> None:
        """Reject every chunk with DeviceFailed: those under way, those that wait, those to come."""
        with self._changed:
            self._closed, self._failure = True, why
            rejected = [*self._taken]
            for waiting in self._waiting.values():
                for chunk in list(waiting):
                    waiting.remove(chunk.context.caller, chunk)
                    rejected.append(chunk)
            self._changed.notify_all()
        for chunk in rejected:
            chunk.reject(DeviceFailed(why))

    def _wait_for_work(self) -> Turns[Chunk] | None:
        """Wait until a chunk may start, and return its line; None once closed and drained.

        A job's chunk starts a moment late while an interactive request is at work, which has
        perhaps just got its latents and asks for rollouts next.
        """
        interactive, jobs = self._waiting.values()
        found: float | None = None
        while interactive or jobs or not self._closed:
            now = time.perf_counter()
            if jobs and _overdue(jobs):
                return jobs
            if interactive:
                return interactive
            if jobs:
                found = found or now
                if self._closed or now >= found + MAX_ARRIVAL_GAP or not self._limiter.busy:
                    return jobs
            self._changed.wait(POLL_SECONDS if jobs else None)
        return None

    def _delay(self, first: Chunk, waiting: Turns[Chunk]) -> None:
        """Wait for requests that are being prepared: together they take little longer than one."""
        begun = latest = time.perf_counter()
        seen = len(waiting)
        while not self._waiting[Priority.JOB] and not self._closed:
            under_way = self._limiter.busy or self._admission.under_way > 1 + len(waiting)
            if not under_way:
                return
            now = time.perf_counter()
            if len(waiting) > seen:
                seen, latest = len(waiting), now
            rows = first.rows + sum(chunk.rows for chunk in waiting)
            if now > min(latest + MAX_ARRIVAL_GAP, begun + MAX_QUEUE_DELAY):
                return
            if rows >= first.max_rows:
                return
            self._changed.wait(POLL_SECONDS)

    def _take_alike(self, first: Chunk, waiting: Turns[Chunk]) -> list[Chunk]:
        """Take the chunks that may share the call of ``first``, in turn, up to its limits."""
        rows, alike, time_left = first.rows, list[Chunk](), _time_left(first)
        row_seconds = self._admission.latency.unit_seconds(first.kind)
        for chunk in waiting:
            if not chunk.mergeable or chunk.kind != first.kind:
                continue
            together = rows + chunk.rows
            if together > first.max_rows:
                break
            left = min(time_left, _time_left(chunk))
            if START_MARGIN * together * row_seconds > left:  # it would perhaps make one late
                continue
            rows, time_left = together, left
            alike.append(chunk)
        for chunk in alike:
            waiting.remove(chunk.context.caller, chunk)
        return alike

    def _report(self, priority: Priority) -> None:
        self._depths[priority].set(len(self._waiting[priority]))


def _time_left(chunk: Chunk) -> float:
    remaining = chunk.context.remaining()
    return math.inf if remaining is None else remaining


def _overdue(jobs: Iterable[Chunk]) -> bool:
    return any(time.perf_counter() - chunk.queued_at >= MAX_JOB_WAIT for chunk in jobs)
