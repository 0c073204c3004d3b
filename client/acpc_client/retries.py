"""When a call is tried again, and how a watcher goes on. Decisions only; the callers do the I/O."""

from __future__ import annotations

import random
import time
from dataclasses import dataclass

from acpc_client.errors import (
    Aborted,
    AcpcError,
    DeadlineExceeded,
    ResourceExhausted,
    Unavailable,
    Unimplemented,
)

# A watch stream is reopened this often, so that a dead connection cannot hold it for ever.
WATCH_SEGMENT_S = 300.0
POLL_INTERVAL_S = 1.0
STREAM_BREAKS_BEFORE_POLLING = 3
# Below this no call is worth sending.
_LEAST_DEADLINE_S = 0.001


@dataclass(frozen=True)
class RetryPolicy:
    """Exponential backoff with jitter, bounded by the deadline of the call.

    Tried again: UNAVAILABLE, and RESOURCE_EXHAUSTED and ABORTED when the server says when to come
    back.

    Attributes:
        attempts: Times a call is sent at most; 1 turns retries off.
        initial: Seconds before the second attempt.
        multiplier: Growth of the wait from one attempt to the next.
        maximum: Longest wait in seconds, except where the server asks for more.
    """

    attempts: int = 5
    initial: float = 0.1
    multiplier: float = 2.0
    maximum: float = 5.0

    def delay(self, error: AcpcError, failures: int) -> float | None:
        """Seconds to wait after the ``failures``-th failure in a row; None: do not try again."""
        safe = isinstance(error, Unavailable) or (
            isinstance(error, (ResourceExhausted, Aborted)) and error.retry_after is not None
        )
        if not safe or failures >= self.attempts:
            return None
        spread = 1.0 + 0.2 * random.random()  # noqa: S311 - jitter, not a secret
        if error.retry_after is not None:
            return error.retry_after * spread
        return min(self.maximum, self.initial * self.multiplier ** (failures - 1)) * spread


class Attempts:
    """One logical call: its deadline, kept over retries, and its failures so far.

    Args:
        policy: When to try again.
        timeout: Seconds for the whole call; None only for a watcher, which has no end of its own.
    """

    def __init__(self, policy: RetryPolicy, timeout: float | None) -> None:
        self._policy = policy
        self._deadline = None if timeout is None else time.monotonic() + timeout
        self._failures = 0

    def remaining(self) -> float | None:
        """Seconds until the deadline."""
        if self._deadline is None:
            return None
        return max(_LEAST_DEADLINE_S, self._deadline - time.monotonic())

    def over(self, delay: float = 0.0) -> bool:
        """Whether the deadline will have passed ``delay`` seconds from now."""
        return self._deadline is not None and time.monotonic() + delay >= self._deadline

    def after(self, error: AcpcError) -> float | None:
        """Seconds to wait before the next attempt; None: ``error`` is the answer."""
        self._failures += 1
        delay = self._policy.delay(error, self._failures)
        return None if delay is None or self.over(delay) else delay

    def succeeded(self) -> None:
        """Forgets the failures in a row."""
        self._failures = 0


class WatchPlan:
    """How a watcher of one operation goes on: it reconnects, and polls when streams keep breaking.

    Args:
        policy: When to try again.
        name: The operation.
        timeout: Seconds for the whole watch; None: until the operation ends.
    """

    def __init__(self, policy: RetryPolicy, name: str, timeout: float | None) -> None:
        self._attempts = Attempts(policy, timeout)
        self._name = name
        self._breaks = 0
        self._last: object = None
        self.streaming = True

    def segment(self) -> float:
        """Deadline in seconds of the next stream or poll."""
        remaining = self._attempts.remaining()
        return WATCH_SEGMENT_S if remaining is None else min(WATCH_SEGMENT_S, remaining)

    def news(self, message: object) -> bool:
        """Whether ``message`` tells more than the one before."""
        self._attempts.succeeded()
        changed = message != self._last
        self._last = message
        return changed

    def ended(self) -> float:
        """Seconds to wait after a stream or poll that ended before the operation did.

        Raises:
            DeadlineExceeded: The watch is over; the operation goes on.
        """
        self._break()
        if self._attempts.over(POLL_INTERVAL_S):
            raise self._out_of_time()
        return POLL_INTERVAL_S

    def failed(self, error: AcpcError) -> float:
        """Seconds to wait after a stream or poll that failed.

        Raises:
            AcpcError: ``error``, when it will not pass; DeadlineExceeded when the watch is over.
        """
        if isinstance(error, DeadlineExceeded):
            if self._attempts.over():
                raise self._out_of_time()
            return POLL_INTERVAL_S
        if isinstance(error, Unimplemented) and self.streaming:
            self.streaming = False
            return 0.0
        self._break()
        delay = self._attempts.after(error)
        if delay is None:
            raise error
        return delay

    def _break(self) -> None:
        self._breaks += 1
        self.streaming = self.streaming and self._breaks < STREAM_BREAKS_BEFORE_POLLING

    def _out_of_time(self) -> DeadlineExceeded:
        return DeadlineExceeded(
            f"{self._name} was still going on when the wait for it ended; it goes on at the server",
            reason="",
        )
