"""Decides how long the threads of the job queues rest between two looks at the record."""

from __future__ import annotations

import threading
import time

QUEUE_SECONDS = 0.2
# The same once nothing has run or been queued here for a while: each look costs milliseconds, and
# the lease, which looks at the queues for its counts, tells when something waits.
IDLE_QUEUE_SECONDS = 30.0
IDLE_AFTER_SECONDS = 30.0
# The same, for a moment, when a run has ended: the next one can begin once its end is on record.
FREE_QUEUE_SECONDS = 0.02
FREE_SECONDS = 0.3


class Pace:
    """The rests of one process's queue threads, cut short by whoever knows that there is work."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._closed = False
        self._free_until = 0.0
        self._busy_until = time.monotonic() + IDLE_AFTER_SECONDS

    def rest(self) -> None:
        """Returns when it is time to look at the queue."""
        with self._changed:
            if not self._closed:
                self._changed.wait(self._seconds())

    def _seconds(self) -> float:
        now = time.monotonic()
        if now < self._free_until:
            return FREE_QUEUE_SECONDS
        return QUEUE_SECONDS if now < self._busy_until else IDLE_QUEUE_SECONDS

    def busy(self) -> None:
        """Something runs: look often for a while."""
        self._busy_until = time.monotonic() + IDLE_AFTER_SECONDS

    def queued(self) -> None:
        """A job was queued here: look at once."""
        with self._changed:
            self.busy()
            self._changed.notify_all()

    def waiting(self) -> None:
        """Something waits in the record, whoever queued it: look at once."""
        with self._changed:
            self._changed.notify_all()

    def freed(self) -> None:
        """A run ends here: look at once, and again until its place is free."""
        with self._changed:
            self._free_until = time.monotonic() + FREE_SECONDS
            self._changed.notify_all()

    def close(self) -> None:
        """No thread rests any more."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
