"""Certificates as an authority makes them."""

import ipaddress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID

DAY = timedelta(days=1)


def private_pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())


@dataclass
class Identity:
    certificate: x509.Certificate
    key: ec.EllipticCurvePrivateKey

    @property
    def pem(self) -> bytes:
        return self.certificate.public_bytes(Encoding.PEM)

    def write(self, folder: Path, name: str) -> tuple[Path, Path]:
        """Write ``name.pem`` and ``name.key`` as a server wants them; their paths."""
        pem, key = folder / f"{name}.pem", folder / f"{name}.key"
        pem.write_bytes(self.pem)
        key.touch(mode=0o600)
        key.write_bytes(private_pem(self.key))
        return pem, key


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
    ) -> Identity:
        key = ec.generate_private_key(ec.SECP256R1())
        until = datetime.now(UTC) + DAY
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
