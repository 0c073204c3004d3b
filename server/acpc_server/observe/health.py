"""Holds what probes ask for: whether the server takes calls, and whether its process is sick."""

from __future__ import annotations

from collections.abc import Callable, Sequence


class ServerHealth:
    """Readiness and liveness of one process, for every probe.

    A server without an obstacle is ready; a process that is not sick is live. A sick one exits.
    ``loaded`` returns the names of the loaded checkpoints, which stand in the answer of a probe.
    """

    def __init__(self, loaded: Callable[[], Sequence[str]] = tuple) -> None:
        self.loaded = loaded
        self._obstacles: dict[str, str] = {"starting": "the server starts"}
        self.sickness = ""  # why the process may not go on; empty while it may
        self._listener: Callable[[], object] = lambda: None

    @property
    def obstacles(self) -> dict[str, str]:
        """Why the server takes no calls, by cause; empty when it is ready."""
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
        self._obstacles[cause] = why
        self._listener()

    def clear(self, cause: str) -> None:
        """Take a cause away, if it stands."""
        self._obstacles.pop(cause, None)
        self._listener()

    def fail(self, why: str) -> None:
        """Be sick, and so never ready again."""
        self.sickness = self.sickness or why
        self.block("sick", self.sickness)

    def watch(self, listener: Callable[[], object]) -> None:
        """Have ``listener`` called after every change, in the thread that made it."""
        self._listener = listener
