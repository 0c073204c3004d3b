"""Repeats calls while their server is away, within bounds."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable
from typing import TypeVar

from acpc_client.errors import (
    AcpcError,
    Cancelled,
    DeadlineExceeded,
    ResourceExhausted,
    Unavailable,
)

Answer = TypeVar("Answer")
OnAway = Callable[[AcpcError | None], None]
MAX_ABSENCE_S = 600.0
"""Seconds a server may be away at a stretch, unless the caller says otherwise."""

_MIN_DELAY_S = 0.25
_MAX_DELAY_S = 5.0


class RunEnded(AcpcError):
    """A run that ends before its tasks do; nothing is lost, and the next run goes on."""


class ServerAway(RunEnded, Unavailable):
    """The server was away for too long."""


class OutOfTime(RunEnded, DeadlineExceeded):
    """The time for the run is over."""


class Stopped(RunEnded, Cancelled):
    """Somebody asked the run to stop."""


def check_options(call: str, given: Iterable[str], known: type) -> None:
    """Raises TypeError, which lists the options there are, when ``call`` is given another one."""
    options = known.__annotations__
    unknown = [name for name in given if name not in options]
    if unknown:
        raise TypeError(f"{call} takes no {', '.join(unknown)}; known: {', '.join(options)}")


def passing(error: AcpcError) -> bool:
    """Whether the same call may succeed later, with nothing changed but the time."""
    busy = isinstance(error, ResourceExhausted) and error.retry_after is not None
    return busy or isinstance(error, Unavailable | DeadlineExceeded)


class Link:
    """Sends calls to a server, and waits for it when it is away.

    Args:
        max_absence: Seconds the server may be away at a stretch.
        timeout: Seconds for the whole run; None: no bound.
        stop: Ends every wait when set.
        on_away: Told the error while the server is away, and None once it is back.
    """

    def __init__(
        self,
        *,
        max_absence: float = MAX_ABSENCE_S,
        timeout: float | None = None,
        stop: threading.Event | None = None,
        on_away: OnAway = lambda _: None,
    ) -> None:
        self._max_absence = max_absence
        self._end = None if timeout is None else time.monotonic() + timeout
        self._timeout = timeout
        self._stop = stop or threading.Event()
        self.on_away = on_away

    def ask(self, call: Callable[[], Answer], *, raise_busy: bool = False) -> Answer:
        """What ``call`` returns, as soon as the server answers.

        Args:
            call: Sends one call.
            raise_busy: Raise what says that the server is busy, so that the caller can go on.

        Raises:
            RunEnded: The server was away for too long, the time is over, or ``stop`` was set.
            AcpcError: The server rejected the call.
        """
        since: float | None = None
        delay = _MIN_DELAY_S
        while True:
            self.check()
            try:
                answer = call()
            except AcpcError as error:
                busy = isinstance(error, ResourceExhausted)
                if not passing(error) or (busy and raise_busy):
                    raise
                since = time.monotonic() if since is None else since
                if time.monotonic() - since >= self._max_absence:
                    raise ServerAway(
                        f"the server was away for {self._max_absence:g} s ({error.message}); "
                        "the next run goes on from here",
                        reason="SERVER_AWAY",
                    ) from error
                self.on_away(error)
                self.sleep(max(delay, error.retry_after or 0.0))
                delay = min(_MAX_DELAY_S, 2 * delay)
            else:
                if since is not None:
                    self.on_away(None)
                return answer

    def sleep(self, seconds: float) -> None:
        """Waits, but not past the end of the run."""
        if self._end is not None:
            seconds = min(seconds, max(0.0, self._end - time.monotonic()))
        self._stop.wait(seconds)

    def check(self) -> None:
        """Raises ``RunEnded`` once the time is over, or somebody asked to stop."""
        if self._stop.is_set():
            raise Stopped("the run was asked to stop; its jobs go on at the server")
        if self._end is not None and time.monotonic() >= self._end:
            raise OutOfTime(
                f"the run was not done after {self._timeout:g} s; its jobs go on at the server, "
                "and the next run goes on from here"
            )
