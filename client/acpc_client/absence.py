"""A server that is away: how long it is waited for, what is said meanwhile, how watches go on.

Decisions only; the callers do the I/O.
"""

from __future__ import annotations

import logging
import math
import re
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from acpc_client.errors import (
    AcpcError,
    DeadlineExceeded,
    NotFound,
    ResourceExhausted,
    ServerAway,
    Unavailable,
    extended,
    passing,
)
from acpc_client.retries import Attempts, RetryPolicy

OnAway = Callable[[AcpcError | None], object]
"""Called with why a server is away, in one line, and with None once it is back."""

PATIENCE_S = 600.0
"""Seconds that a server which has answered before may be away, unless the caller says otherwise."""
FIRST_CONTACT_S = 10.0
"""The same for one that never has: its address may be wrong."""

WATCH_SEGMENT_S = 300.0
"""A watch stream is reopened this often, so that a dead connection cannot hold it for ever."""
_SOON = 2  # times that a stream of a watch breaks and is opened again at once
# What of gRPC's long messages tells a person why nobody answers.
_CAUSES = re.compile(
    r"connection refused|connection reset|handshake failed|no route to host"
    r"|DNS resolution failed|address lookup failed"  # gRPC 1.76, and newer ones
    r"|no such file or directory|permission denied"
    r"|network is unreachable|socket closed|timed out|keepalive watchdog timeout|GOAWAY received"
    r"|failed parsing HTTP/2"  # another program has the port
    r"|peer name \S+ is not in peer certificate"
    r"|HTTP proxy returned response code \d+"
    r"|deadline exceeded",
    re.IGNORECASE,
)
# With these, no connection came about, so nothing was sent.
_UNSENT = re.compile(
    r"failed to connect|connection refused|handshake failed|name resolution|DNS resolution"
    r"|no such file or directory|network is unreachable|no route to host"
    r"|failed parsing HTTP/2|HTTP proxy returned|peer name",
    re.IGNORECASE,
)
_log = logging.getLogger("acpc_client")


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
        self.sent |= self.made or not _UNSENT.search(error.message)
        if self.made:
            return error
        if isinstance(error, Unavailable) and _CAUSES.search(error.message):
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
        if "handshake" in why or "certificate" in why:
            check = "check ACPC_TLS_CA and ACPC_TLS_NAME: it may speak plain text"
            return f"{check}, or be another server"
        tls = "if it speaks TLS, set ACPC_TLS_CA and, where it wants one, ACPC_CLIENT_CERTIFICATE; "
        words = "start one there (acpc-server serve --checkpoint-root DIR --dataset-root DIR), or "
        words += "name another (--target HOST:PORT, ACPC_TARGET)"
        return tls + words if self.tls or "closed" in why or "reset" in why else words


class Absence:
    """Outlasts a server that is away, and reports the absence to the caller.

    Args:
        patience: Seconds of one absence; 0: none; None: 600, and 10 before the first contact.
        on_away: Called when an absence begins and when it ends; None: the log ``acpc_client``.
        most: Seconds that one absence may take, whatever the patience.
        policy: How looks for the server grow apart; None: the usual one.
    """

    def __init__(
        self,
        contact: Contact,
        patience: float | None,
        on_away: OnAway | None = None,
        most: float | None = None,
        policy: RetryPolicy | None = None,
    ) -> None:
        self._contact = contact
        self._patience = patience
        self._most = most
        self._on_away = on_away or self._write
        self._since: float | None = None
        self._told = False
        self._policy = policy or RetryPolicy()
        self._looks = 0

    def spent(self, error: AcpcError, delay: float) -> bool:
        """Whether a wait of ``delay`` seconds, after a failure, would outlast the patience.

        Without any, the few waits of a policy are made, and none that the server asks for.
        """
        now, limit = time.monotonic(), self._limit()
        self._since = now if self._since is None else self._since
        return now + delay > self._since + limit and (limit > 0 or error.retry_after is not None)

    def failed(self, error: AcpcError) -> float:
        """Seconds until the next call, after one that was tried as often as its policy says.

        Raises AcpcError: ``error`` itself, where it will not pass; ServerAway: The server has been
        away for too long.
        """
        if not passing(error):
            self.answered()
            raise error from None
        self._contact.made |= bool(error.domain)
        limit = self._limit()
        if isinstance(error, ResourceExhausted) and limit <= 0:
            raise error from None
        now = time.monotonic()
        self._since = now if self._since is None else self._since
        if not self._told and limit > 0:
            self._told, self._looks = True, 0
            self._on_away(self._notice(error, limit))
        left = self._since + limit - now
        if left <= 0:
            raise self._over(error, round(now - self._since, 1)) from None
        self._looks += 1
        return min(left, max(self._policy.look(self._looks), error.retry_after or 0.0))

    def answered(self) -> bool:
        """Takes note that the server has answered; whether it had been away before."""
        self._contact.made = True
        told, self._told, self._since = self._told, False, None
        if told:
            self._on_away(None)
        return told

    def _limit(self) -> float:
        usual = PATIENCE_S if self._contact.made else FIRST_CONTACT_S
        limit = usual if self._patience is None else self._patience
        return limit if self._most is None else min(limit, self._most)

    def _notice(self, error: AcpcError, limit: float) -> AcpcError:
        target, why, long = self._contact.target, _why(error), _length(limit)
        text = f"the server at {target} is away ({why}); its jobs go on, or resume when it is back"
        if isinstance(error, ResourceExhausted):
            text = f"the server at {target} is busy ({why})"
        elif not self._contact.made:
            return ServerAway(f"no server answers at {target} ({why}); trying for {long}", why=why)
        return ServerAway(f"{text}; waiting up to {long}", why=why)

    def _over(self, error: AcpcError, waited: float) -> ServerAway:
        target, why = self._contact.target, _why(error)
        if self._contact.made or isinstance(error, ResourceExhausted):
            how = "busy" if isinstance(error, ResourceExhausted) else "away"
            message = (
                f"the server at {target} was {how} for {waited:g} s ({why}); what it has accepted "
                "goes on, or resumes when it is back"
            )
        else:
            remedy = self._contact.remedy(why)
            message = f"no server answered at {target} within {waited:g} s ({why}); {remedy}"
        sent = self._contact.made or self._contact.sent
        return ServerAway(message, why=why, request_id=error.request_id, sent=sent)

    def _write(self, away: AcpcError | None) -> None:
        _log.warning(away.message if away else f"the server at {self._contact.target} is back")


class Watch:
    """Reconnects a watcher of one operation: a stream begins with the operation as it is.

    Attributes:
        name: The operation; from its first message on the name there, which is never an alias.
    """

    def __init__(
        self, policy: RetryPolicy, absence: Absence, name: str, timeout: float | None
    ) -> None:
        self._policy, self._attempts = policy, Attempts(policy, timeout)
        self._absence = absence
        self.name = name
        self._breaks = 0
        self._last: object = None

    def segment(self) -> float:
        """Deadline in seconds of the next stream."""
        remaining = self._attempts.remaining()
        return WATCH_SEGMENT_S if remaining is None else min(WATCH_SEGMENT_S, remaining)

    def news(self, message: object) -> bool:
        """Whether ``message`` differs from the one before."""
        self._attempts.succeeded()
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
        if self._attempts.over(self._policy.poll()):
            raise self._out_of_time()
        return self._policy.poll()

    def failed(self, error: AcpcError) -> float:
        """Seconds to wait after a stream that failed.

        Raises AcpcError: ``error``, which will not pass, DeadlineExceeded, or ServerAway.
        """
        if self._attempts.over():
            raise self._out_of_time() from None
        if isinstance(error, DeadlineExceeded):
            return self._policy.poll()
        self._breaks += 1
        delay = self._attempts.after(error)
        try:
            if delay is None or self._absence.spent(error, delay):
                return self._absence.failed(error)
            return delay if self._breaks <= _SOON else max(delay, self._policy.poll())
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


def _why(error: AcpcError) -> str:
    """The cause in a few words."""
    if isinstance(error, ServerAway):
        return error.why
    found = _CAUSES.search(error.message)
    message = found.group() if found else error.message
    return message if message[:2].isupper() else message[:1].lower() + message[1:]


def _length(seconds: float) -> str:
    if math.isinf(seconds):
        return "any length of time"
    return f"{seconds / 60:g} min" if seconds >= 60 else f"{seconds:g} s"
