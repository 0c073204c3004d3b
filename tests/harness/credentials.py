"""Certificates, revocation lists and tokens as an authority or an issuer makes them."""

import ipaddress
import time
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import jwt
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
)
from cryptography.x509.oid import NameOID

ISSUER, AUDIENCE = "https://login.example", "acpc"
DAY = timedelta(days=1)
PrivateKey = ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey


def private_pem(key: PrivateKey) -> bytes:
    """A private key as a PEM file has it."""
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())


def public_pem(key: PrivateKey) -> bytes:
    """The public half as a PEM file has it."""
    return key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)


def jwk(key: PrivateKey, kid: str = "", **more: Any) -> dict[str, Any]:  # noqa: ANN401
    """The public half as a JWKS has it."""
    kind = jwt.algorithms.RSAAlgorithm if isinstance(key, rsa.RSAPrivateKey) else None
    entry = (kind or jwt.algorithms.ECAlgorithm).to_jwk(key.public_key(), as_dict=True)
    return {**entry, **({"kid": kid} if kid else {}), **more}


def token(
    key: PrivateKey | str | bytes | None,
    algorithm: str = "ES256",
    kid: str = "",
    now: float | None = None,
    **changed: Any,  # noqa: ANN401
) -> str:
    """A good token, with some claims changed; None leaves one out."""
    now = time.time() if now is None else now
    claims = {"iss": ISSUER, "aud": AUDIENCE, "sub": "robot-7", "exp": now + 600, "nbf": now - 5}
    claims = {k: v for k, v in {**claims, **changed}.items() if v is not None}
    return jwt.encode(claims, key, algorithm, headers={"kid": kid} if kid else None)


@dataclass
class Identity:
    """A certificate and its key."""

    certificate: x509.Certificate
    key: ec.EllipticCurvePrivateKey

    @property
    def pem(self) -> bytes:
        """The certificate."""
        return self.certificate.public_bytes(Encoding.PEM)

    def write(self, folder: Path, name: str) -> tuple[Path, Path]:
        """Write ``name.pem`` and ``name.key`` as a server wants them; their paths."""
        pem, key = folder / f"{name}.pem", folder / f"{name}.key"
        pem.write_bytes(self.pem)
        key.touch(mode=0o600)
        key.write_bytes(private_pem(self.key))
        return pem, key

    def auth_context(self) -> dict[str, list[bytes]]:
        """What gRPC tells of a connection made with it."""
        return {"transport_security_type": [b"ssl"], "x509_pem_cert": [self.pem]}


class Authority(Identity):
    """A certificate authority of the test's own."""

    def __init__(self, name: str = "test authority") -> None:
        key = ec.generate_private_key(ec.SECP256R1())
        subject = _name(name)
        builder = _builder(subject, subject, key, datetime.now(UTC) + 30 * DAY)
        builder = builder.add_extension(x509.BasicConstraints(True, None), critical=True)
        super().__init__(builder.sign(key, hashes.SHA256()), key)

    def issue(
        self,
        common_name: str,
        *,
        spiffe: str | tuple[str, ...] = (),
        dns: tuple[str, ...] = (),
        until: datetime | None = None,
    ) -> Identity:
        """A certificate of this authority; good for a server on loopback too."""
        key = ec.generate_private_key(ec.SECP256R1())
        until = until or datetime.now(UTC) + DAY
        builder = _builder(_name(common_name), self.certificate.subject, key, until)
        uris = (spiffe,) if isinstance(spiffe, str) else spiffe
        names: list[x509.GeneralName] = [x509.UniformResourceIdentifier(uri) for uri in uris]
        names += [x509.DNSName(name) for name in dns]
        if common_name == "localhost":
            names += [x509.DNSName("localhost")]
            names += [x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]
        if names:
            builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=False)
        return Identity(builder.sign(self.key, hashes.SHA256()), key)

    def revoke(self, *revoked: Identity, until: timedelta = DAY, critical: bool = False) -> bytes:
        """A PEM revocation list of these certificates."""
        now = datetime.now(UTC)
        builder = x509.CertificateRevocationListBuilder(
            self.certificate.subject, now - 2 * DAY, now + until
        )
        for identity in revoked:
            builder = builder.add_revoked_certificate(
                x509.RevokedCertificateBuilder(identity.certificate.serial_number, now).build()
            )
        if critical:
            builder = builder.add_extension(x509.DeltaCRLIndicator(1), critical=True)
        return builder.sign(self.key, hashes.SHA256()).public_bytes(Encoding.PEM)


def _name(common_name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common_name)])


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePrivateKey, until: datetime
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(until - 60 * DAY)
        .not_valid_after(until)
    )
