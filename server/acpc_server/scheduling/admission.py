"""Admission control: which requests a busy device takes on, and how it rejects the others.

Overload is RESOURCE_EXHAUSTED with RetryInfo and one of these reasons; a deadline that passes while
an admitted request waits is DEADLINE_EXCEEDED.

    SERVER_BUSY               as many requests as the server takes are under way
    TOO_MANY_STREAMS          as many streams as the server takes are open
    QUEUE_FULL                as many chunks as may wait for the device do
    DEADLINE_CANNOT_BE_MET    the work ahead would make this request late
"""

from __future__ import annotations

import math
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import NoReturn, Protocol

from acpc_server.errors import Cancelled, DeadlineExceeded, ResourceExhausted
from acpc_server.scheduling.context import Priority, RequestContext
from acpc_server.scheduling.latency import LatencyModel, Work

# Time of a request whose caller sets no deadline, and the most that a deadline gives it.
MAX_REQUEST_SECONDS = 300.0
# A request is admitted only if those ahead are expected to take at most this share of its time.
MAX_WAIT_SHARE = 0.3
# Retry hints: where nothing better is known, and the least.
RETRY_SECONDS, MIN_RETRY_SECONDS = 0.5, 0.05


class Call(Protocol):
    """What admission asks of an RPC; a gRPC ServicerContext has it."""

    def time_remaining(self) -> float | None:
        """Seconds until the caller's deadline, or None."""

    def is_active(self) -> bool:
        """Whether the caller is still there."""

    def add_callback(self, callback: Callable[[], None]) -> bool:
        """Have ``callback`` called when the RPC ends; False when it has ended."""


class AdmissionController:
    """Admits requests to one device; every method that computes on it is counted together.

    Requests take turns on the device, so a request waits for each that is under way as long as the
    shorter of the two takes alone. Each request that ends teaches the latency model what it took
    alone: its time, over itself and those it waited for.

    Args:
        max_requests: Requests under way at a time, whatever their deadlines.
        max_streams: Streams open at a time; each holds a worker for as long as it lives.
        max_queue: Interactive chunks that may wait for the device.
    """

    def __init__(
        self,
        latency: LatencyModel | None = None,
        *,
        max_requests: int = 64,
        max_streams: int = 32,
        max_queue: int = 256,
    ) -> None:
        self.latency = latency or LatencyModel()
        self._max_requests = max_requests
        self._max_queue = max_queue
        self._streams = threading.BoundedSemaphore(max_streams)
        self._max_streams = max_streams
        self._under_way: Counter[str] = Counter()
        self._lock = threading.Lock()

    @contextmanager
    def stream(self) -> Iterator[None]:
        """Count a stream for as long as it is open."""
        if not self._streams.acquire(blocking=False):
            raise ResourceExhausted(
                f"{self._max_streams} streams are open, as many as this server takes",
                reason="TOO_MANY_STREAMS",
                retry_after=RETRY_SECONDS,
            )
        try:
            yield
        finally:
            self._streams.release()

    def reject_busy(self) -> NoReturn:
        """Reject a call that arrives when every worker is taken."""
        raise ResourceExhausted(
            "every thread of the server is taken", reason="SERVER_BUSY", retry_after=RETRY_SECONDS
        )

    @contextmanager
    def request(
        self, method: str, context: RequestContext, max_wait_share: float = MAX_WAIT_SHARE
    ) -> Iterator[None]:
        """Count a request while it computes; it may wait for this share of its time."""
        work = Work(method, self._admit(method, context.remaining(), max_wait_share))
        started = time.monotonic()
        try:
            yield
            self.latency.learn(work, time.monotonic() - started)
        except (Cancelled, DeadlineExceeded):
            # It would have taken longer still: this teaches only that the method is slower.
            elapsed = time.monotonic() - started
            if elapsed > work.units * self.latency.unit_seconds(method):
                self.latency.learn(work, elapsed)
            raise
        finally:
            with self._lock:
                self._under_way[method] -= 1

    def _admit(self, method: str, remaining: float | None, max_wait_share: float) -> float:
        """Count a request in; returns its turns, itself and those it waits for in its own length.

        A method that has not been measured yet is taken for longer than the others, but its first
        request is not late: it is what measures the method.
        """
        with self._lock:
            ahead = self._under_way.total()
            alone = self.latency.unit_seconds(method)
            wait = sum(
                count * min(self.latency.unit_seconds(other), alone or math.inf)
                for other, count in self._under_way.items()
            )
            measures = not alone and not self._under_way[method]
            late = (
                remaining is not None
                and not measures
                and (wait > max_wait_share * remaining or wait + alone > remaining)
            )
            if ahead >= self._max_requests or (ahead and late):
                if late:
                    self.latency.discount(method)
                raise ResourceExhausted(
                    f"{ahead} requests are under way; behind them this one would take about "
                    f"{wait + alone:.3f} s",
                    reason="DEADLINE_CANNOT_BE_MET" if late else "SERVER_BUSY",
                    retry_after=max(wait + alone, MIN_RETRY_SECONDS),
                )
            self._under_way[method] += 1
            return 1.0 + (wait / alone if alone else ahead)

    def chunk(self, work: Work, ahead: Sequence[Work], context: RequestContext) -> None:
        """Admit an interactive chunk to the device's queue; with none ahead it may always try."""
        if len(ahead) >= self._max_queue:
            raise ResourceExhausted(
                f"{len(ahead)} chunks of work wait for the device, as many as may",
                reason="QUEUE_FULL",
                retry_after=max(self.latency.estimate(ahead), RETRY_SECONDS),
            )
        remaining = context.remaining()
        needed = self.latency.estimate([*ahead, work])
        if ahead and remaining is not None and needed > remaining:
            self.latency.discount(work.kind)
            raise ResourceExhausted(
                f"the work ahead and this request take about {needed:.3f} s, but the deadline is "
                f"in {max(remaining, 0.0):.3f} s; allow more time or try again later",
                reason="DEADLINE_CANNOT_BE_MET",
                retry_after=needed,
            )


class CallRequests:
    """The requests of one RPC: one of a unary call, one a message of a stream.

    A stream lives as long as its caller wants, each of its messages has its own time. All are
    cancelled when the RPC ends. An open stream was admitted once: its later messages are rejected
    only when they would be late, since a planner cannot continue without them.
    """

    def __init__(self, admission: AdmissionController, method: str, call: Call) -> None:
        self._admission = admission
        self._method = method
        self._call = call
        self._current = RequestContext(Priority.INTERACTIVE)
        self._max_wait_share = MAX_WAIT_SHARE
        call.add_callback(self._cancel)

    @contextmanager
    def admitted(self) -> Iterator[RequestContext]:
        """The next request, counted while the block computes it."""
        remaining = self._call.time_remaining()
        seconds = MAX_REQUEST_SECONDS if remaining is None else min(remaining, MAX_REQUEST_SECONDS)
        context = self._current = RequestContext(Priority.INTERACTIVE, seconds)
        if not self._call.is_active():
            context.cancel()
        context.check()
        with self._admission.request(self._method, context, self._max_wait_share):
            self._max_wait_share = 1.0
            yield context

    def check(self) -> None:
        """Raise Cancelled or DeadlineExceeded when the latest request should not go on."""
        self._current.check()

    def _cancel(self) -> None:
        self._current.cancel()
