"""How a watcher of an operation goes on. Decisions only; the callers do the I/O."""

from __future__ import annotations

from acpc_client.errors import AcpcError, DeadlineExceeded, NotFound, Unimplemented, extended
from acpc_client.retries import Absence, Attempts, RetryPolicy

# A watch stream is reopened this often, so that a dead connection cannot hold it for ever.
WATCH_SEGMENT_S = 300.0
POLL_INTERVAL_S = 1.0
STREAM_BREAKS_BEFORE_POLLING = 3


class WatchPlan:
    """Reconnects a watcher of one operation, or polls when its streams keep breaking.

    Attributes:
        name: The operation; from its first message on the name there, which is never an alias.
    """

    def __init__(
        self, policy: RetryPolicy, absence: Absence, name: str, timeout: float | None
    ) -> None:
        self._attempts = Attempts(policy, timeout)
        self._absence = absence
        self.name = name
        self._breaks = 0
        self._last: object = None
        self.streaming = True

    def segment(self) -> float:
        """Deadline in seconds of the next stream or poll."""
        remaining = self._attempts.remaining()
        return WATCH_SEGMENT_S if remaining is None else min(WATCH_SEGMENT_S, remaining)

    def news(self, message: object) -> bool:
        """Whether ``message`` differs from the one before."""
        self._attempts.succeeded()
        if self._absence.answered():
            self._breaks, self.streaming = 0, True
        changed = message != self._last
        self._last = message
        self.name = getattr(message, "name", self.name)
        return changed

    def ended(self) -> float:
        """Seconds to wait after a stream or poll that ended before the operation did.

        Raises DeadlineExceeded: The watch is over; the operation goes on.
        """
        self._break()
        if self._attempts.over(POLL_INTERVAL_S):
            raise self._out_of_time()
        return POLL_INTERVAL_S

    def failed(self, error: AcpcError) -> float:
        """Seconds to wait after a stream or poll that failed.

        Raises AcpcError: ``error``, which will not pass, DeadlineExceeded, or ServerAway.
        """
        if self._attempts.over():
            raise self._out_of_time() from None
        if isinstance(error, DeadlineExceeded):
            return POLL_INTERVAL_S
        if isinstance(error, Unimplemented) and self.streaming:
            self.streaming = False
            return 0.0
        self._break()
        delay = self._attempts.after(error)
        try:
            if delay is None or self._absence.spent(error, delay):
                return self._absence.failed(error)
            return delay
        except NotFound:
            lost = (
                f"the server has no record of {self.name}: it was deleted, the record was lost, or "
                "another server has it; a lost job must be submitted again"
            )
            raise extended(error, lost) from None
        except AcpcError as ended:
            raise extended(ended, self._follow()) from None

    def _break(self) -> None:
        self._breaks += 1
        self.streaming = self.streaming and self._breaks < STREAM_BREAKS_BEFORE_POLLING

    def _out_of_time(self) -> DeadlineExceeded:
        message = f"{self.name} was still going on when the wait for it ended; {self._follow()}"
        return DeadlineExceeded(message, reason="")

    def _follow(self) -> str:
        return f"the job goes on at the server; follow it: acpc operations watch {self.name}"
