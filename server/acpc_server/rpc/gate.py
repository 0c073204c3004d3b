"""Who may enter a busy server: only calls that are expected to be answered in time."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

from acpc_server.errors import ResourceExhausted

# Weight of the newest interval between two answers.
SMOOTHING = 0.1
# A call enters only if it is expected to end within this share of the time it has left.
MARGIN = 0.5


class Gate:
    """Refuses at once the calls that are expected to be late, to leave room for those inside.

    By Little's law a call that enters behind n others is answered after about n + 1 of the
    intervals at which answers leave. The interval is learned while the server is busy.

    Args:
        limit: Calls inside at a time, whatever their deadlines.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._inside = 0
        self._interval = 0.0
        self._left_at = 0.0
        self._lock = threading.Lock()

    @contextmanager
    def entered(self, remaining: float | None) -> Iterator[None]:
        """Hold a place inside.

        Args:
            remaining: Seconds the call has left, or None without a deadline.

        Raises:
            ResourceExhausted: There is no place, or not one that would be in time.
        """
        self._enter(remaining)
        try:
            yield
        finally:
            self._leave()

    def _enter(self, remaining: float | None) -> None:
        with self._lock:
            expected = (self._inside + 1) * self._interval
            late = remaining is not None and expected > MARGIN * remaining
            if self._inside >= self._limit or (late and self._inside):
                raise ResourceExhausted(
                    f"{self._inside} calls are ahead and would take {expected:.3f} s",
                    reason="SERVER_BUSY",
                    retry_after=max(expected, self._interval),
                )
            if not self._inside:
                self._left_at = time.monotonic()
            self._inside += 1

    def _leave(self) -> None:
        with self._lock:
            now = time.monotonic()
            self._interval += SMOOTHING * (now - self._left_at - self._interval)
            self._left_at = now
            self._inside -= 1
