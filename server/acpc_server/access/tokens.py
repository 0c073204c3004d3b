"""Bearer tokens: JWTs of known issuers, verified once and remembered until they expire."""

from __future__ import annotations

import hashlib
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import jwt

from acpc_server.access.access_file import IssuerEntry
from acpc_server.access.failures import FailureLimit
from acpc_server.access.signing_keys import KeySource, SigningKey
from acpc_server.errors import Unauthenticated, Unavailable

MAX_TOKEN_BYTES = 8192
MAX_REMEMBERED = 10_000
KEYS_RETRY_SECONDS = 5.0
_REQUIRED = ["exp", "iss", "aud", "sub"]


@dataclass(frozen=True)
class Issuer:
    """An issuer and its keys."""

    entry: IssuerEntry
    source: KeySource


@dataclass(frozen=True, eq=False)
class VerifiedToken:
    """What a token that was verified says; the same object for as long as it is remembered.

    Attributes:
        issuer: The issuer's entry in the access file.
        subject: Its ``sub``.
        claims: All claims.
    """

    issuer: IssuerEntry
    subject: str
    claims: Mapping[str, Any]


@dataclass(frozen=True)
class _Remembered:
    """A token's verification, for as long as its key and both clocks let it stand."""

    token: VerifiedToken
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
        self._remembered: OrderedDict[bytes, _Remembered] = OrderedDict()
        self._failures = FailureLimit(monotonic)

    def verify(self, token: str, peer: str = "") -> VerifiedToken:
        """What a token says that a peer has sent.

        Raises:
            ResourceExhausted: Too many of the peer's tokens have just failed.
            Unauthenticated: It does not count; the reason is BAD_CREDENTIALS or
                EXPIRED_CREDENTIALS.
            Unavailable: Its issuer's keys could not be fetched yet.
        """
        if len(token) > MAX_TOKEN_BYTES:
            raise bad_credentials(f"the token is longer than {MAX_TOKEN_BYTES} bytes")
        digest = hashlib.sha256(token.encode()).digest()
        known = self._remembered.get(digest)
        if known is not None and known.key in (known.source.keys() or ()):
            self._require_current(known)
            return known.token
        self._failures.check(peer)
        try:
            verified = self._verify(token)
        except Unauthenticated:
            self._failures.failed(peer)
            raise
        self._remembered[digest] = verified
        if len(self._remembered) > MAX_REMEMBERED:
            self._remembered.popitem(last=False)
        return verified.token

    def _require_current(self, known: _Remembered) -> None:
        if self._clock() >= known.expires or self._monotonic() >= known.expires_monotonic:
            raise _expired()
        if self._clock() < known.not_before:
            raise _early()

    def _verify(self, token: str) -> _Remembered:
        try:
            content = jwt.decode_complete(token, options={"verify_signature": False})
            header, claimed = content["header"], content["payload"].get("iss")
        except (jwt.PyJWTError, ValueError, TypeError, RecursionError) as error:
            raise bad_credentials("the bearer is neither an API key nor a JWT") from error
        issuer = self._issuers.get(claimed) if isinstance(claimed, str) else None
        if issuer is None:
            raise bad_credentials("the token is of an issuer that this server does not know")
        algorithm = header.get("alg")
        if algorithm not in issuer.entry.algorithms:
            raise bad_credentials(
                "the token's algorithm is not one of " + ", ".join(issuer.entry.algorithms)
            )
        if "crit" in header:
            raise bad_credentials("the token has critical headers, which this server cannot read")
        key = _choose(issuer, header.get("kid"), str(algorithm))
        claims = _decode(token, key, str(algorithm), issuer.entry)
        return self._remember(issuer, key, claims)

    def _remember(self, issuer: Issuer, key: SigningKey, claims: dict[str, Any]) -> _Remembered:
        leeway = issuer.entry.leeway_seconds
        try:
            expires, not_before = (
                float(claims["exp"]) + leeway,
                float(claims.get("nbf", 0)) - leeway,
            )
        except OverflowError as error:  # PyJWT takes integers of any size
            raise bad_credentials("the token's exp or nbf is no time") from error
        return _Remembered(
            VerifiedToken(issuer.entry, claims["sub"], claims),
            key,
            issuer.source,
            not_before=not_before,
            expires=expires,
            expires_monotonic=self._monotonic() + (expires - self._clock()),
        )


def bad_credentials(problem: str) -> Unauthenticated:
    """The error of credentials that do not count."""
    return Unauthenticated(problem, reason="BAD_CREDENTIALS")


def expired_credentials(what: str) -> Unauthenticated:
    """The error of credentials that no longer count."""
    return Unauthenticated(f"{what} has expired; get a new one", reason="EXPIRED_CREDENTIALS")


def _expired() -> Unauthenticated:
    return expired_credentials("the token")


def _early() -> Unauthenticated:
    return bad_credentials("the token is not valid yet; compare the clocks of issuer and server")


def _choose(issuer: Issuer, kid: object, algorithm: str) -> SigningKey:
    """The one key that a token can be signed with."""
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
            options={"require": _REQUIRED},
        )
    except jwt.ExpiredSignatureError as error:
        raise _expired() from error
    except jwt.ImmatureSignatureError as error:
        raise _early() from error
    except jwt.InvalidAudienceError as error:
        raise bad_credentials("the token is for another audience than this server") from error
    except jwt.MissingRequiredClaimError as error:
        raise bad_credentials(f"the token has no claim {error.claim}") from error
    except (jwt.PyJWTError, ValueError, TypeError, OverflowError, RecursionError) as error:
        raise bad_credentials("the token's signature or claims are not valid") from error
