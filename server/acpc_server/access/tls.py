"""The port: its certificate, and where it may listen without one."""

import ipaddress
import socket
import ssl
from dataclasses import dataclass
from pathlib import Path

import grpc

from acpc_server.access.files import read_public, read_secret
from acpc_server.errors import FailedPrecondition


@dataclass(frozen=True)
class TlsFiles:
    """PEM files: the server's chain and key, and the authorities of client certificates."""

    certificate: Path
    key: Path
    client_ca: Path | None = None  # None: clients need no certificate

    @property
    def paths(self) -> list[Path]:
        """All that are given."""
        return [path for path in (self.certificate, self.key, self.client_ca) if path]

    def load(self) -> grpc.ServerCertificateConfiguration:
        """Read them; FailedPrecondition when one cannot be used, or the two are no pair."""
        chain, key = read_public(self.certificate), read_secret(self.key)
        roots = read_public(self.client_ca) if self.client_ca else None
        tried = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)  # gRPC says nothing of unusable files
        try:
            tried.load_cert_chain(self.certificate, self.key, password="")
        except (ssl.SSLError, OSError) as error:
            raise FailedPrecondition(
                f"{self.certificate} and {self.key} are not a PEM certificate and its key without "
                f"a password ({error}); give the two that belong together"
            ) from error
        try:
            tried.load_verify_locations(self.client_ca or self.certificate)
        except (ssl.SSLError, OSError) as error:
            raise FailedPrecondition(
                f"{self.client_ca}: no PEM certificate of an authority ({error})"
            ) from error
        return grpc.ssl_server_certificate_configuration([(key, chain)], roots)


def is_local(host: str) -> bool:
    """Whether only programs of this host can reach an address: loopback or a Unix socket.

    A name counts when every address it has is loopback; one without addresses does not.
    """
    if host.startswith("unix:"):
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
            "who it is. Listen on this machine alone (--host 127.0.0.1), or set access up "
            "(docs/access.md: --keys-file or --tls-client-ca, --tls-certificate and --tls-key), "
            "or accept that everyone who reaches the port may do everything (--insecure)",
            reason="UNGUARDED",
        )
    raise FailedPrecondition(
        f"--host {host} can be reached from other machines, and callers would send keys in the "
        "clear. Give --tls-certificate and --tls-key, or listen on this machine alone (--host "
        "127.0.0.1) behind something that speaks TLS, or accept it (--insecure)",
        reason="UNGUARDED",
    )
