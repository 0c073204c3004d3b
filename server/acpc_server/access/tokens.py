"""Bearer tokens: JWTs of known issuers, verified once and remembered until they expire."""

import hashlib
import ipaddress
import time
import urllib.parse
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import jwt
import structlog

from acpc_server.access.access_file import IssuerEntry
from acpc_server.access.signing_keys import KeySource, SigningKey
from acpc_server.errors import ResourceExhausted, Unauthenticated, Unavailable
from acpc_server.observe import Metrics

log = structlog.get_logger("acpc.access")
MAX_TOKEN_BYTES = 8192
MAX_REMEMBERED = 10_000
KEYS_RETRY_SECONDS = 5.0
LOG_SECONDS = 1.0
# Tokens of one address that may fail in a second; the next are not verified.
MAX_FAILED = 20
WINDOW_SECONDS = 1.0
MAX_ADDRESSES = 4096


@dataclass(frozen=True)
class Issuer:
    """An issuer and its keys."""

    entry: IssuerEntry
    source: KeySource


@dataclass(frozen=True, eq=False)
class VerifiedToken:
    """A verified token; the same object for as long as its key and both clocks let it stand."""

    issuer: IssuerEntry
    subject: str
    claims: Mapping[str, Any]
    key: SigningKey
    source: KeySource
    not_before: float
    expires: float
    expires_monotonic: float


class TokenVerifier:
    """Verifies tokens; what it remembers is bounded, and knows tokens by their sha256 alone.

    Args:
        issuers: Whose tokens count.
        clock: Seconds since the epoch, which may jump.
        monotonic: Seconds that do not jump: a clock that is set back makes no token valid again.
    """

    def __init__(
        self,
        issuers: Sequence[Issuer],
        clock: Callable[[], float] = time.time,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._issuers = {issuer.entry.issuer: issuer for issuer in issuers}
        self._clock = clock
        self._monotonic = monotonic
        self._remembered: OrderedDict[bytes, VerifiedToken] = OrderedDict()
        self._failures = FailureLimit(monotonic)

    def verify(self, token: str, peer: str = "") -> VerifiedToken:
        """Verify a token that a peer has sent.

        Unauthenticated (BAD_CREDENTIALS, EXPIRED_CREDENTIALS): it does not count; Unavailable: its
        issuer's keys are away; ResourceExhausted: many of the peer's have just failed.
        """
        if len(token) > MAX_TOKEN_BYTES:
            raise bad_credentials(f"the token is longer than {MAX_TOKEN_BYTES} bytes")
        digest = hashlib.sha256(token.encode()).digest()
        known = self._remembered.get(digest)
        if known is not None and known.key in (known.source.keys() or ()):
            self._require_current(known)
            return known
        self._failures.check(peer)
        try:
            verified = self._verify(token)
        except Unauthenticated:
            self._failures.failed(peer)
            raise
        self._remembered[digest] = verified
        if len(self._remembered) > MAX_REMEMBERED:
            self._remembered.popitem(last=False)
        return verified

    def _require_current(self, known: VerifiedToken) -> None:
        if self._clock() >= known.expires or self._monotonic() >= known.expires_monotonic:
            raise expired_credentials("the token")
        if self._clock() < known.not_before:
            raise _early()

    def _verify(self, token: str) -> VerifiedToken:
        try:
            content = jwt.decode_complete(token, options={"verify_signature": False})
            header, claimed = content["header"], content["payload"].get("iss")
        except (jwt.PyJWTError, ValueError, TypeError, RecursionError) as error:
            raise bad_credentials("the bearer is neither an API key nor a JWT") from error
        issuer = self._issuers.get(claimed) if isinstance(claimed, str) else None
        if issuer is None:
            raise bad_credentials("the token is of an issuer that this server does not know")
        entry, algorithm = issuer.entry, header.get("alg")
        if algorithm not in entry.algorithms:
            raise bad_credentials(
                "the token's algorithm is not one of " + ", ".join(entry.algorithms)
            )
        if "crit" in header:
            raise bad_credentials("the token has critical headers, which this server cannot read")
        key = _choose(issuer, header.get("kid"), str(algorithm))
        claims = _decode(token, key, str(algorithm), entry)
        try:
            expires = float(claims["exp"]) + entry.leeway_seconds
            not_before = float(claims.get("nbf", 0)) - entry.leeway_seconds
        except OverflowError as error:  # PyJWT takes integers of any size
            raise bad_credentials("the token's exp or nbf is no time") from error
        left = self._monotonic() + (expires - self._clock())
        return VerifiedToken(
            entry, claims["sub"], claims, key, issuer.source, not_before, expires, left
        )


def bad_credentials(problem: str) -> Unauthenticated:
    """Return the error for credentials that do not count."""
    return Unauthenticated(problem, reason="BAD_CREDENTIALS")


def expired_credentials(what: str) -> Unauthenticated:
    """Return the error for credentials that no longer count."""
    return Unauthenticated(f"{what} has expired; get a new one", reason="EXPIRED_CREDENTIALS")


def _early() -> Unauthenticated:
    return bad_credentials("the token is not valid yet; compare the clocks of issuer and server")


def _choose(issuer: Issuer, kid: object, algorithm: str) -> SigningKey:
    """Return the one key that a token can be signed with."""
    keys = issuer.source.keys()
    if keys is None:
        issuer.source.look_again()
        raise Unavailable(
            f"the keys of issuer {issuer.entry.name} could not be fetched yet",
            reason="ISSUER_KEYS_AWAY",
            retry_after=KEYS_RETRY_SECONDS,
        )
    fitting = [key for key in keys if key.fits(algorithm) and kid in (None, key.kid)]
    if kid is not None and not fitting:
        # A key file without key ids has one key, whatever the token calls it.
        fitting = [key for key in keys if len(keys) == 1 and not key.kid and key.fits(algorithm)]
    if len(fitting) == 1:
        return fitting[0]
    issuer.source.look_again()
    raise bad_credentials(
        "the token is signed with a key that its issuer has not published"
        if not fitting
        else "the token does not name its key (kid), and its issuer has several"
    )


def _decode(token: str, key: SigningKey, algorithm: str, entry: IssuerEntry) -> dict[str, Any]:
    try:
        return jwt.decode(
            token,
            key.key,
            algorithms=[algorithm],
            issuer=entry.issuer,
            audience=entry.audience,
            leeway=entry.leeway_seconds,
            options={"require": ["exp", "iss", "aud", "sub"]},
        )
    except jwt.ExpiredSignatureError as error:
        raise expired_credentials("the token") from error
    except jwt.ImmatureSignatureError as error:
        raise _early() from error
    except jwt.InvalidAudienceError as error:
        raise bad_credentials("the token is for another audience than this server") from error
    except jwt.MissingRequiredClaimError as error:
        raise bad_credentials(f"the token has no claim {error.claim}") from error
    except (jwt.PyJWTError, ValueError, TypeError, OverflowError, RecursionError) as error:
        raise bad_credentials("the token's signature or claims are not valid") from error


class FailureLimit:
    """Bounds, by address, the work that tokens cost which turn out not to count.

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
    """Return what a peer cannot change at will: its IPv4 address or IPv6 network, no port."""
    kind, _, rest = peer.partition(":")
    host = urllib.parse.unquote(rest).rpartition(":")[0].strip("[]").partition("%")[0]
    try:
        found = ipaddress.ip_address(host)
    except ValueError:
        return kind
    found = getattr(found, "ipv4_mapped", None) or found
    return str(ipaddress.ip_network((found, 64 if found.version == 6 else 32), strict=False))


class DeniedLog:
    """Counts rejected callers, and logs one a second: guesses cannot fill the disk."""

    def __init__(self, metrics: Metrics) -> None:
        self._denied = metrics.access_denied
        self._next = 0.0
        self._unlogged = 0

    def add(self, reason: str, method: str, peer: str) -> None:
        """Count a rejected call; the next line logged counts those between."""
        self._denied.labels(reason).inc()
        now = time.monotonic()
        if now < self._next:
            self._unlogged += 1
            return
        log.warning(
            "access_denied", reason=reason, method=method, peer=peer, unlogged=self._unlogged
        )
        self._next, self._unlogged = now + LOG_SECONDS, 0
