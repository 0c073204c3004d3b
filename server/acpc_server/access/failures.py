"""Failed authentications: counted all, logged at most once a second, and bounded by address."""

from __future__ import annotations

import ipaddress
import time
import urllib.parse
from collections import OrderedDict
from collections.abc import Callable

import structlog

from acpc_server.errors import ResourceExhausted
from acpc_server.observe import Metrics

log = structlog.get_logger("acpc.access")
LOG_SECONDS = 1.0
# Tokens of one address that may fail in a second; the next are not looked at.
MAX_FAILED = 20
WINDOW_SECONDS = 1.0
MAX_ADDRESSES = 4096


class Failures:
    """Counts rejected callers; someone who guesses cannot fill the disk with log lines."""

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics
        self._next = 0.0
        self._unlogged = 0

    def failed(self, reason: str, method: str, peer: str) -> None:
        """Count one, and log it unless one was just logged; the next line counts those between."""
        self._metrics.access_denied.labels(reason).inc()
        now = time.monotonic()
        if now < self._next:
            self._unlogged += 1
            return
        log.warning(
            "access_denied", reason=reason, method=method, peer=peer, unlogged=self._unlogged
        )
        self._next, self._unlogged = now + LOG_SECONDS, 0


class FailureLimit:
    """Bounds the work that tokens cost which turn out not to count, by the address they come from.

    Remembers the addresses that failed last, no more than ``MAX_ADDRESSES``.
    """

    def __init__(self, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._monotonic = monotonic
        # By address: when its second began, and how often it has failed since.
        self._failed: OrderedDict[str, tuple[float, int]] = OrderedDict()

    def check(self, peer: str) -> None:
        """Raise ResourceExhausted when enough tokens of a peer's address have just failed."""
        since, times = self._failed.get(address(peer), (0.0, 0))
        if times >= MAX_FAILED and self._monotonic() - since < WINDOW_SECONDS:
            raise ResourceExhausted(
                f"{times} tokens from your address have just failed; no other is looked at for a "
                "second",
                reason="TOO_MANY_FAILURES",
                retry_after=WINDOW_SECONDS,
            )

    def failed(self, peer: str) -> None:
        """Count a token that did not count."""
        key, now = address(peer), self._monotonic()
        since, times = self._failed.pop(key, (now, 0))
        self._failed[key] = (since, times + 1) if now - since < WINDOW_SECONDS else (now, 1)
        if len(self._failed) > MAX_ADDRESSES:
            self._failed.popitem(last=False)


def address(peer: str) -> str:
    """What a peer cannot change at will: its address, or its network of IPv6, without the port."""
    kind, _, rest = peer.partition(":")
    host = urllib.parse.unquote(rest).rpartition(":")[0].strip("[]").partition("%")[0]
    try:
        found = ipaddress.ip_address(host)
    except ValueError:
        return kind
    found = getattr(found, "ipv4_mapped", None) or found
    return str(ipaddress.ip_network((found, 64 if found.version == 6 else 32), strict=False))
