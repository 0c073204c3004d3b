"""Spares a planner the wait for a server that does not answer."""

from __future__ import annotations

import time

from acpc_client.errors import AcpcError, DeadlineExceeded, Unavailable

# Failures in a row after which the server is left alone, and for how long.
MAX_FAILURES = 2
REST_SECONDS = 10.0


class CircuitBreaker:
    """Opens when a server was away several times in a row; then one call at a time tries."""

    def __init__(self) -> None:
        self._failures = 0
        self._rests_until = 0.0
        self._error: AcpcError | None = None

    @property
    def error(self) -> AcpcError | None:
        """The last error of a server that is away, while it is not asked; else None."""
        return self._error if time.monotonic() < self._rests_until else None

    def noted(self, error: AcpcError | None) -> None:
        """Take note of an answer, or of an error in place of one."""
        away = isinstance(error, Unavailable | DeadlineExceeded)
        self._failures = self._failures + 1 if away else 0
        self._error = error if self._failures >= MAX_FAILURES else None
        self._rests_until = time.monotonic() + REST_SECONDS
