"""Deletes jobs that ended longer ago than they are kept."""

from __future__ import annotations

import datetime
import threading
import time
from collections.abc import Callable, Sequence

import structlog
from sqlalchemy.exc import SQLAlchemyError

from acpc_server.jobs.record import Record, first_line

log = structlog.get_logger("acpc.jobs")
SWEEP_SECONDS = 600.0
# Jobs deleted at a time, so that no transaction is long.
BATCH = 100


class Retention:
    """A sweep in the background. Several hosts may sweep one record; a job is deleted once.

    Args:
        days: How long a finished job is kept; zero keeps all.
        now: Seconds since 1970 by the clock that dates jobs. It is read once, so that jobs are not
            deleted early when it is set forward later.
    """

    def __init__(
        self, record: Record, kinds: Sequence[str], days: float, now: Callable[[], float]
    ) -> None:
        self._record = record
        self._kinds = list(kinds)
        self._seconds = 86_400 * days
        self._now = now
        self._began: float | None = None
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._keep, name="acpc-retention", daemon=True)

    def start(self) -> None:
        """Sweep now and every ten minutes."""
        if self._seconds:
            self._thread.start()

    def stop(self) -> None:
        """End after the batch at hand."""
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join()

    def _keep(self) -> None:
        while not self._stop.is_set():
            try:
                self.sweep()
            except SQLAlchemyError as error:
                log.warning("retention_sweep_failed", cause=first_line(error))
            self._stop.wait(SWEEP_SECONDS)

    def sweep(self) -> None:
        """Delete every job whose retention time is over."""
        if self._began is None:
            self._began = self._now() - time.monotonic()
        moment = self._began + time.monotonic() - self._seconds
        before = datetime.datetime.fromtimestamp(moment, datetime.UTC)
        while not self._stop.is_set():
            expired = self._record.ended_before(before, self._kinds, BATCH)
            if not expired:
                return
            self._record.delete(expired)
            log.info("jobs_deleted", jobs=len(expired))
