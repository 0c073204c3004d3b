"""Whether a server may listen where it was told to, with the access control it was given."""

from __future__ import annotations

import ipaddress
import socket

from acpc_server.errors import FailedPrecondition


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
    mapped = getattr(parsed, "ipv4_mapped", None)
    return (mapped or parsed).is_loopback


def require_guarded(host: str, *, authenticated: bool, encrypted: bool, insecure: bool) -> None:
    """Raise FailedPrecondition for a server that anyone on a network could use or overhear.

    Args:
        host: Where it is to listen.
        authenticated: Whether callers must say who they are.
        encrypted: Whether it speaks TLS.
        insecure: Whether its owner accepts the risk.
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
