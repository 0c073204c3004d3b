"""acpc-server dev-certificates: an authority, a server's and a client's certificate to try out."""

from __future__ import annotations

import ipaddress
import os
import socket
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Annotated

import typer
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID

from acpc_server.errors import FailedPrecondition

LOCAL_NAMES = ("localhost", "127.0.0.1", "::1")
FILES = ("ca.pem", "server.pem", "server.key", "client.pem", "client.key")


def dev_certificates(
    folder: Annotated[Path, typer.Argument(help="folder to write to; made when missing")],
    name: Annotated[
        list[str] | None,
        typer.Option(
            help="name or address that clients call; may be given again. Default: this "
            "host's name. localhost is always among them"
        ),
    ] = None,
    client: Annotated[str, typer.Option(help="common name of the client's certificate")] = "client",
    days: Annotated[int, typer.Option(min=1, max=825, help="time until they expire, days")] = 30,
) -> None:
    """Make certificates to try TLS with: ca.pem, server.pem and .key, client.pem and .key.

    The authority's key is not kept, so nobody can make more of them; run it again, in another
    folder, for new ones. For a server that matters, use your own authority or cert-manager.
    """  # fmt: skip
    made = [folder / file for file in FILES]
    if there := [path.name for path in made if path.exists()]:
        raise FailedPrecondition(f"{folder} has {', '.join(there)}; name another folder")
    until = datetime.now(UTC) + timedelta(days=days)
    key, authority = ec.generate_private_key(ec.SECP256R1()), _name("acpc dev authority")
    ca = _builder(authority, authority, key, until, authority=True).sign(key, hashes.SHA256())
    names = dict.fromkeys((*(name or [socket.gethostname()]), *LOCAL_NAMES))
    contents = {"ca.pem": ca.public_bytes(Encoding.PEM)}
    for who, common in (("server", next(iter(names))), ("client", client)):
        own = ec.generate_private_key(ec.SECP256R1())
        builder = _builder(_name(common), authority, own, until)
        if who == "server":
            general = [_general(given) for given in names]
            builder = builder.add_extension(x509.SubjectAlternativeName(general), critical=False)
        pem = own.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
        contents[f"{who}.pem"] = builder.sign(key, hashes.SHA256()).public_bytes(Encoding.PEM)
        contents[f"{who}.key"] = pem
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for path in made:
            mode = 0o600 if path.suffix == ".key" else 0o644
            opened = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
            with os.fdopen(opened, "wb") as written:
                written.write(contents[path.name])
    except OSError as error:
        raise FailedPrecondition(f"cannot write to {folder} ({error.strerror})") from error
    words = f"wrote {', '.join(FILES)} to {folder}, for {', '.join(names)}"
    typer.echo(f"{words}; they expire after {days} days", err=True)


def _name(common: str) -> x509.Name:
    try:
        return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common[:64])])
    except ValueError as error:
        raise FailedPrecondition(f"{common!r} is no name for a certificate ({error})") from error


def _general(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        pass
    try:
        return x509.DNSName(name)
    except ValueError as error:
        raise FailedPrecondition(f"{name!r} is no name of a host ({error})") from error


def _builder(
    subject: x509.Name,
    issuer: x509.Name,
    key: ec.EllipticCurvePrivateKey,
    until: datetime,
    *,
    authority: bool = False,
) -> x509.CertificateBuilder:
    basic = x509.BasicConstraints(ca=authority, path_length=0 if authority else None)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(datetime.now(UTC) - timedelta(hours=1))  # clocks differ
        .not_valid_after(until)
        .add_extension(basic, critical=True)
    )
