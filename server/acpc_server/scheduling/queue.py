"""The device's queue: two priorities, and dynamic batching of interactive work."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Hashable
from concurrent.futures import Future
from dataclasses import dataclass, field

from torch import Tensor

from acpc_server.errors import Unavailable
from acpc_server.observe import Metrics
from acpc_server.scheduling.admission import RETRY_SECONDS, AdmissionController
from acpc_server.scheduling.concurrency import ConcurrencyLimiter
from acpc_server.scheduling.context import Priority, RequestContext
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

    Attributes:
        primitive: What it is, for the metrics: ``encode``, ``rollout``, ``pool`` or ``tangent``.
        kind: Chunks of one kind run at one speed per row, and a network in one mode.
        inputs: Tensors on the CPU whose first axis is rows.
        compute: From inputs on the device to the output, row by row.
    """

    primitive: str
    kind: Hashable
    inputs: tuple[Tensor, ...]
    compute: Callable[..., Tensor]
    context: RequestContext
    mergeable: bool
    max_rows: int
    future: Future[Tensor] = field(default_factory=Future)
    queued_at: float = field(default_factory=time.perf_counter)

    @property
    def rows(self) -> int:
        """Rows of work."""
        return len(self.inputs[0])

    @property
    def work(self) -> Work:
        """What the latency model knows of it."""
        return Work(self.kind, self.rows)


class BatchQueue:
    """Interactive chunks before job chunks that can wait; else first come, first served."""

    def __init__(
        self, metrics: Metrics, admission: AdmissionController, limiter: ConcurrencyLimiter
    ) -> None:
        self._depths = {p: metrics.queue_depth.labels(p.name.lower()) for p in Priority}
        self._admission = admission
        self._limiter = limiter
        self._waiting: dict[Priority, deque[Chunk]] = {p: deque() for p in Priority}
        self._changed = threading.Condition()
        self._closed = False

    def put(self, chunk: Chunk) -> None:
        """Queue a chunk."""
        priority = chunk.context.priority
        with self._changed:
            waiting = self._waiting[priority]
            if self._closed:
                raise Unavailable("the server is draining", retry_after=RETRY_SECONDS)
            if priority is Priority.INTERACTIVE:
                self._admission.chunk(chunk.work, [one.work for one in waiting], chunk.context)
            waiting.append(chunk)
            self._report(priority)
            self._changed.notify()

    def take(self) -> list[Chunk]:
        """The next chunk with all that share its device call; empty once closed and drained.

        Blocks while there is no work. Only mergeable chunks share a call; a job's never do.
        """
        with self._changed:
            if not self._wait_for_work():
                return []
            queues = [q for q in self._waiting.values() if q]
            chosen = queues[-1] if _overdue(queues[-1][0]) else queues[0]
            first = chosen.popleft()
            batch = [first]
            if first.mergeable:
                self._delay(first, chosen)
                batch += _take_alike(first, chosen)
            self._report(first.context.priority)
            return batch

    def close(self) -> None:
        """Take no further chunks; those that wait are still served."""
        with self._changed:
            self._closed = True
            self._changed.notify()

    def _wait_for_work(self) -> bool:
        """Until a chunk may start; False once closed and drained.

        A job's chunk starts a moment late while an interactive request is at work, which has
        perhaps just been given its latents and asks for rollouts next.
        """
        jobs = self._waiting[Priority.JOB]
        found: float | None = None
        while not self._waiting[Priority.INTERACTIVE]:
            if not jobs:
                if self._closed:
                    return False
                self._changed.wait()
                continue
            now = time.perf_counter()
            found = found or now
            due = self._closed or now >= found + MAX_ARRIVAL_GAP or _overdue(jobs[0])
            if due or not self._limiter.busy:
                return True
            self._changed.wait(POLL_SECONDS)
        return True

    def _delay(self, first: Chunk, waiting: deque[Chunk]) -> None:
        """Let requests that are being prepared join; together they take little longer than one."""
        begun = latest = time.perf_counter()
        seen = len(waiting)
        while self._limiter.busy and not self._waiting[Priority.JOB] and not self._closed:
            now = time.perf_counter()
            if len(waiting) > seen:
                seen, latest = len(waiting), now
            rows = first.rows + sum(chunk.rows for chunk in waiting)
            if now > min(latest + MAX_ARRIVAL_GAP, begun + MAX_QUEUE_DELAY):
                return
            if rows >= first.max_rows:
                return
            self._changed.wait(POLL_SECONDS)

    def _report(self, priority: Priority) -> None:
        self._depths[priority].set(len(self._waiting[priority]))


def _overdue(chunk: Chunk) -> bool:
    return time.perf_counter() - chunk.queued_at >= MAX_JOB_WAIT


def _take_alike(first: Chunk, waiting: deque[Chunk]) -> list[Chunk]:
    """Take what may share the call of ``first``, in order, up to its limit of rows."""
    rows, alike = first.rows, []
    for chunk in waiting:
        if chunk.mergeable and chunk.kind == first.kind:
            rows += chunk.rows
            if rows > first.max_rows:
                break
            alike.append(chunk)
    for chunk in alike:
        waiting.remove(chunk)
    return alike
