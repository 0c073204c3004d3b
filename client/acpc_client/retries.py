"""How often and how long what passes (``errors.passing``) is tried again, a second apart at most.

A number of times for calls, and some seconds for jobs, whose server may be away. Decisions only;
the callers do the I/O.
"""

from __future__ import annotations

import logging
import math
import random
import re
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from numbers import Real

from acpc_client.errors import (
    Aborted,
    AcpcError,
    ArgumentError,
    DeadlineExceeded,
    NotFound,
    ServerAway,
    Unavailable,
    extended,
    passing,
)

OnAway = Callable[[AcpcError | None], object]
"""Called with why a server is away, in one line, and with None once it is back."""

PATIENCE_S = 600.0
"""Seconds that a server which has answered before may be away, unless the caller says otherwise."""
FIRST_CONTACT_S = 10.0
"""The same for one that never has: its address may be wrong."""
UPLOAD_ATTEMPTS = 100
"""Times in a row that a stream of an upload may fail: as many seconds, longer than a server takes
to start again, or to give up a dead connection."""
WATCH_SEGMENT_S = 300.0
"""A watch stream is reopened this often, so that a dead connection cannot hold it for ever."""

_FIRST_WAIT_S, _LONGEST_WAIT_S = 0.1, 1.0
_LEAST_DEADLINE_S = 0.001  # below this no call is worth sending
_SOON = 2  # times that a stream of a watch breaks and is opened again at once
_UPLOAD_LOST = ("UPLOAD_OFFSET", "CORRUPT_SHARD")
# So gRPC begins where no connection came about, and nothing was sent.
_UNSENT = re.compile("failed to connect|connections to all backends|.* resolution|.* lookup", re.I)
_log = logging.getLogger("acpc_client")


@dataclass(frozen=True)
class RetryPolicy:
    """How often calls are sent whose errors pass.

    Waits double from 0.1 s to 1 s, with jitter, unless the server asks for more, and never outlast
    the deadline of the call.

    Attributes:
        attempts: Times at most; 1 turns retries off. A stream of an upload that breaks is followed
            by more.

    Raises ArgumentError: It is negative, NaN, or no number.
    """

    attempts: int = 5

    def __post_init__(self) -> None:
        if not (isinstance(self.attempts, Real) and self.attempts >= 0):
            raise ArgumentError("attempts", f"found {self.attempts!r}, wanted 0 or more")

    @property
    def of_uploads(self) -> int:
        """Times in a row that a stream of an upload is sent."""
        return 1 if self.attempts < 2 else max(self.attempts, UPLOAD_ATTEMPTS)


@dataclass
class Contact:
    """Whether the server of a client has ever answered, or may have received anything.

    It was ``heard`` when it last answered, or was last called on a new connection, monotonic. It is
    called by ``tls``, without a certificate of one's own.
    """

    target: str
    made: bool = False
    sent: bool = False
    tls: bool = False
    heard: float = field(default_factory=time.monotonic)

    def answered(self) -> None:
        """Takes note of an answer."""
        self.made, self.heard = True, time.monotonic()

    def explained(self, error: AcpcError) -> AcpcError:
        """The error itself; of a server that never answered, where it was sought and what to do."""
        if error.domain:
            self.answered()
        self.sent |= self.made or not _UNSENT.match(error.message)
        if self.made:
            return error
        if isinstance(error, Unavailable):
            why = _why(error)
            message = f"no server answers at {self.target} ({why}); {self.remedy(why)}"
            return ServerAway(message, why=why, request_id=error.request_id, sent=self.sent)
        if isinstance(error, DeadlineExceeded):
            so_far = f"no server has answered at {self.target} so far; {self.remedy('')}"
            return extended(error, so_far)
        return error

    def remedy(self, why: str) -> str:
        """Words what to do where no server answers.

        Of several addresses gRPC tells of the last alone: that one may refuse a connection while
        another wants a certificate.
        """
        if "certificate" in why or "handshake" in why:
            check = "check ACPC_TLS_CA and ACPC_TLS_NAME: it may speak plain text"
            return f"{check}, or be another server"
        tls = "if it speaks TLS, set ACPC_TLS_CA and, where it wants one, ACPC_CLIENT_CERTIFICATE; "
        words = "start one there (acpc-server serve --checkpoint-root DIR --dataset-root DIR), or "
        words += "name another (--target HOST:PORT, ACPC_TARGET)"
        return tls + words if self.tls or "closed" in why or "reset" in why else words


class Absence:
    """Decides how long a call, or a loop of them, outlasts a server that is away, and says so.

    Args:
        attempts: Calls in a row that nobody is told of.
        timeout: Seconds for everything; None: no deadline.
        patience: Seconds of one absence after that; 0: none; None: 600, and 10 before the first
            contact.
        on_away: Called when an absence begins and when it ends; None: the log ``acpc_client``.
        again: Whether an error passes soon, so that nobody need be told.
    """

    def __init__(
        self,
        contact: Contact,
        attempts: int = 1,
        timeout: float | None = None,
        patience: float | None = 0.0,
        on_away: OnAway | None = None,
        again: Callable[[AcpcError], bool] | None = None,
    ) -> None:
        self._contact, self._attempts = contact, attempts
        self._deadline = math.inf if timeout is None else time.monotonic() + timeout
        self._patience, self._on_away = patience, on_away or self._write
        self._again = again or _soon
        self._since, self._failures, self._told = math.inf, 0, False

    def remaining(self) -> float | None:
        """Seconds until the deadline, if there is one."""
        left = max(_LEAST_DEADLINE_S, self._deadline - time.monotonic())
        return None if math.isinf(left) else left

    def over(self, delay: float = 0.0) -> bool:
        """Whether the deadline will have passed ``delay`` seconds from now."""
        return time.monotonic() + delay >= self._deadline

    def failed(self, error: AcpcError, least: float = 0.0) -> float:
        """Seconds until the next call, ``least`` where patience lasts as long.

        Raises AcpcError: ``error`` itself, where it will not pass, or calls have no patience;
        ServerAway: The server has been away for too long.
        """
        self._contact.made |= bool(error.domain)
        now, limit = time.monotonic(), self._limit()
        self._since, self._failures = min(self._since, now), self._failures + 1
        end = min(self._deadline, self._since + (limit or math.inf))
        wait = max(least, _wait(self._failures, error.retry_after))
        if self._failures < self._attempts and self._again(error) and now + wait < end:
            return wait
        if not passing(error):
            self.answered()
        if not passing(error) or not limit:
            raise hinted(error, self._failures) from None
        if not self._told:
            self._told = True
            self._on_away(self._notice(error, limit))
        if now >= end:
            raise self._over(error, round(now - self._since, 1)) from None
        return min(end - now, wait)

    def answered(self) -> bool:
        """Takes note that the server has answered; whether it had been away before."""
        self._contact.made = True
        told, self._told, self._since, self._failures = self._told, False, math.inf, 0
        if told:
            self._on_away(None)
        return told

    def _limit(self) -> float:
        usual = PATIENCE_S if self._contact.made else FIRST_CONTACT_S
        return usual if self._patience is None else self._patience

    def _notice(self, error: AcpcError, limit: float) -> AcpcError:
        target, why, long = self._contact.target, _why(error), _length(limit)
        text = f"no server answers at {target} ({why}); trying for {long}"
        if how := self._how(error):
            more = "; its jobs go on, or resume when it is back" if how == "away" else ""
            text = f"the server at {target} is {how} ({why}){more}; waiting up to {long}"
        return ServerAway(text, why=why)

    def _over(self, error: AcpcError, waited: float) -> ServerAway:
        target, why = self._contact.target, _why(error)
        if how := self._how(error):
            message = (
                f"the server at {target} was {how} for {waited:g} s ({why}); what it has accepted "
                "goes on, or resumes when it is back"
            )
        else:
            remedy = self._contact.remedy(why)
            message = f"no server answered at {target} within {waited:g} s ({why}); {remedy}"
        sent = self._contact.made or self._contact.sent
        return ServerAway(message, why=why, request_id=error.request_id, sent=sent)

    def _how(self, error: AcpcError) -> str:
        """What the server is: one that says when to come back is there. Empty: none answered."""
        if not isinstance(error, Unavailable | DeadlineExceeded):
            return "busy"
        return "away" if self._contact.made else ""

    def _write(self, away: AcpcError | None) -> None:
        _log.warning(away.message if away else f"the server at {self._contact.target} is back")


class Watch:
    """Reconnects a watcher of one operation: a stream begins with the operation as it is.

    Attributes:
        name: The operation; from its first message on the name there, which is never an alias.
    """

    def __init__(self, absence: Absence, name: str) -> None:
        self._absence, self.name = absence, name
        self._breaks, self._last = 0, object()

    def segment(self) -> float:
        """Deadline in seconds of the next stream."""
        return min(WATCH_SEGMENT_S, self._absence.remaining() or WATCH_SEGMENT_S)

    def news(self, message: object) -> bool:
        """Whether ``message`` differs from the one before."""
        if self._absence.answered():
            self._breaks = 0
        changed = message != self._last
        self._last = message
        self.name = getattr(message, "name", self.name)
        return changed

    def ended(self) -> float:
        """Seconds to wait after a stream that ended before the operation did.

        Raises DeadlineExceeded: The watch is over; the operation goes on.
        """
        if self._absence.over(_LONGEST_WAIT_S):
            raise self._out_of_time()
        return _LONGEST_WAIT_S

    def failed(self, error: AcpcError) -> float:
        """Seconds to wait after a stream that failed.

        Raises AcpcError: ``error``, which will not pass, DeadlineExceeded, or ServerAway.
        """
        if self._absence.over():
            raise self._out_of_time() from None
        if isinstance(error, DeadlineExceeded):
            return _LONGEST_WAIT_S
        self._breaks += 1
        try:
            return self._absence.failed(error, 0.0 if self._breaks <= _SOON else _LONGEST_WAIT_S)
        except NotFound:
            lost = (
                f"the server has no record of {self.name}: it was deleted, the record was lost, or "
                "another server has it; a lost job must be submitted again"
            )
            raise extended(error, lost) from None
        except AcpcError as ended:
            raise extended(ended, self._follow()) from None

    def _out_of_time(self) -> DeadlineExceeded:
        message = f"{self.name} was still going on when the wait for it ended; {self._follow()}"
        return DeadlineExceeded(message, reason="")

    def _follow(self) -> str:
        return f"the job goes on at the server; follow it: acpc show job {self.name} --wait"


def resumed(error: AcpcError) -> bool:
    """Whether an upload whose stream ended with an error may go on with the next."""
    return passing(error) or isinstance(error, Aborted) or error.reason in _UPLOAD_LOST


def hinted(error: AcpcError, failures: int = 1) -> AcpcError:
    """The error, which says when to come back where a server that has died could not."""
    if isinstance(error, Unavailable) and not isinstance(error, ServerAway):
        error.retry_after = error.retry_after or _back_off(failures)
    return error


def _soon(error: AcpcError) -> bool:
    return passing(error) and not isinstance(error, DeadlineExceeded)


def _back_off(failures: int) -> float:
    return min(_LONGEST_WAIT_S, _FIRST_WAIT_S * 2.0 ** min(failures - 1, 10))


def _wait(failures: int, asked: float | None) -> float:
    """Seconds after a failure: as the server asks, else longer each time; with jitter."""
    spread = 1.0 + 0.2 * random.random()  # noqa: S311 - no secret
    return max(_back_off(failures) if asked is None else asked, 0.01) * spread


def _why(error: AcpcError) -> str:
    """The cause in a few words: what a server says, or the end of what gRPC says."""
    if isinstance(error, ServerAway):
        return error.why
    words = error.message if error.domain else error.message.rpartition(": ")[2]
    words = re.sub(r" \(\d+\)$", "", words)
    return words if words[:2].isupper() else words[:1].lower() + words[1:]


def _length(seconds: float) -> str:
    if math.isinf(seconds):
        return "any length of time"
    return f"{seconds / 60:g} min" if seconds >= 60 else f"{seconds:g} s"
