"""Failed authentications: counted all, logged at most once a second."""

from __future__ import annotations

import time
from collections.abc import Callable

import structlog

from acpc_server.observe import Metrics

log = structlog.get_logger("acpc.access")
LOG_SECONDS = 1.0


class Failures:
    """Counts rejected callers; someone who guesses cannot fill the disk with log lines."""

    def __init__(self, metrics: Metrics, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._metrics = metrics
        self._monotonic = monotonic
        self._next = 0.0
        self._unlogged = 0

    def failed(self, reason: str, method: str, peer: str) -> None:
        """Count one, and log it unless one was just logged; the next line counts those between."""
        self._metrics.access_denied.labels(reason).inc()
        now = self._monotonic()
        if now < self._next:
            self._unlogged += 1
            return
        log.warning(
            "access_denied", reason=reason, method=method, peer=peer, unlogged=self._unlogged
        )
        self._next, self._unlogged = now + LOG_SECONDS, 0
