"""The public keys with which issuers sign tokens: from a PEM file, a JWKS file, or a URL."""

import ipaddress
import json
import threading
import time
import urllib.parse
import urllib.request
from collections.abc import Sequence
from dataclasses import dataclass
from http.client import HTTPException
from pathlib import Path

import jwt
import structlog
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from cryptography.hazmat.primitives.serialization import load_pem_public_key
from cryptography.x509 import load_pem_x509_certificate

from acpc_server.access.files import read_public
from acpc_server.errors import AcpcError, FailedPrecondition

log = structlog.get_logger("acpc.access")
MAX_JWKS_BYTES = 1024 * 1024
MAX_KEYS = 1000
FETCH_SECONDS = 10.0
REFRESH_SECONDS = 300.0
# An unknown key makes the server look again, this often at most.
MIN_REFRESH_SECONDS = 10.0
# Keys that could not be fetched again for so long may have been withdrawn by their issuer.
MAX_AGE_SECONDS = 86_400.0
MIN_RSA_BITS = 2048
PublicKey = rsa.RSAPublicKey | ec.EllipticCurvePublicKey | ed25519.Ed25519PublicKey
_CURVES = {"ES256": "secp256r1", "ES384": "secp384r1", "ES512": "secp521r1"}


@dataclass(frozen=True, eq=False)
class SigningKey:
    """A public key; ValueError when it is not one of a usable type and size."""

    key: PublicKey
    kid: str = ""  # its name in tokens
    algorithm: str = ""  # the one it is for; empty: any that suits its type

    def __post_init__(self) -> None:
        if not isinstance(self.key, PublicKey):
            raise ValueError(f"{type(self.key).__name__} is not a public key for signatures")
        if isinstance(self.key, rsa.RSAPublicKey) and self.key.key_size < MIN_RSA_BITS:
            raise ValueError(f"an RSA key of fewer than {MIN_RSA_BITS} bits")

    def fits(self, algorithm: str) -> bool:
        """Whether a signature of this algorithm can be its."""
        if self.algorithm not in ("", algorithm):
            return False
        if isinstance(self.key, ec.EllipticCurvePublicKey):
            return _CURVES.get(algorithm) == self.key.curve.name
        if isinstance(self.key, rsa.RSAPublicKey):
            return algorithm.startswith(("RS", "PS"))
        return algorithm == "EdDSA"


def _from_jwk(entry: object) -> SigningKey:
    """Read a JSON web key; ValueError when it cannot verify tokens."""
    if not isinstance(entry, dict) or entry.get("kty") == "oct":
        raise ValueError("a symmetric key, which no issuer publishes")
    uses = entry.get("key_ops")
    if entry.get("use", "sig") != "sig" or (isinstance(uses, list) and "verify" not in uses):
        raise ValueError("a key that is not for signatures")
    try:
        key = jwt.PyJWK(entry).key
    except (jwt.PyJWTError, TypeError, KeyError, AttributeError, OverflowError) as error:
        raise ValueError(str(error)) from error
    return SigningKey(key, str(entry.get("kid", "")), str(entry.get("alg", "")))


class KeySource:
    """The keys of an issuer. Those of a file stay; a changed file makes another source."""

    def __init__(self, keys: Sequence[SigningKey] | None = None) -> None:
        self._keys = keys

    def keys(self) -> Sequence[SigningKey] | None:
        """Return the keys at once; None while there are none to be had."""
        return self._keys

    def look_again(self) -> None:
        """Note that a token names a key that is not there."""


class FetchedKeys(KeySource):
    """Keys of a URL, https or http on loopback, fetched by a thread of its own and kept.

    ``jwt.PyJWKClient`` fetches in the call that needs a key, bounds neither the size nor the whole
    time of an answer, and leaves out keys without ``kid``.
    """

    def __init__(self, url: str) -> None:
        super().__init__()
        require_safe_url(url)
        self.url = url
        self._fetched = -float("inf")
        self._wanted = threading.Event()
        self._tried = threading.Event()
        self._stopped = threading.Event()
        threading.Thread(target=self._run, name="jwks", daemon=True).start()
        # A server that has just started should know the keys at its first call, if it can.
        self._tried.wait(FETCH_SECONDS / 2)

    def keys(self) -> Sequence[SigningKey] | None:
        """Return the keys as last fetched, unless that is a day ago."""
        fresh = time.monotonic() - self._fetched < MAX_AGE_SECONDS
        return self._keys if fresh else None

    def look_again(self) -> None:
        """Fetch soon, unless that was just done."""
        self._wanted.set()

    def close(self) -> None:
        """Stop fetching."""
        self._stopped.set()
        self._wanted.set()

    def _run(self) -> None:
        while not self._stopped.is_set():
            try:
                self._keys = parse_jwks(_fetch(self.url), self.url)
                self._fetched = time.monotonic()
            except (AcpcError, OSError, ValueError, HTTPException) as error:
                log.error("jwks_fetch_failed", url=self.url, error=str(error))
            except Exception:  # without this thread the keys would never change again
                log.exception("jwks_fetch_bug", url=self.url)
            self._tried.set()
            self._stopped.wait(MIN_REFRESH_SECONDS)
            self._wanted.wait(REFRESH_SECONDS if self.keys() else MIN_REFRESH_SECONDS)
            self._wanted.clear()


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """Takes keys from the address in the access file, not from where it points to."""

    def redirect_request(self, *_: object) -> None:
        return None


def _fetch(url: str) -> bytes:
    # The scheme was checked, and redirects are not followed. Plain http is for this host, which no
    # proxy can reach.
    direct = url.lower().startswith("http:")
    proxies = urllib.request.ProxyHandler({} if direct else None)
    opener = urllib.request.build_opener(_NoRedirect, proxies)
    give_up = time.monotonic() + FETCH_SECONDS
    data = b""
    with opener.open(url, timeout=FETCH_SECONDS) as answer:
        while part := answer.read1(65536):
            data += part
            if len(data) > MAX_JWKS_BYTES:
                raise ValueError(f"the answer is longer than {MAX_JWKS_BYTES} bytes")
            if time.monotonic() > give_up:
                raise TimeoutError(f"the answer took longer than {FETCH_SECONDS:g} s")
    return data


def require_safe_url(url: str) -> None:
    """Raise FailedPrecondition unless what comes from a URL is what its host has sent."""
    scheme = host = ""
    try:
        parts = urllib.parse.urlsplit(url)
        scheme, host = parts.scheme, parts.hostname or ""
        local = host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        local = False
    if not host or not (scheme == "https" or (scheme == "http" and local)):
        raise FailedPrecondition(
            f"jwks_url {url}: use https; plain http is for loopback, because whoever can change "
            "the answer can sign tokens"
        )


def parse_jwks(data: bytes, where: object) -> list[SigningKey]:
    """Return the keys of a JSON web key set that can verify tokens, or raise FailedPrecondition."""
    try:
        content = json.loads(data)
        entries = content["keys"]
        if not isinstance(entries, list) or len(entries) > MAX_KEYS:
            raise ValueError(f"keys must be a list of at most {MAX_KEYS}")
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise FailedPrecondition(f"{where}: not a JSON web key set ({error})") from error
    found, problems = [], []
    for entry in entries:
        try:
            found.append(_from_jwk(entry))
        except ValueError as error:
            problems.append(str(error))
    if not found:
        why = "; ".join(problems[:3]) or "it is empty"
        raise FailedPrecondition(f"{where}: no key that can verify tokens ({why})")
    return found


def read_jwks(path: Path) -> KeySource:
    """Read a JWKS file; FailedPrecondition when it has no key."""
    return KeySource(parse_jwks(read_public(path), path))


def read_pem_key(path: Path) -> KeySource:
    """Read the one public key, or certificate, of a PEM file; FailedPrecondition without one."""
    data = read_public(path)
    if b"PRIVATE KEY" in data:
        raise FailedPrecondition(f"{path}: holds a private key; give the public key of the issuer")
    try:
        key = (
            load_pem_x509_certificate(data).public_key()
            if b"BEGIN CERTIFICATE" in data
            else load_pem_public_key(data)
        )
        return KeySource([SigningKey(key)])  # type: ignore[arg-type]
    except (ValueError, TypeError, UnsupportedAlgorithm) as error:
        raise FailedPrecondition(f"{path}: not a PEM public key ({error})") from error
