"""Tokens: what is accepted, and that no known way around a signature works."""

import base64
import hashlib
import hmac
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import jwt
import pytest
from acpc_server.access.access_file import IssuerEntry
from acpc_server.access.signing_keys import KeySource, SigningKey, parse_jwks
from acpc_server.access.tokens import (
    MAX_ADDRESSES,
    MAX_FAILED,
    MAX_TOKEN_BYTES,
    FailureLimit,
    Issuer,
    TokenVerifier,
    address,
)
from acpc_server.errors import FailedPrecondition, ResourceExhausted, Unauthenticated, Unavailable
from clocks import Clock
from credentials import AUDIENCE, ISSUER, jwk, public_pem, token
from cryptography.hazmat.primitives.asymmetric import ec, rsa

pytestmark = pytest.mark.edge

EC_KEY = ec.generate_private_key(ec.SECP256R1())
OTHER_KEY = ec.generate_private_key(ec.SECP256R1())
RSA_KEY = rsa.generate_private_key(65537, 2048)
NOW = 1_800_000_000.0


def source(*entries: dict[str, Any]) -> KeySource:
    return KeySource(parse_jwks(json.dumps({"keys": entries}).encode(), "test"))


def verifier(keys: KeySource | None = None, **changed: Any) -> TokenVerifier:  # noqa: ANN401
    given = {"name": "login", "issuer": ISSUER, "audience": AUDIENCE, "jwks_file": "x", **changed}
    entry = IssuerEntry.model_validate(given)
    keys = keys or source(jwk(EC_KEY, "ec"), jwk(RSA_KEY, "rsa"))
    return TokenVerifier([Issuer(entry, keys)])


def part(value: object) -> str:
    return base64.urlsafe_b64encode(json.dumps(value).encode()).rstrip(b"=").decode()


def rejected(text: str, keys: KeySource | None = None, **changed: Any) -> Unauthenticated:  # noqa: ANN401
    with pytest.raises(Unauthenticated) as caught:
        verifier(keys, **changed).verify(text)
    assert text not in caught.value.message
    return caught.value


@pytest.mark.parametrize(
    ("key", "algorithm", "kid"),
    [(EC_KEY, "ES256", "ec"), (RSA_KEY, "RS256", "rsa"), (EC_KEY, "ES256", "")],
)
def test_a_good_token_is_accepted(key: Any, algorithm: str, kid: str) -> None:  # noqa: ANN401
    found = verifier().verify(token(key, algorithm, kid))
    assert found.subject == "robot-7"
    assert found.issuer.name == "login"


def forged_hmac(secret: bytes, **header: object) -> str:
    """A token signed with HS256 by hand, since libraries decline to sign with a public key."""
    good = token(EC_KEY)
    body = f"{part({'alg': 'HS256', 'typ': 'JWT', **header})}.{good.split('.')[1]}"
    mac = hmac.digest(secret, body.encode(), hashlib.sha256)
    return f"{body}.{base64.urlsafe_b64encode(mac).rstrip(b'=').decode()}"


def without_signature() -> str:
    return f"{part({'alg': 'none'})}.{token(EC_KEY).split('.')[1]}."


def other_claims() -> str:
    header, claims, signature = token(EC_KEY, kid="ec").split(".")
    decoded = json.loads(base64.urlsafe_b64decode(claims + "=="))
    return f"{header}.{part({**decoded, 'sub': 'root'})}.{signature}"


def with_own_key() -> str:
    """The header brings the key to check the signature with (CVE-2018-0114)."""
    text = token(OTHER_KEY)
    signed = jwt.decode(text, options={"verify_signature": False})
    return jwt.encode(signed, OTHER_KEY, "ES256", headers={"jwk": jwk(OTHER_KEY), "kid": "ec"})


ATTACKS: dict[str, Callable[[], str]] = {
    "no signature": without_signature,
    "algorithm None in capitals": lambda: without_signature().replace(
        part({"alg": "none"}), part({"alg": "NONE"})
    ),
    "HS256 with the RSA public key": lambda: forged_hmac(public_pem(RSA_KEY), kid="rsa"),
    "HS256 with the EC public key": lambda: forged_hmac(public_pem(EC_KEY), kid="ec"),
    "HS256 with the key id": lambda: forged_hmac(b"rsa", kid="rsa"),
    "claims changed after signing": other_claims,
    "a key of its own in the header": with_own_key,
    "signed by another key": lambda: token(OTHER_KEY, kid="ec"),
    "unknown kid": lambda: token(EC_KEY, kid="elsewhere"),
    "kid is a path": lambda: token(EC_KEY, kid="../../dev/null"),
    "kid of a key of another type": lambda: token(EC_KEY, kid="rsa"),
    "algorithm not allowed": lambda: token(RSA_KEY, "PS256", "rsa"),
    "another audience": lambda: token(EC_KEY, kid="ec", aud="billing"),
    "no audience": lambda: token(EC_KEY, kid="ec", aud=None),
    "another issuer": lambda: token(EC_KEY, kid="ec", iss="https://elsewhere.example"),
    "issuer with a suffix": lambda: token(EC_KEY, kid="ec", iss=ISSUER + ".evil.example"),
    "no issuer": lambda: token(EC_KEY, kid="ec", iss=None),
    "no expiry": lambda: token(EC_KEY, kid="ec", exp=None),
    "no subject": lambda: token(EC_KEY, kid="ec", sub=None),
    "not valid yet": lambda: token(EC_KEY, kid="ec", nbf=4_000_000_000, exp=4_100_000_000),
    "expiry beyond numbers": lambda: token(EC_KEY, kid="ec", exp=float("inf")),
    "expiry is no number": lambda: token(EC_KEY, kid="ec", exp="tomorrow"),
    "critical header": lambda: jwt.encode(
        jwt.decode(token(EC_KEY), options={"verify_signature": False}),
        EC_KEY,
        "ES256",
        headers={"kid": "ec", "crit": ["b64"], "b64": True},
    ),
    "huge": lambda: token(EC_KEY, kid="ec", more="x" * MAX_TOKEN_BYTES),
    "empty parts": lambda: "..",
    "not a token": lambda: "hunter2",
    "deep JSON in the header": lambda: (
        base64.urlsafe_b64encode(b"[" * 3000).rstrip(b"=").decode() + ".e30.AA"
    ),
    "header is a list": lambda: f"{part([1])}.e30.AA",
    "issuer is a list": lambda: f"{part({'alg': 'ES256'})}.{part({'iss': [ISSUER]})}.AA",
}


@pytest.mark.parametrize("attack", ATTACKS)
def test_no_way_around_the_signature(attack: str) -> None:
    assert rejected(ATTACKS[attack]()).reason == "BAD_CREDENTIALS"


def test_an_expired_token_says_so() -> None:
    assert rejected(token(EC_KEY, kid="ec", exp=1_000_000_000)).reason == "EXPIRED_CREDENTIALS"


def test_several_keys_and_a_token_without_kid() -> None:
    keys = source(jwk(EC_KEY, "a"), jwk(OTHER_KEY, "b"))
    assert "kid" in rejected(token(EC_KEY), keys).message


def test_symmetric_and_encryption_keys_are_no_keys() -> None:
    useless = [{"kty": "oct", "k": "c2VjcmV0", "kid": "x"}, jwk(EC_KEY, "y", use="enc")]
    with pytest.raises(FailedPrecondition, match="no key that can verify"):
        source(*useless)
    with pytest.raises(FailedPrecondition, match="2048 bits"):
        source(jwk(rsa.generate_private_key(65537, 1024), "weak"))  # noqa: S505


def test_a_remembered_token_ends_with_its_expiry_whichever_clock_jumps() -> None:
    wall, steady = Clock(NOW), Clock(0.0)
    entry = IssuerEntry(
        name="login", issuer=ISSUER, audience=AUDIENCE, jwks_url="x", leeway_seconds=0
    )
    # PyJWT reads the real clock, so this token is good there for long and short in ours.
    tokens = TokenVerifier([Issuer(entry, source(jwk(EC_KEY)))], wall, steady)
    text = token(EC_KEY, exp=NOW + 2e9, nbf=1.0)
    wall.now = NOW + 2e9 - 10
    tokens.verify(text)
    wall.now -= 3600  # set back: it would be good for an hour more
    tokens.verify(text)
    steady.now = 11.0
    with pytest.raises(Unauthenticated, match="expired"):
        tokens.verify(text)


def test_a_remembered_token_ends_with_its_key() -> None:
    class Changing:
        def __init__(self) -> None:
            self.held = source(jwk(EC_KEY, "a")).keys()
            self.asked = 0

        def keys(self) -> Sequence[SigningKey] | None:
            return self.held

        def look_again(self) -> None:
            self.asked += 1

    keys = Changing()
    tokens = verifier(keys)
    text = token(EC_KEY, kid="a")
    tokens.verify(text)
    keys.held = source(jwk(OTHER_KEY, "b")).keys()
    with pytest.raises(Unauthenticated, match="not published"):
        tokens.verify(text)
    assert keys.asked == 1
    keys.held = None
    with pytest.raises(Unavailable) as away:
        tokens.verify(text)
    assert away.value.retry_after


@pytest.mark.parametrize("claim", ["exp", "nbf"])
def test_a_time_beyond_all_times(claim: str) -> None:
    rejected(token(EC_KEY, kid="ec", **{claim: 10**400 if claim == "exp" else -(10**400)}))


def test_tokens_that_fail_are_looked_at_a_few_times_a_second_by_address() -> None:
    entry = IssuerEntry(name="login", issuer=ISSUER, audience=AUDIENCE, jwks_file=Path("x"))
    steady = Clock(100.0)
    keys = source(jwk(EC_KEY))
    tokens = TokenVerifier([Issuer(entry, keys)], monotonic=steady)
    known, good, bad = (token(EC_KEY, sub=sub) for sub in ("known", "new", "bad"))
    tokens.verify(known, "ipv4:10.0.0.1:1")
    for port in range(MAX_FAILED):
        with pytest.raises(Unauthenticated):
            tokens.verify(bad + "AA", f"ipv4:10.0.0.1:{port}")
    with pytest.raises(ResourceExhausted) as caught:
        tokens.verify(good, "ipv4:10.0.0.1:77")
    assert caught.value.reason == "TOO_MANY_FAILURES"
    assert tokens.verify(known, "ipv4:10.0.0.1:77").subject == "known"
    assert tokens.verify(good, "ipv4:10.0.0.2:77").subject == "new"
    steady.now += 1.0
    assert tokens.verify(good, "ipv4:10.0.0.1:77").subject == "new"


def test_addresses_that_failed_are_forgotten() -> None:
    limit = FailureLimit(Clock(0.0))
    for _ in range(MAX_FAILED):
        limit.failed("ipv4:10.9.9.9:1")
    for i in range(MAX_ADDRESSES):
        limit.failed(f"ipv4:10.{i >> 16}.{i >> 8 & 255}.{i & 255}:1")
    limit.check("ipv4:10.9.9.9:1")


@pytest.mark.parametrize(
    ("peer", "expected"),
    [
        ("ipv4:10.0.0.1:50", "10.0.0.1/32"),
        ("ipv6:%5B2001:db8::1%5D:50", "2001:db8::/64"),
        ("ipv6:[2001:db8::ffff:1%25eth0]:50", "2001:db8::/64"),
        ("ipv6:[::ffff:10.0.0.1]:50", "10.0.0.1/32"),
        ("unix:", "unix"),
        ("", ""),
    ],
)
def test_the_address_of_a_peer(peer: str, expected: str) -> None:
    assert address(peer) == expected
