"""A connection that outlives its server: calls wait while the server is away, within bounds."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import TypeVar

from acpc_client.errors import (
    AcpcError,
    Cancelled,
    DeadlineExceeded,
    ResourceExhausted,
    Unavailable,
)

Answer = TypeVar("Answer")
_FIRST_DELAY_S = 0.25
_LONGEST_DELAY_S = 5.0


class RunEnded(AcpcError):
    """A run that ends before its sweep does; nothing is lost, and the next run goes on."""


class ServerAway(RunEnded, Unavailable):
    """The server was away for longer than the patience."""


class OutOfTime(RunEnded, DeadlineExceeded):
    """The time for the run is over."""


class Stopped(RunEnded, Cancelled):
    """Somebody asked the run to stop."""


def passing(error: AcpcError) -> bool:
    """Whether the same call may succeed later, with nothing changed but the time."""
    busy = isinstance(error, ResourceExhausted) and error.retry_after is not None
    return busy or isinstance(error, Unavailable | DeadlineExceeded)


class Link:
    """Asks a server, and waits for it when it is away.

    Args:
        patience: Seconds the server may be away at a stretch.
        timeout: Seconds for everything; None: no bound.
        stop: Ends every wait when set.
        on_away: Told the error while the server is away, and None once it is back.
    """

    def __init__(
        self,
        *,
        patience: float,
        timeout: float | None,
        stop: threading.Event,
        on_away: Callable[[AcpcError | None], None],
    ) -> None:
        self._patience = patience
        self._end = None if timeout is None else time.monotonic() + timeout
        self._timeout = timeout
        self._stop = stop
        self._on_away = on_away

    def ask(self, call: Callable[[], Answer], *, give_way: bool = False) -> Answer:
        """What ``call`` answers, as soon as the server does.

        Args:
            call: Sends one call.
            give_way: Raise what says that the server is busy, for the caller to do something else.

        Raises:
            RunEnded: The server was away for too long, the time is over, or ``stop`` was set.
            AcpcError: What the server refused.
        """
        since: float | None = None
        delay = _FIRST_DELAY_S
        while True:
            self.check()
            try:
                answer = call()
            except AcpcError as error:
                busy = isinstance(error, ResourceExhausted)
                if not passing(error) or (busy and give_way):
                    raise
                since = time.monotonic() if since is None else since
                if time.monotonic() - since >= self._patience:
                    raise ServerAway(
                        f"the server was away for {self._patience:g} s ({error.message}); "
                        "the next run goes on from here",
                        reason="SERVER_AWAY",
                    ) from error
                self._on_away(error)
                self.sleep(max(delay, error.retry_after or 0.0))
                delay = min(_LONGEST_DELAY_S, 2 * delay)
            else:
                if since is not None:
                    self._on_away(None)
                return answer

    def sleep(self, seconds: float) -> None:
        """Waits, but not past the end of everything."""
        if self._end is not None:
            seconds = min(seconds, max(0.0, self._end - time.monotonic()))
        self._stop.wait(seconds)

    def check(self) -> None:
        """Raises once the time for everything is over, or somebody asked to stop."""
        if self._stop.is_set():
            raise Stopped("the run was asked to stop; its jobs go on at the server")
        if self._end is not None and time.monotonic() >= self._end:
            raise OutOfTime(
                f"the run was not done after {self._timeout:g} s; its jobs go on at the server, "
                "and the next run goes on from here"
            )
