"""Holds what probes ask for: whether the server takes calls, and whether its process is sick."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence

import structlog

log = structlog.get_logger("acpc.health")


class ServerHealth:
    """Readiness and liveness of one process, for every probe.

    A server without an obstacle is ready; a process that is not sick is live. A sick one exits.
    ``loaded`` returns the names of the loaded checkpoints, which stand in the answer of a probe.
    """

    def __init__(self, loaded: Callable[[], Sequence[str]] = tuple) -> None:
        self.loaded = loaded
        self._obstacles: dict[str, str] = {"starting": "the server starts"}
        self.sickness = ""  # why the process may not go on; empty while it may
        self._listeners: list[Callable[[], None]] = []
        self._lock = threading.Lock()

    @property
    def obstacles(self) -> dict[str, str]:
        """Why the server takes no calls, by cause; empty when it is ready."""
        with self._lock:
            return dict(self._obstacles)

    @property
    def ready(self) -> bool:
        """Whether the server takes calls."""
        return not self._obstacles

    @property
    def live(self) -> bool:
        """Whether the process may go on."""
        return not self.sickness

    def block(self, cause: str, why: str) -> None:
        """Be not ready for as long as ``cause`` stands."""
        self._change(lambda: self._obstacles.update({cause: why}))

    def clear(self, cause: str) -> None:
        """Take a cause away, if it stands."""
        self._change(lambda: self._obstacles.pop(cause, None))

    def fail(self, why: str) -> None:
        """Be sick, and so never ready again."""
        self.sickness = self.sickness or why
        self.block("sick", self.sickness)

    def watch(self, listener: Callable[[], None]) -> None:
        """Have ``listener`` called now and after every change, in the thread that made it."""
        with self._lock:
            self._listeners.append(listener)
        listener()

    def _change(self, change: Callable[[], object]) -> None:
        with self._lock:
            before = dict(self._obstacles)
            change()
            if before == self._obstacles:
                return
            listeners = list(self._listeners)
        for listener in listeners:
            try:
                listener()
            except Exception:  # the next one is to know too
                log.exception("health_listener_failed")
