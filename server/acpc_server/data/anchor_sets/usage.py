"""Counts the bytes of the store and reserves more within its quota."""

import threading
import time
from collections.abc import Callable
from typing import NamedTuple

from acpc_server.errors import ResourceExhausted
from acpc_server.observe import Metrics

# Counting reads the whole store, so it is not done at every call.
MEASURE_SECONDS = 10.0


class Count(NamedTuple):
    """What is on disk: finished sets, unfinished uploads, and the bytes of both."""

    sets: int
    staged: int
    total_bytes: int


class Usage:
    """The store's bytes, known roughly between counts and exactly where a quota is at stake."""

    def __init__(self, count: Callable[[], Count], limit: int, metrics: Metrics) -> None:
        self._count = count
        self._limit = limit
        self._metrics = metrics
        self._lock = threading.Lock()
        self._known, self._counted = Count(0, 0, 0), 0.0

    def measure(self) -> Count:
        """Counts now."""
        found = self._count()
        with self._lock:
            self._known, self._counted = found, time.monotonic()
        self._metrics.anchor_sets.set(found.sets)
        self._metrics.anchor_bytes.set(found.total_bytes)
        return found

    def recent(self) -> Count:
        """A count that is some seconds old at most."""
        if time.monotonic() < self._counted + MEASURE_SECONDS:
            return self._known
        return self.measure()

    def reserve(self, more: int) -> None:
        """Takes bytes of the quota; the next count corrects them.

        Raises:
            ResourceExhausted: There is no room for them.
        """
        if self._known.total_bytes + more > self._limit:
            self.measure()
        with self._lock:
            total = self._known.total_bytes + more
            if total > self._limit:
                raise ResourceExhausted(
                    f"the anchor sets of this server are at their quota of {self._limit} bytes; "
                    "delete sets that are not needed",
                    reason="ANCHOR_STORE_FULL",
                )
            self._known = self._known._replace(total_bytes=total)
        self._metrics.anchor_bytes.set(total)
