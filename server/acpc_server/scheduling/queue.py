"""Work waiting for the device: by priority, and merged where it is alike."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Hashable
from concurrent.futures import Future
from dataclasses import dataclass, field

from torch import Tensor

from acpc_server.errors import ResourceExhausted, Unavailable
from acpc_server.observe import Metrics
from acpc_server.scheduling.concurrency import ConcurrencyLimiter
from acpc_server.scheduling.context import Priority, RequestContext

RETRY_SECONDS = 0.25
# A job chunk that has waited this long goes next, so that jobs progress under steady load.
JOB_PATIENCE = 0.5
# While requests are being prepared, a call that others may share is held back: until none has come
# for the first of these seconds, and never longer than the second.
ARRIVAL_GAP, MOST_HELD = 0.004, 0.02
LOOK_AGAIN = 0.001


@dataclass(eq=False)
class Chunk:
    """One piece of device work and the future its caller waits on.

    Attributes:
        primitive: What it is, for the metrics: ``encode``, ``rollout``, ``pool`` or ``tangent``.
        kind: Chunks of one kind run at one speed per row, and a network in one mode.
        inputs: Tensors on the CPU whose first axis is rows.
        compute: From inputs on the device to the output, row by row.
        context: Whose it is.
        mergeable: Whether it may share a device call with others of its kind.
        capacity: Rows one device call may have.
    """

    primitive: str
    kind: Hashable
    inputs: tuple[Tensor, ...]
    compute: Callable[..., Tensor]
    context: RequestContext
    mergeable: bool
    capacity: int
    future: Future[Tensor] = field(default_factory=Future)
    queued_at: float = field(default_factory=time.perf_counter)

    @property
    def rows(self) -> int:
        """Rows of work."""
        return len(self.inputs[0])


class BatchQueue:
    """Interactive chunks before job chunks that can wait; else first come, first served.

    Args:
        metrics: Series for the depth of the queue.
        limit: Interactive chunks that may wait.
        limiter: Where further interactive chunks are being prepared.
    """

    def __init__(self, metrics: Metrics, limit: int, limiter: ConcurrencyLimiter) -> None:
        self._depths = {p: metrics.queue_depth.labels(p.name.lower()) for p in Priority}
        self._limit = limit
        self._limiter = limiter
        self._waiting: dict[Priority, deque[Chunk]] = {p: deque() for p in Priority}
        self._changed = threading.Condition()
        self._closed = False

    def put(self, chunk: Chunk, admit: Callable[[Chunk, list[Chunk]], None]) -> None:
        """Queue a chunk.

        Args:
            chunk: The chunk.
            admit: Given the chunk and those before it, raises when it should not wait.

        Raises:
            Unavailable: The queue is closed.
            ResourceExhausted: It is full.
        """
        priority = chunk.context.priority
        with self._changed:
            waiting = self._waiting[priority]
            if self._closed:
                raise Unavailable("the server is draining", retry_after=RETRY_SECONDS)
            if priority is Priority.INTERACTIVE:
                if len(waiting) >= self._limit:
                    raise ResourceExhausted(
                        f"{self._limit} requests already wait for the device",
                        reason="QUEUE_FULL",
                        retry_after=RETRY_SECONDS,
                    )
                admit(chunk, list(waiting))
            waiting.append(chunk)
            self._report(priority)
            self._changed.notify()

    def take(self) -> list[Chunk]:
        """The next chunk with all that can share its device call; empty once closed and drained.

        Blocks while there is no work.
        """
        with self._changed:
            if not self._wait_for_work():
                return []
            queues = [q for q in self._waiting.values() if q]
            chosen = queues[0] if self._patient(queues[-1][0]) else queues[-1]
            first = chosen.popleft()
            batch = [first]
            if first.mergeable:
                self._hold_back(first, chosen)
                batch += self._alike(first, chosen)
            self._report(first.context.priority)
            return batch

    def close(self) -> None:
        """Refuse further chunks; those that wait are still served."""
        with self._changed:
            self._closed = True
            self._changed.notify()

    def _wait_for_work(self) -> bool:
        """Until a chunk may start; False once closed and drained.

        A job's chunk starts a moment late while an interactive request is worked on, which has
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
            held = now < found + ARRIVAL_GAP and self._patient(jobs[0]) and not self._closed
            if not (held and self._limiter.busy):
                return True
            self._changed.wait(LOOK_AGAIN)
        return True

    def _patient(self, chunk: Chunk) -> bool:
        return time.perf_counter() - chunk.queued_at < JOB_PATIENCE

    def _hold_back(self, first: Chunk, waiting: deque[Chunk]) -> None:
        """Let requests that are being prepared join; together they take little longer than one."""
        begun = latest = time.perf_counter()
        seen = len(waiting)
        while self._limiter.busy and not self._waiting[Priority.JOB] and not self._closed:
            now = time.perf_counter()
            if len(waiting) > seen:
                seen, latest = len(waiting), now
            rows = first.rows + sum(chunk.rows for chunk in waiting)
            if now > min(latest + ARRIVAL_GAP, begun + MOST_HELD) or rows >= first.capacity:
                return
            self._changed.wait(LOOK_AGAIN)

    def _alike(self, first: Chunk, waiting: deque[Chunk]) -> list[Chunk]:
        rows, alike = first.rows, []
        for chunk in waiting:
            if chunk.mergeable and chunk.kind == first.kind:
                rows += chunk.rows
                if rows > first.capacity:
                    break
                alike.append(chunk)
        for chunk in alike:
            waiting.remove(chunk)
        return alike

    def _report(self, priority: Priority) -> None:
        self._depths[priority].set(len(self._waiting[priority]))
