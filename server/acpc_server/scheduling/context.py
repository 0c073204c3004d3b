"""A request as the scheduler sees it: its deadline, cancellation, priority and times."""

from __future__ import annotations

import enum
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from typing import Any

from acpc_server.errors import Cancelled, DeadlineExceeded


class Priority(enum.IntEnum):
    """Order of work on the device."""

    INTERACTIVE = 0
    JOB = 1


class RequestContext:
    """One request: an interactive call, a message of a stream, or a job.

    Attributes:
        caller: Who asks: what fair turns count by.
        deadline: End of its time by the monotonic clock, or None.
        queue_seconds, compute_seconds: Time its chunks have waited for the device, and held it.
        phases: Seconds by what the request did: reading, drawing, a primitive of the device,
            waiting for it (``queue``). What overlaps counts in each.
        calls: Device calls that it takes in all, pieces of drawing included, as far as is known.
        priced: What admission does about them.
        waits: Whether others are ahead of it, so that it may be late because of them.
        expected: Seconds that it is expected to take alone.
        program: What has computed its rollouts, empty for eager; None: it has had none.
    """

    def __init__(
        self,
        priority: Priority = Priority.INTERACTIVE,
        seconds: float | None = None,
        *,
        caller: str = "",
    ) -> None:
        self.priority = priority
        self.caller = caller
        self._started = time.monotonic()
        self.deadline = None if seconds is None else self._started + seconds
        self.queue_seconds = self.compute_seconds = 0.0
        self.phases: dict[str, float] = defaultdict(float)
        self._local = threading.local()  # the seconds of phases within the one under way
        self._under_way, self._since, self._covered = 0, 0.0, 0.0
        self.calls = 0.0
        self.priced: Callable[[float], None] | None = None
        self.waits, self.expected = False, 0.0
        self.cancelled = False
        self.program: str | None = None
        self._lock = threading.Lock()
        self._waiting: Future[Any] | None = None

    def cancel(self) -> None:
        """Cancel it: no further chunk of it runs, and its thread stops waiting for one."""
        with self._lock:
            self.cancelled, waiting = True, self._waiting
        if waiting is not None:
            waiting.cancel()

    def wait_on(self, future: Future[Any]) -> None:
        """Have :meth:`cancel` cancel ``future``, what the request waits for next."""
        with self._lock:
            self._waiting = future
        if self.cancelled:
            future.cancel()

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Count the time of the block, less that of phases within it, as spent on a phase."""
        begun, outer = time.monotonic(), getattr(self._local, "inner", 0.0)
        self._local.inner = 0.0
        with self._lock:
            self._since = self._since if self._under_way else begun
            self._under_way += 1
        try:
            yield
        finally:
            ended = time.monotonic()
            with self._lock:
                self.phases[name] += ended - begun - self._local.inner
                self._under_way -= 1
                self._covered += 0.0 if self._under_way else ended - self._since
            self._local.inner = outer + ended - begun

    def queued(self, seconds: float, primitive: str) -> None:
        """Count a part of a primitive's phase as spent waiting for the device."""
        with self._lock:
            self.queue_seconds += seconds
            self.phases["queue"] += seconds
            self.phases[primitive] -= seconds

    @property
    def other_seconds(self) -> float:
        """Time since the request began that is no phase's."""
        return max(0.0, self.total_seconds - self._covered)

    def price(self, calls: float) -> None:
        """Add what the request is about to take, in device calls; ResourceExhausted when late."""
        self.calls += calls
        if self.priced is not None:
            self.priced(self.calls)

    @property
    def total_seconds(self) -> float:
        """Time since the request began."""
        return time.monotonic() - self._started

    def remaining(self) -> float | None:
        """Return the seconds until the deadline, or None without one."""
        return None if self.deadline is None else self.deadline - time.monotonic()

    def check(self) -> None:
        """Raise Cancelled or DeadlineExceeded when the request should not go on."""
        if self.cancelled:
            raise Cancelled("the request was cancelled")
        if self.deadline is not None and self.deadline <= time.monotonic():
            raise DeadlineExceeded("the deadline passed before the work was done")
