"""Channel options and transport security, the same for the sync and the asyncio channel."""

from __future__ import annotations

import logging
import stat
from dataclasses import dataclass
from pathlib import Path

import grpc

from acpc_client.errors import ArgumentError

MESSAGE_LIMIT_BYTES = 64 * 1024 * 1024

CHANNEL_OPTIONS: tuple[tuple[str, int | str], ...] = (
    ("grpc.max_send_message_length", MESSAGE_LIMIT_BYTES),
    ("grpc.max_receive_message_length", MESSAGE_LIMIT_BYTES),
    # A process that is frozen still has its connections: calls leave it after 15 s. The server
    # takes any number of pings.
    ("grpc.keepalive_time_ms", 10_000),
    ("grpc.keepalive_timeout_ms", 5_000),
    ("grpc.http2.max_pings_without_data", 0),
    # A connection that is not answered may have come to a frozen process of several.
    ("grpc.min_reconnect_backoff_ms", 5_000),
    # Servers count calls by the family of the library that makes them.
    ("grpc.primary_user_agent", "acpc-client"),
    # A target may name several servers: calls go round them, and past those that are away. Health
    # is not watched: a stopping server still answers, and one that does not is left by a retry.
    ("grpc.lb_policy_name", "round_robin"),
    # Our own backoff decides when to try; the channel must be ready to reconnect by then.
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 2_000),
)
_log = logging.getLogger("acpc_client")


@dataclass(frozen=True)
class Tls:
    """Transport security.

    Attributes:
        ca_file: PEM file of the certificate authority; None: the system's.
        certificate_file: PEM file of the client's certificate, for mutual TLS.
        key_file: PEM file of the client's key, for mutual TLS.
        server_name: Name in the server's certificate, where the target is made of addresses.
    """

    ca_file: str | Path | None = None
    certificate_file: str | Path | None = None
    key_file: str | Path | None = None
    server_name: str | None = None

    def credentials(self) -> grpc.ChannelCredentials:
        """The files as channel credentials.

        Raises:
            ArgumentError: A file cannot be read, or only one of certificate and key is given.
        """
        if (self.certificate_file is None) != (self.key_file is None):
            raise ArgumentError("tls", "mutual TLS needs both certificate_file and key_file")
        key = _read(self.key_file, "tls.key_file")
        if self.key_file is not None and Path(self.key_file).stat().st_mode & stat.S_IROTH:
            _log.warning(f"{self.key_file}: everyone on this host can read this key; chmod 600")
        return grpc.ssl_channel_credentials(
            root_certificates=_read(self.ca_file, "tls.ca_file"),
            private_key=key,
            certificate_chain=_read(self.certificate_file, "tls.certificate_file"),
        )


def _read(path: str | Path | None, name: str) -> bytes | None:
    try:
        return None if path is None else Path(path).read_bytes()
    except OSError as error:
        raise ArgumentError(name, f"cannot read {path}: {error.strerror}") from error
