"""The port: its certificate, and where it may listen without one."""

import ipaddress
import socket
import ssl
from dataclasses import dataclass
from pathlib import Path

import grpc

from acpc_server.access.files import read_secret
from acpc_server.errors import FailedPrecondition


@dataclass(frozen=True)
class TlsFiles:
    """PEM files: the server's chain and key, and the authorities of client certificates."""

    certificate: Path
    key: Path
    client_ca: Path | None = None  # None: clients need no certificate

    def load(self) -> grpc.ServerCertificateConfiguration:
        """Read them; FailedPrecondition when one cannot be used, or the two are no pair."""
        key = read_secret(self.key)
        tried = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)  # gRPC says nothing of unusable files
        what = f"{self.certificate} and {self.key} are not a certificate and its key"
        try:
            chain = self.certificate.read_bytes()
            tried.load_cert_chain(self.certificate, self.key, password="")
            what = f"{self.client_ca} has no certificate of an authority"
            roots = self.client_ca.read_bytes() if self.client_ca else None
            tried.load_verify_locations(self.client_ca or self.certificate)
        except (OSError, ValueError) as error:  # an SSLError is the former
            raise FailedPrecondition(f"{what}, as PEM without a password ({error})") from error
        return grpc.ssl_server_certificate_configuration([(key, chain)], roots)


def is_local(host: str) -> bool:
    """Whether only programs of this host can reach an address: loopback or a Unix socket.

    A name counts when every address it has is loopback; one without addresses does not.
    """
    if host.startswith("unix:"):
        return True
    bare = host.removeprefix("[").removesuffix("]")
    try:
        found = {str(entry[4][0]) for entry in socket.getaddrinfo(bare, None)} if bare else set()
    except (OSError, UnicodeError):
        return False
    addresses = [ipaddress.ip_address(address.partition("%")[0]) for address in found]
    plain = [getattr(address, "ipv4_mapped", None) or address for address in addresses]
    return bool(plain) and all(address.is_loopback for address in plain)


def require_guarded(host: str, *, authenticated: bool, encrypted: bool, insecure: bool) -> None:
    """Raise FailedPrecondition for a server that anyone on a network could use or overhear.

    ``insecure``: its owner accepts the risk.
    """
    if insecure or is_local(host) or (authenticated and encrypted):
        return
    why, way = "no caller would have to say who it is", "--keys-file or --tls-client-ca"
    if authenticated:
        why, way = "keys would be sent in the clear", "--tls-certificate and --tls-key"
    raise FailedPrecondition(
        f"--host {host} can be reached from other machines, and {why}: set access up ({way}; "
        "docs/connecting.md), listen on this machine alone (--host 127.0.0.1), or accept that "
        "whoever reaches the port may do everything, or overhear it (--insecure)",
        reason="UNGUARDED",
    )
