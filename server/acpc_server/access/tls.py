"""The server's certificate, key and client authority, replaced without a restart."""

from __future__ import annotations

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
from acpc_server.access.files import read_public, read_secret
from acpc_server.access.reloading import Reloaded
from acpc_server.errors import FailedPrecondition
from acpc_server.observe import Metrics

log = structlog.get_logger("acpc.access")


@dataclass(frozen=True)
class TlsFiles:
    """Paths of PEM files.

    Attributes:
        certificate: The server's certificate chain, its own first.
        key: Its private key.
        client_ca: Authorities of client certificates; None when clients need none.
    """

    certificate: Path
    key: Path
    client_ca: Path | None = None

    @property
    def paths(self) -> list[Path]:
        """All that are given."""
        return [path for path in (self.certificate, self.key, self.client_ca) if path is not None]


@dataclass(frozen=True)
class TlsState:
    """One state of the files: what gRPC is given, and the authorities in it."""

    configuration: grpc.ServerCertificateConfiguration
    authorities: Sequence[x509.Certificate]


class ServerTls:
    """Credentials of a port whose files may change while it listens.

    Open connections keep the certificates they were made with; new ones get the new.

    Raises:
        FailedPrecondition: A file cannot be used, or certificate and key are no pair.
    """

    def __init__(self, files: TlsFiles, metrics: Metrics) -> None:
        self._requires_client = files.client_ca is not None
        self.state = Reloaded("tls", lambda: _load(files, metrics), lambda _: files.paths, metrics)
        self._given = self.state.value
        self._lock = threading.Lock()

    def credentials(self) -> grpc.ServerCredentials:
        """Credentials for ``add_secure_port``; a client authority makes certificates required."""
        return grpc.dynamic_ssl_server_credentials(
            self._given.configuration,
            self._changed,  # type: ignore[arg-type]  # None is allowed, the stubs do not know
            self._requires_client,
        )

    def _changed(self) -> grpc.ServerCertificateConfiguration | None:
        """What to use from this connection on; None when nothing changed. Called by gRPC."""
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
    configuration = grpc.ssl_server_certificate_configuration([(key, chain)], roots)
    return TlsState(configuration, authorities)
