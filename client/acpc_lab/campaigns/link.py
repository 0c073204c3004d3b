"""Sends calls that outlast an absence of their server, within the bounds of a run."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable
from typing import TypeVar

from acpc_client import AcpcClient
from acpc_client.errors import AcpcError, Cancelled, DeadlineExceeded, ResourceExhausted, RunEnded

Answer = TypeVar("Answer")


class OutOfTime(RunEnded, DeadlineExceeded):
    """The time for the run is over."""


class Stopped(RunEnded, Cancelled):
    """Somebody asked the run to stop."""


def check_options(call: str, given: Iterable[str], known: type) -> None:
    """Raises TypeError, which lists the options there are, when ``call`` is given another one."""
    options = known.__annotations__
    if unknown := [name for name in given if name not in options]:
        raise TypeError(f"{call} takes no {', '.join(unknown)}; known: {', '.join(options)}")


class Link:
    """Sends calls to a server, and waits for it while it is away.

    Args:
        client: Decides by its patience how long.
        patience: Seconds that the server may be away at a stretch; None: the client's.
        timeout: Seconds for the whole run; None: no bound.
        stop: Ends every wait when set.
        on_away: Called with the reason why the server is away, and with None once it is back.
    """

    def __init__(
        self,
        client: AcpcClient,
        *,
        patience: float | None = None,
        timeout: float | None = None,
        stop: threading.Event | None = None,
        on_away: Callable[[AcpcError | None], object] = lambda _: None,
    ) -> None:
        self.on_away = on_away
        self._absence = client.absence(patience, lambda away: self.on_away(away))  # noqa: PLW0108
        self._timeout, self._begun = timeout, time.monotonic()
        self._stop = stop or threading.Event()

    def ask(self, call: Callable[[], Answer], *, raise_busy: bool = False) -> Answer:
        """Returns what ``call`` does, as soon as the server answers.

        ``raise_busy``: raise ResourceExhausted at once. Raises RunEnded: As ``check``, or the
        server was away for too long; AcpcError: The server rejected the call.
        """
        while True:
            self.check()
            try:
                answer = call()
            except AcpcError as error:
                if raise_busy and isinstance(error, ResourceExhausted):
                    raise
                self.sleep(self._absence.failed(error))
            else:
                self._absence.answered()
                return answer

    def sleep(self, seconds: float) -> None:
        """Waits, but not past the end of the run."""
        self._stop.wait(min(seconds, max(0.0, self._left())))

    def check(self) -> None:
        """Raises ``RunEnded`` once the time is over, or somebody asked to stop."""
        if self._stop.is_set():
            raise Stopped("the run was asked to stop; jobs that the server has go on")
        if self._left() <= 0:
            raise OutOfTime(
                f"the run was not done after {self._timeout:g} s; jobs that the server has go "
                "on, and the next run goes on from here"
            )

    def _left(self) -> float:
        end = float("inf") if self._timeout is None else self._begun + self._timeout
        return end - time.monotonic()
