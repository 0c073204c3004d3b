"""Finds what is wrong with transport security, where gRPC reports only that nobody answers."""

from __future__ import annotations

import re
import socket
import ssl

from acpc_client.transport.channel import Tls

PROBE_SECONDS = 1.0
_ADDRESS = re.compile(r"(?:\w+:)?(?://[^/]*/)?(?:\[([^\]]*)\]|([^:,]+)):(\d+)(?:,.*)?")
_OTHER_NAME = (62, 64)  # OpenSSL's X509_V_ERR_HOSTNAME_MISMATCH, X509_V_ERR_IP_ADDRESS_MISMATCH
_SPEAKS_TLS = "this port speaks TLS: set ACPC_TLS_CA to the file of its authority"
_SPEAKS_NONE = (
    "this port speaks plain text, not TLS: leave ACPC_TLS_CA and the other files of TLS "
    "out, or give the server --tls-certificate and --tls-key"
)
_WANTS_ONE = (
    "the server wants a client certificate that its own authority has signed: set "
    "ACPC_CLIENT_CERTIFICATE and ACPC_CLIENT_KEY"
)


def tls_fault(target: str, tls: Tls | None) -> str:
    """Look at the first address of a target, and say in a sentence how TLS fails there; else ''.

    Takes a second or two at most. What gRPC says of it changes with its releases.
    """
    found = _ADDRESS.fullmatch(target)
    if found is None or target.startswith("unix"):
        return ""
    host, port = found[1] or found[2], int(found[3])
    name = host if tls is None else tls.server_name or host
    spoke: object = tls is None
    try:
        with (
            socket.create_connection((host, port), PROBE_SECONDS) as plain,
            _context(tls).wrap_socket(plain, server_hostname=name) as secured,
        ):
            # A server of HTTP/2 speaks first. Since TLS 1.3 a client's certificate is refused here.
            try:
                spoke = spoke or secured.recv(1)
            except TimeoutError:
                spoke = True
    except ssl.SSLCertVerificationError as error:
        variable = "NAME" if error.verify_code in _OTHER_NAME else "CA"
        why = error.verify_message.rstrip(".")
        return f"the server's certificate does not count here ({why}): set ACPC_TLS_{variable}"
    except ssl.SSLError as error:
        alert = "ALERT" in (error.reason or "")
        told = (_SPEAKS_TLS, "") if tls is None else (_WANTS_ONE, _SPEAKS_NONE)
        return told[not alert]
    except OSError:
        return ""
    return _SPEAKS_TLS if tls is None else _WANTS_ONE * (not spoke)


def _context(tls: Tls | None) -> ssl.SSLContext:
    """Check as gRPC does: a certificate may vouch for itself, and the older form will do."""
    if tls is None:  # reading the system's authorities takes longer than the handshake
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    else:
        context = ssl.create_default_context(cafile=tls.ca_file and str(tls.ca_file))
    context.set_alpn_protocols(["h2"])
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT
    if tls is not None and tls.certificate_file is not None:
        context.load_cert_chain(str(tls.certificate_file), str(tls.key_file))
    return context
