"""When a call is tried again. Decisions only; the callers do the I/O."""

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
    ResourceExhausted,
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

_LEAST_DEADLINE_S = 0.001  # below this no call is worth sending
_MIN_PAUSE_S = 0.25
_MAX_PAUSE_S = 2.0
# What of gRPC's long messages tells a person why nobody answers.
_CAUSES = re.compile(
    r"connection refused|connection reset|handshake failed|no route to host"
    r"|DNS resolution failed|address lookup failed"  # gRPC 1.76, and newer ones
    r"|no such file or directory|permission denied"
    r"|network is unreachable|socket closed|timed out|keepalive watchdog timeout|GOAWAY received"
    r"|failed parsing HTTP/2"  # another program has the port
    r"|HTTP proxy returned response code \d+"
    r"|deadline exceeded",
    re.IGNORECASE,
)
# With these, no connection came about, so nothing was sent.
_UNSENT = re.compile(
    r"failed to connect|connection refused|handshake failed|name resolution|DNS resolution"
    r"|no such file or directory|network is unreachable|no route to host"
    r"|failed parsing HTTP/2|HTTP proxy returned",
    re.IGNORECASE,
)
_log = logging.getLogger("acpc_client")


@dataclass(frozen=True)
class RetryPolicy:
    """Backs off exponentially with jitter, bounded by the deadline of the call.

    Retries UNAVAILABLE, and RESOURCE_EXHAUSTED and ABORTED when the server says when.

    Attributes:
        attempts: Times a call is sent at most; 1 turns retries off.
        initial: Seconds before the second attempt.
        multiplier: Growth of the wait from one attempt to the next.
        maximum: Longest wait in seconds, except where the server asks for more.

    Raises ArgumentError: One is negative, NaN, or no number.
    """

    attempts: int = 5
    initial: float = 0.1
    multiplier: float = 2.0
    maximum: float = 5.0

    def __post_init__(self) -> None:
        given: dict[str, float] = vars(self)
        for name, value in given.items():
            if not (isinstance(value, Real) and value >= 0):
                raise ArgumentError(name, f"found {value!r}, wanted 0 or more")

    def delay(self, error: AcpcError, failures: int) -> float | None:
        """Seconds to wait after the ``failures``-th failure in a row; None: do not try again."""
        safe = (isinstance(error, Unavailable) and passing(error)) or (
            isinstance(error, (ResourceExhausted, Aborted)) and error.retry_after is not None
        )
        if not safe or failures >= self.attempts:
            return None
        spread = 1.0 + 0.2 * random.random()  # noqa: S311 - jitter, not a secret
        wait = self._back_off(failures) if error.retry_after is None else error.retry_after
        return wait * spread

    def hinted(self, error: AcpcError, failures: int = 1) -> AcpcError:
        """The error, which says when to come back where a server that has died could not."""
        if isinstance(error, Unavailable) and not isinstance(error, ServerAway):
            error.retry_after = error.retry_after or self._back_off(failures)
        return error

    def _back_off(self, failures: int) -> float:
        try:
            return min(self.maximum, self.initial * self.multiplier ** (failures - 1))
        except OverflowError:  # after a thousand failures, for one
            return self.maximum


class Attempts:
    """Keeps one call's deadline, ``timeout`` seconds, over retries; None: of a watcher."""

    def __init__(self, policy: RetryPolicy, timeout: float | None) -> None:
        self._policy = policy
        self._deadline = None if timeout is None else time.monotonic() + timeout
        self._failures = 0

    def remaining(self) -> float | None:
        """Seconds until the deadline."""
        deadline = self._deadline
        return None if deadline is None else max(_LEAST_DEADLINE_S, deadline - time.monotonic())

    def over(self, delay: float = 0.0) -> bool:
        """Whether the deadline will have passed ``delay`` seconds from now."""
        return self._deadline is not None and time.monotonic() + delay >= self._deadline

    def after(self, error: AcpcError) -> float | None:
        """Seconds to wait before the next attempt; None: ``error`` is the answer."""
        self._failures += 1
        delay = self._policy.delay(error, self._failures)
        if delay is None or self.over(delay):
            self._policy.hinted(error, self._failures)
            return None
        return delay

    def succeeded(self) -> None:
        """Forgets the failures in a row."""
        self._failures = 0


@dataclass
class Contact:
    """Whether the server of a client has ever answered, or may have received anything.

    It was ``heard`` when it last answered, or was last called on a new connection, monotonic.
    ``proxy`` is words about the proxy that calls go by; empty: they go by none.
    """

    target: str
    made: bool = False
    sent: bool = False
    proxy: str = ""
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
            so_far = f"no server has answered at {self.target} so far; {self.remedy()}"
            return extended(error, so_far)
        return error

    def remedy(self, why: str = "") -> str:
        """Words what to do where no server answers."""
        if "handshake" in why:  # by way of a proxy, or so that no look from here could tell more
            tls = "check --tls-ca (ACPC_TLS_CA) and --tls-name (ACPC_TLS_NAME): one side wants TLS"
            return self.proxy + tls
        return (
            f"{self.proxy}start one there (acpc-server serve --checkpoint-root DIR --dataset-root "
            "DIR), or name another (--target HOST:PORT, ACPC_TARGET)"
        )


class Absence:
    """Outlasts a server that is away, and reports the absence to the caller.

    Args:
        patience: Seconds of one absence; 0: none; None: 600, and 10 before the first contact.
        on_away: Called when an absence begins and when it ends; None: the log ``acpc_client``.
        most: Seconds that one absence may take, whatever the patience.
    """

    def __init__(
        self,
        contact: Contact,
        patience: float | None,
        on_away: OnAway | None = None,
        most: float | None = None,
    ) -> None:
        self._contact = contact
        self._patience = patience
        self._most = most
        self._on_away = on_away or self._write
        self._since: float | None = None
        self._told = False
        self._pause = _MIN_PAUSE_S

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
        if not passing(error) and not isinstance(error, ServerAway):
            self.answered()
        self._contact.made |= bool(error.domain)
        limit = self._limit()
        busy = isinstance(error, ResourceExhausted)
        if not passing(error) or (busy and limit <= 0):
            raise error from None
        now = time.monotonic()
        self._since = now if self._since is None else self._since
        if not self._told and limit > 0:
            self._told, self._pause = True, _MIN_PAUSE_S
            self._on_away(self._notice(error, limit))
        left = self._since + limit - now
        if left <= 0:
            raise self._over(error, round(now - self._since, 1)) from None
        self._pause = min(_MAX_PAUSE_S, 2 * self._pause)
        return min(left, max(self._pause / 2, error.retry_after or 0.0))

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
