"""Reads client certificates and revocation lists."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import lru_cache
from pathlib import Path

from cryptography import x509
from cryptography.x509.oid import NameOID

from acpc_server.access.files import read_public
from acpc_server.access.tokens import bad_credentials, expired_credentials
from acpc_server.errors import FailedPrecondition, Unauthenticated

PEER_CERTIFICATE = "x509_pem_cert"
MAX_REMEMBERED = 4096
_CRL = re.compile(rb"-----BEGIN X509 CRL-----.+?-----END X509 CRL-----", re.DOTALL)
# Issuer's name, as bytes, and serial number: what names a certificate in a revocation list.
_Serial = tuple[bytes, int]


# SPIFFE-ID, section 2: letters, digits and -._, no empty segment, none that is "." or "..".
_SPIFFE = re.compile(r"spiffe://[a-z0-9._-]+(/(?!\.{1,2}(/|$))[A-Za-z0-9._-]+)*")


@dataclass(frozen=True)
class CertificateNames:
    """The names of a client certificate, and when it counts, in seconds since the epoch."""

    spiffe: str  # empty without a valid one, or with more URIs
    dns: tuple[str, ...]
    common_name: str  # empty without one, or with several
    serial: _Serial
    not_before: float
    not_after: float

    @classmethod
    def of(cls, certificate: x509.Certificate) -> CertificateNames:
        """Read a certificate."""
        try:
            names = certificate.extensions.get_extension_for_class(
                x509.SubjectAlternativeName
            ).value
            uris = names.get_values_for_type(x509.UniformResourceIdentifier)
            dns = names.get_values_for_type(x509.DNSName)
        except x509.ExtensionNotFound:
            uris, dns = [], []
        common = certificate.subject.get_attributes_for_oid(NameOID.COMMON_NAME)
        # A SPIFFE certificate has one URI and no other (SPIFFE X.509-SVID, section 2).
        spiffe = uris[0] if len(uris) == 1 and _SPIFFE.fullmatch(uris[0]) else ""
        return cls(
            spiffe,
            tuple(dns),
            str(common[0].value) if len(common) == 1 else "",
            (certificate.issuer.public_bytes(), certificate.serial_number),
            certificate.not_valid_before_utc.timestamp(),
            certificate.not_valid_after_utc.timestamp(),
        )


@dataclass(frozen=True)
class Revocations:
    """The revocation lists of one state of the file."""

    revoked: frozenset[_Serial]
    issuers: frozenset[bytes]  # authorities that a list was given of
    expires: float  # when the first list must have been replaced, seconds since the epoch

    def check(self, serial: _Serial, now: float) -> None:
        """Raise Unauthenticated unless a certificate is known not to be revoked."""
        if serial in self.revoked:
            raise bad_credentials("the client certificate was revoked")
        if serial[0] not in self.issuers:
            raise bad_credentials(
                "there is no revocation list of the authority that issued the client certificate"
            )
        if now >= self.expires:
            raise Unauthenticated(
                "client certificates cannot be checked: the server's revocation list has expired; "
                "whoever runs the server must replace it",
                reason="REVOCATION_LIST_EXPIRED",
            )


class PeerCertificates:
    """Reads the certificates of connections; TLS has verified that their authority signed them."""

    def __init__(self, clock: Callable[[], float] = time.time) -> None:
        self._clock = clock
        self._read = lru_cache(MAX_REMEMBERED)(_names_of)

    def names(
        self, auth_context: Mapping[str, Sequence[bytes]], revocations: Revocations | None
    ) -> CertificateNames | None:
        """Return whom a connection's certificate names; None for one without a certificate.

        Connections outlast certificates, so each call asks. Unauthenticated: it has expired since,
        or was revoked, or may have been.
        """
        given = auth_context.get(PEER_CERTIFICATE)
        if not given:
            return None
        found = self._read(given[0])
        now = self._clock()
        if now >= found.not_after:
            raise expired_credentials("the client certificate")
        if now < found.not_before:
            raise bad_credentials("the client certificate is not valid yet")
        if revocations is not None:
            revocations.check(found.serial, now)
        return found


def _names_of(pem: bytes) -> CertificateNames:
    try:
        return CertificateNames.of(x509.load_pem_x509_certificate(pem))
    except ValueError as error:
        raise bad_credentials("the client certificate cannot be read") from error


def read_authorities(path: Path) -> list[x509.Certificate]:
    """Read the certificates of a PEM file; FailedPrecondition when it has none."""
    try:
        return x509.load_pem_x509_certificates(read_public(path))
    except ValueError as error:
        raise FailedPrecondition(f"{path}: not a PEM certificate ({error})") from error


def read_revocations(path: Path, authorities: Sequence[x509.Certificate]) -> Revocations:
    """Read the revocation lists of a PEM file; FailedPrecondition unless signed and in force."""
    blocks = _CRL.findall(read_public(path))
    if not blocks:
        raise FailedPrecondition(f"{path}: no PEM revocation list (BEGIN X509 CRL)")
    revoked: set[_Serial] = set()
    issuers: set[bytes] = set()
    expires = float("inf")
    for block in blocks:
        try:
            crl = x509.load_pem_x509_crl(block)
            critical = [found.oid.dotted_string for found in crl.extensions if found.critical]
        except ValueError as error:
            raise FailedPrecondition(f"{path}: not a revocation list ({error})") from error
        if critical:
            raise FailedPrecondition(
                f"{path}: the list has the critical extension {critical[0]}, so it may be a delta "
                "or partial list; give a complete one"
            )
        _require_signed(crl, authorities, path)
        name = crl.issuer.public_bytes()
        revoked.update((name, entry.serial_number) for entry in crl)
        issuers.add(name)
        if crl.next_update_utc is not None:
            if crl.next_update_utc <= datetime.now(UTC):
                raise FailedPrecondition(
                    f"{path}: the revocation list expired at {crl.next_update_utc:%Y-%m-%d %H:%M} "
                    "UTC, so it does not tell who was revoked since; have the authority issue a "
                    "new one"
                )
            expires = min(expires, crl.next_update_utc.timestamp())
    return Revocations(frozenset(revoked), frozenset(issuers), expires)


def _require_signed(
    crl: x509.CertificateRevocationList, authorities: Sequence[x509.Certificate], path: Path
) -> None:
    for authority in authorities:
        if authority.subject == crl.issuer:
            try:
                if crl.is_signature_valid(authority.public_key()):  # type: ignore[arg-type]
                    return
            except TypeError:  # a key that signs nothing
                continue
    raise FailedPrecondition(
        f"{path}: the list of {crl.issuer.rfc4514_string()} is signed by no certificate of "
        "--tls-client-ca; give the list that this authority issues"
    )
