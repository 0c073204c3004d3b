"""The port: its certificate, replaced without a restart, and where it may listen without one."""

import ipaddress
import socket
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import grpc
import structlog
from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    PublicFormat,
    load_pem_private_key,
)

from acpc_server.access.certificates import read_authorities
from acpc_server.access.files import Reloaded, read_public, read_secret
from acpc_server.errors import FailedPrecondition
from acpc_server.observe import Metrics

log = structlog.get_logger("acpc.access")


@dataclass(frozen=True)
class TlsFiles:
    """PEM files: the server's chain and key, and the authorities of client certificates."""

    certificate: Path
    key: Path
    client_ca: Path | None = None  # None: clients need no certificate

    @property
    def paths(self) -> list[Path]:
        """All that are given."""
        return [path for path in (self.certificate, self.key, self.client_ca) if path is not None]


@dataclass(frozen=True)
class TlsState:
    """One state of the files."""

    configuration: grpc.ServerCertificateConfiguration
    authorities: Sequence[x509.Certificate]


class ServerTls:
    """Credentials of a port whose files may change while it listens.

    Open connections keep the certificates they were made with; new ones get the new.
    FailedPrecondition: a file cannot be used, or certificate and key are no pair.
    """

    def __init__(self, files: TlsFiles, metrics: Metrics) -> None:
        self._requires_client = files.client_ca is not None
        self.state = Reloaded("tls", lambda: _load(files, metrics), lambda _: files.paths, metrics)
        self._given = self.state.value
        self._lock = threading.Lock()

    def credentials(self) -> grpc.ServerCredentials:
        """Return credentials for ``add_secure_port``; with a client authority they ask for one."""
        return grpc.dynamic_ssl_server_credentials(
            self._given.configuration,
            self._changed,  # type: ignore[arg-type]  # None is allowed, the stubs do not know
            self._requires_client,
        )

    def _changed(self) -> grpc.ServerCertificateConfiguration | None:
        """Return what to use from this connection on, None for the same. Called by gRPC."""
        with self._lock:
            if self._given is self.state.value:
                return None
            self._given = self.state.value
            return self._given.configuration


def _load(files: TlsFiles, metrics: Metrics) -> TlsState:
    chain, key = read_public(files.certificate), read_secret(files.key)
    try:
        own = x509.load_pem_x509_certificates(chain)[0]
    except ValueError as error:
        raise FailedPrecondition(f"{files.certificate}: not a PEM certificate ({error})") from error
    try:
        public = load_pem_private_key(key, password=None).public_key()
    except (ValueError, TypeError, UnsupportedAlgorithm) as error:
        raise FailedPrecondition(
            f"{files.key}: not a PEM private key without password ({error})"
        ) from error
    form = Encoding.DER, PublicFormat.SubjectPublicKeyInfo
    if public.public_bytes(*form) != own.public_key().public_bytes(*form):
        raise FailedPrecondition(
            f"{files.key} is not the key of the first certificate in {files.certificate}; give "
            "the two that belong together"
        )
    if own.not_valid_after_utc <= datetime.now(UTC):
        log.warning("certificate_expired", at=own.not_valid_after_utc.isoformat())
    authorities = read_authorities(files.client_ca) if files.client_ca else []
    roots = read_public(files.client_ca) if files.client_ca else None
    metrics.certificate_expiry.labels("server").set(own.not_valid_after_utc.timestamp())
    return TlsState(grpc.ssl_server_certificate_configuration([(key, chain)], roots), authorities)


def is_local(host: str) -> bool:
    """Whether only programs of this host can reach an address: loopback or a Unix socket.

    A name counts when every address it has is loopback; one without addresses does not.
    """
    if host.startswith(("unix:", "unix-abstract:")):
        return True
    bare = host.removeprefix("[").removesuffix("]")
    try:
        return _is_loopback(bare)
    except ValueError:
        pass
    try:
        found = {str(entry[4][0]) for entry in socket.getaddrinfo(bare, None)} if bare else set()
    except (OSError, UnicodeError):
        return False
    return bool(found) and all(_is_loopback(address) for address in found)


def _is_loopback(address: str) -> bool:
    parsed = ipaddress.ip_address(address.partition("%")[0])
    return (getattr(parsed, "ipv4_mapped", None) or parsed).is_loopback


def require_guarded(host: str, *, authenticated: bool, encrypted: bool, insecure: bool) -> None:
    """Raise FailedPrecondition for a server that anyone on a network could use or overhear.

    ``insecure``: its owner accepts the risk.
    """
    if insecure or is_local(host) or (authenticated and encrypted):
        return
    if not authenticated:
        raise FailedPrecondition(
            f"--host {host} can be reached from other machines, and no caller would have to say "
            "who it is. Either listen on this machine alone (--host 127.0.0.1), or set access up "
            "(--keys-file, --access-file or --tls-client-ca, with --tls-certificate and "
            "--tls-key; docs/access.md shows how in five minutes), or accept that everyone who "
            "reaches the port may do everything (--insecure)",
            reason="UNGUARDED",
        )
    raise FailedPrecondition(
        f"--host {host} can be reached from other machines, and callers would send keys and "
        "tokens in the clear. Either give --tls-certificate and --tls-key, or listen on this "
        "machine alone (--host 127.0.0.1) behind something that speaks TLS, or accept it "
        "(--insecure)",
        reason="UNGUARDED",
    )
