"""Who may enter a busy server: only calls that are expected to be answered in time."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

from acpc_server.errors import ResourceExhausted

# Weight of the newest call in what a place costs.
SMOOTHING = 0.1
# A call enters only if it is expected to end within this share of the time it has left.
MARGIN = 0.4
# Seconds after which a refused call may come again where nothing has been learned yet.
SOONEST_RETRY = 0.05


class Gate:
    """Refuses at once the calls of a method that are expected to be late: room for those inside.

    A call that enters behind n others leaves after about n + 1 times what a place costs. Each call
    that leaves tells what a place cost it: the time it was inside over the places it had before it
    and its own. Answers that leave in batches, as merged ones do, so count like any others.

    Args:
        limit: Calls inside at a time, whatever their deadlines.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._inside = 0
        self._place_seconds = 0.0
        self._lock = threading.Lock()

    @contextmanager
    def entered(self, remaining: float | None) -> Iterator[None]:
        """Hold a place inside.

        Args:
            remaining: Seconds the call has left, or None without a deadline.

        Raises:
            ResourceExhausted: There is no place, or not one that would be in time.
        """
        place = self._enter(remaining)
        entered_at = time.monotonic()
        try:
            yield
        finally:
            self._leave((time.monotonic() - entered_at) / place)

    def _enter(self, remaining: float | None) -> int:
        with self._lock:
            expected = (self._inside + 1) * self._place_seconds
            late = remaining is not None and expected > MARGIN * remaining
            if self._inside >= self._limit or (late and self._inside):
                raise ResourceExhausted(
                    f"{self._inside} calls are ahead and would take {expected:.3f} s",
                    reason="SERVER_BUSY",
                    retry_after=max(expected, SOONEST_RETRY),
                )
            self._inside += 1
            return self._inside

    def _leave(self, place_seconds: float) -> None:
        with self._lock:
            self._place_seconds += SMOOTHING * (place_seconds - self._place_seconds)
            self._inside -= 1
