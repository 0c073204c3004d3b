"""Finds what is wrong with transport security, where gRPC reports only that nobody answers."""

from __future__ import annotations

import re
import socket
import ssl
from contextlib import suppress

from acpc_client.transport.channel import Tls

PROBE_SECONDS = 1.0
_ADDRESS = re.compile(r"(?:\w+:)?(?://[^/]*/)?(?:\[([^\]]*)\]|([^:,]+)):(\d+)(?:,.*)?")
# OpenSSL's X509_V_ERR_HOSTNAME_MISMATCH and X509_V_ERR_IP_ADDRESS_MISMATCH; not yet valid, expired.
_OTHER_NAME, _OTHER_TIME = (62, 64), (9, 10)


def tls_fault(target: str, tls: Tls | None) -> str:
    """Look at the first address of a target, and say in a sentence how TLS fails there; else ''.

    Takes two seconds at most. What gRPC says of it changes with its releases.
    """
    found = _ADDRESS.fullmatch(target)
    if found is None or target.startswith("unix"):
        return ""
    host, port = found[1] or found[2], int(found[3])
    try:
        return _plain(host, port) if tls is None else _secure(host, port, tls)
    except OSError:
        return ""


class _Dropped(OSError):
    """A server that speaks HTTP/2 says something first; this one has hung up."""


def _plain(host: str, port: int) -> str:
    try:
        _shake(host, port, _context(None))
    except _Dropped:
        pass
    except ssl.SSLError as error:
        if "ALERT" not in (error.reason or ""):
            return ""
    return "this port speaks TLS: set ACPC_TLS_CA to the file of its authority"


def _secure(host: str, port: int, tls: Tls) -> str:
    name, context = tls.server_name or host, _context(tls)
    try:
        _shake(host, port, context, name)
    except ssl.SSLCertVerificationError as error:
        if error.verify_code in _OTHER_NAME:
            context.check_hostname = False
            names = ", ".join(value for _, value in _shake(host, port, context, name))
            return (
                f"the server's certificate is for {names or 'no host'}, not for {name}: name what "
                "it is for with ACPC_TLS_NAME"
            )
        if error.verify_code in _OTHER_TIME:
            return f"the server's certificate does not count now ({error.verify_message})"
        whose = tls.ca_file or "the system's authorities"
        return (
            f"the server's certificate is not signed by {whose}: set ACPC_TLS_CA to "
            "the file of the authority that signed it"
        )
    except (_Dropped, ssl.SSLError) as error:
        if isinstance(error, _Dropped) or "ALERT" in (error.reason or ""):
            return (
                "the server wants a client certificate that its own authority has signed: set "
                "ACPC_CLIENT_CERTIFICATE and ACPC_CLIENT_KEY"
            )
        return (
            "this port speaks plain text, not TLS: leave ACPC_TLS_CA and the other "
            "files of TLS out, or give the server --tls-certificate and --tls-key"
        )
    return ""


def _context(tls: Tls | None) -> ssl.SSLContext:
    """Check as gRPC does: a certificate may vouch for itself, and the older form will do."""
    if tls is None:  # reading the system's authorities takes longer than the handshake
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    else:
        ca_file = None if tls.ca_file is None else str(tls.ca_file)
        context = ssl.create_default_context(cafile=ca_file)
    context.set_alpn_protocols(["h2"])
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT
    if tls is not None and tls.certificate_file is not None:
        context.load_cert_chain(str(tls.certificate_file), str(tls.key_file))
    return context


def _shake(
    host: str, port: int, context: ssl.SSLContext, name: str | None = None
) -> tuple[tuple[str, str], ...]:
    """Shake hands; returns the names in the server's certificate.

    Raises _Dropped: The server shook hands and then hung up.
    """
    with (
        socket.create_connection((host, port), PROBE_SECONDS) as plain,
        context.wrap_socket(plain, server_hostname=name) as secured,
    ):
        certificate = secured.getpeercert() or {}
        with suppress(TimeoutError):
            if not secured.recv(1):  # since TLS 1.3 a client's certificate is refused only here
                raise _Dropped
    return certificate.get("subjectAltName", ())  # type: ignore[return-value]
