"""What is tried again, and when: calls, streams of an upload, looks for a server that is away.

This is the one place of such rules. Decisions only; the callers do the I/O.
"""

from __future__ import annotations

import random
import time
from dataclasses import dataclass, replace
from numbers import Real

from acpc_client.errors import (
    Aborted,
    AcpcError,
    ArgumentError,
    ResourceExhausted,
    ServerAway,
    Unavailable,
    passing,
)

UPLOAD_ATTEMPTS = 24
"""Times in a row that a stream of an upload may fail: some hundred seconds with the usual policy,
longer than a server takes to start again, or to give up a dead connection."""

_LEAST_DEADLINE_S = 0.001  # below this no call is worth sending
_LEAST_LOOK_S, _MOST_LOOK_S = 0.01, 1.0  # between looks for a server or an operation
_UPLOAD_LOST = ("UPLOAD_OFFSET", "CORRUPT_SHARD")


@dataclass(frozen=True)
class RetryPolicy:
    """Backs off exponentially with jitter, bounded by the deadline of the call.

    Retries UNAVAILABLE, and RESOURCE_EXHAUSTED and ABORTED when the server says when.

    Attributes:
        attempts: Times a call is sent at most; 1 turns retries off. A stream of an upload that
            breaks is followed by more.
        initial: Seconds before the second attempt.
        multiplier: Growth of the wait from one attempt to the next.
        maximum: Longest wait in seconds, except where the server asks for more. Looks for a server
            that is away are within a second of each other.

    Raises ArgumentError: One is negative, NaN, or no number.
    """

    attempts: int = 5
    initial: float = 0.1
    multiplier: float = 2.0
    maximum: float = 5.0

    def __post_init__(self) -> None:
        given: dict[str, float] = vars(self)
        for name, value in given.items():
            if not (isinstance(value, Real) and value >= 0):
                raise ArgumentError(name, f"found {value!r}, wanted 0 or more")

    def delay(self, error: AcpcError, failures: int) -> float | None:
        """Seconds to wait after the ``failures``-th failure in a row; None: do not try again."""
        asked = isinstance(error, ResourceExhausted | Aborted) and error.retry_after is not None
        safe = asked or isinstance(error, Unavailable)
        return self._wait(failures, error.retry_after) if safe else None

    def upload_delay(self, error: AcpcError, failures: int) -> float | None:
        """``delay`` of a stream of an upload, which the next one resumes: more errors pass.

        Waits grow, whatever the server says: another call may be slow to leave.
        """
        resumed = passing(error) or isinstance(error, Aborted) or error.reason in _UPLOAD_LOST
        if not resumed or self.attempts < 2:
            return None
        longer = replace(self, attempts=max(self.attempts, UPLOAD_ATTEMPTS))
        return longer._wait(failures, None)  # noqa: SLF001 - of this class

    def look(self, times: int) -> float:
        """Seconds between one look for a server that is away and the next, within one second."""
        return min(_MOST_LOOK_S, max(_LEAST_LOOK_S, self._back_off(times)))

    def poll(self) -> float:
        """Seconds between streams of an operation that keep breaking."""
        return min(_MOST_LOOK_S, max(_LEAST_LOOK_S, self.maximum))

    def _wait(self, failures: int, asked: float | None) -> float | None:
        if failures >= self.attempts:
            return None
        spread = 1.0 + 0.2 * random.random()  # noqa: S311 - jitter, not a secret
        return (self._back_off(failures) if asked is None else asked) * spread

    def hinted(self, error: AcpcError, failures: int = 1) -> AcpcError:
        """The error, which says when to come back where a server that has died could not."""
        if isinstance(error, Unavailable) and not isinstance(error, ServerAway):
            error.retry_after = error.retry_after or self._back_off(failures)
        return error

    def _back_off(self, failures: int) -> float:
        try:
            return min(self.maximum, self.initial * self.multiplier ** (failures - 1))
        except OverflowError:  # after a thousand failures, for one
            return self.maximum


class Attempts:
    """Keeps one call's deadline, ``timeout`` seconds, over retries; None: of a watcher.

    ``upload``: The attempts are streams of an upload.
    """

    def __init__(self, policy: RetryPolicy, timeout: float | None, *, upload: bool = False) -> None:
        self._policy = policy
        self._delay = policy.upload_delay if upload else policy.delay
        self._deadline = None if timeout is None else time.monotonic() + timeout
        self._failures = 0

    def remaining(self) -> float | None:
        """Seconds until the deadline."""
        deadline = self._deadline
        return None if deadline is None else max(_LEAST_DEADLINE_S, deadline - time.monotonic())

    def over(self, delay: float = 0.0) -> bool:
        """Whether the deadline will have passed ``delay`` seconds from now."""
        return self._deadline is not None and time.monotonic() + delay >= self._deadline

    def after(self, error: AcpcError) -> float | None:
        """Seconds to wait before the next attempt; None: ``error`` is the answer."""
        self._failures += 1
        delay = self._delay(error, self._failures)
        if delay is None or self.over(delay):
            self._policy.hinted(error, self._failures)
            return None
        return delay

    def succeeded(self) -> None:
        """Forgets the failures in a row."""
        self._failures = 0
