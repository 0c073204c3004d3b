"""Secures calls: certificates of both sides, and a token on every call."""

from __future__ import annotations

import ipaddress
import os
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypedDict

from acpc_client.errors import ArgumentError
from acpc_client.retries import OnAway, RetryPolicy
from acpc_client.transport.channel import Tls

Token = str | Path | Callable[[], str]
"""A bearer token or an API key; a file of one, read again when it changes; or what gives one."""

LAST_PORT = 65535
_TARGET = re.compile(r"(?:(?:dns|ipv4|ipv6):)?(?://([^/]*)/)?(.*)")
_NO_SERVER = re.compile(
    r"(?:(?:dns|unix|unix-abstract|ipv4|ipv6):)?(?:///)?(?::\d+)?\Z|https?:|[\s\S]*[\s\ud800-\udfff]"
)


class Access(TypedDict, total=False):
    """How a client proves who it is; defaults in brackets.

    Attributes:
        tls: Transport security [none: plain text].
        token: Sent with every call: a bearer token or an API key, a ``Path`` of a file with one,
            which is read again when it changes, or a function that gives one [none].
        insecure: Send the token in plain text to another host, too [False].
    """

    tls: Tls | None
    token: Token | None
    insecure: bool


class ClientOptions(Access, total=False):
    """Options of a client, those of ``Access`` included; defaults in brackets.

    Attributes:
        timeout: Deadline in seconds of every call that names none [each method's own].
        retry: When a call is tried again [5 attempts within about 1.5 s].
        patience: Seconds that submitting and following jobs outlast a server that is away; 0: they
            fail at once [600, and 10 until the server has answered for the first time].
        on_away: Told why the server is away in an error whose message is one line, and None once
            it is back [a warning in the log ``acpc_client``, which goes to stderr].
    """

    timeout: float | None
    retry: RetryPolicy | None
    patience: float | None
    on_away: OnAway | None


def make_access(
    *,
    tls_ca: str | Path | None = None,
    tls_name: str | None = None,
    client_certificate: str | Path | None = None,
    client_key: str | Path | None = None,
    token_file: str | Path | None = None,
    api_key: str | None = None,
) -> Access:
    """The access that plain values mean, named as the flags of ``acpc`` are."""
    given = Access()
    if tls_ca or tls_name or client_certificate or client_key:
        given["tls"] = Tls(tls_ca, client_certificate, client_key, tls_name)
    if token_file or api_key:
        given["token"] = Path(token_file) if token_file else api_key
    return given


def access_from_environment() -> Access:
    """The access that ``ACPC_TLS_CA``, ``ACPC_TLS_NAME``, ``ACPC_CLIENT_CERTIFICATE``,
    ``ACPC_CLIENT_KEY``, ``ACPC_TOKEN_FILE`` and ``ACPC_API_KEY`` mean, as ``acpc`` reads them.
    """  # noqa: D205 - a list
    names = make_access.__kwdefaults__ or {}
    return make_access(**{name: os.environ.get(f"ACPC_{name.upper()}") for name in names})


class Bearer:
    """The header that names the caller, made from a token that may change.

    Raises ArgumentError: A token is empty, holds what no header can carry, or cannot be read.
    """

    def __init__(self, token: Token) -> None:
        self._token = token
        self._stamp: tuple[int, int, int] | None = None
        self._header: tuple[tuple[str, str], ...] = ()
        self.header()

    def header(self) -> tuple[tuple[str, str], ...]:
        """The header as metadata of a call; costs a look at the file, if there is one."""
        if isinstance(self._token, Path):
            self._read(self._token)
        elif not isinstance(self._token, str):
            self._header = _header(self._token())
        elif not self._header:
            self._header = _header(self._token)
        return self._header

    def _read(self, path: Path) -> None:
        try:
            found = path.stat()
            stamp = (found.st_ino, found.st_mtime_ns, found.st_size)
            if stamp != self._stamp:
                self._header, self._stamp = _header(path.read_text().strip()), stamp
        except (OSError, UnicodeDecodeError) as error:
            why = getattr(error, "strerror", None) or "it is no text"
            raise ArgumentError("token", f"cannot read {path}: {why}") from None


def _header(token: str) -> tuple[tuple[str, str], ...]:
    # The token itself is in no message: errors are logged and shown.
    if not (isinstance(token, str) and re.fullmatch(r"[!-~]+", token)):
        raise ArgumentError("token", "found nothing, or what no header can carry; wanted one word")
    return (("authorization", f"Bearer {token}"),)


def bearer(target: str, options: Access) -> Bearer | None:
    """Makes what puts an option's token on calls to a target; None without a token.

    Raises ArgumentError: The token cannot be had, or would travel in plain text to another host.
    """
    token = options.get("token")
    if token is None:
        return None
    if not (options.get("tls") or options.get("insecure") or is_local(target)):
        raise ArgumentError(
            "token",
            f"would travel in plain text to {target}; turn TLS on (tls=Tls(...), ACPC_TLS_CA), or "
            "say insecure=True (ACPC_INSECURE) where nobody listens in",
        )
    return Bearer(token)


def resolved(target: str | Sequence[str]) -> str:
    """A target for gRPC from one, or from several addresses with commas or as a sequence.

    Raises ArgumentError: There is none, one that names no server, or several of which one is no
    address with a port.
    """
    several = target.split(",") if isinstance(target, str) else target
    if not (isinstance(several, Sequence) and all(isinstance(one, str) for one in several)):
        raise ArgumentError("target", f"found {target!r}, wanted host:port, or several of them")
    if len(several) < 2 or several[0].startswith(("ipv4:", "ipv6:", "unix:")):
        one = ",".join(several)
        port = re.search(r"(?<!:):(\d+)$", one)
        if _NO_SERVER.match(one) or (port and int(port[1]) > LAST_PORT):
            raise ArgumentError("target", f"found {one or 'nothing'}, wanted host:port")
        return one
    versions = {_version(address) for address in several}
    if len(versions) > 1 or versions == {0}:
        raise ArgumentError(
            "target",
            f"found {', '.join(several)}; several servers are named by IP addresses of one kind, "
            "each with its port, or by one name that has all of them: dns:///name:port",
        )
    return f"ipv{versions.pop()}:{','.join(several)}"


def _version(address: str) -> int:
    """4 or 6 of an IP address with a port, 0 of anything else."""
    found = re.fullmatch(r"(?:\[([^\]]*)\]|([^:]*)):(\d{1,5})", address)
    try:
        return ipaddress.ip_address(found[1] or found[2]).version if found else 0
    except ValueError:
        return 0


def is_socket(target: str) -> bool:
    """Whether a target is a Unix socket."""
    return target.startswith(("unix:", "unix-abstract:"))


def is_local(target: str) -> bool:
    """Whether every address of a target is on this host."""
    if is_socket(target):
        return True
    names_by, rest = _TARGET.fullmatch(target).groups()  # type: ignore[union-attr]
    # Another host's name server may call any address localhost.
    return not names_by and all(map(_is_loopback, rest.split(",")))


def _is_loopback(address: str) -> bool:
    bracketed = re.fullmatch(r"\[(.*)\](?::\d+)?", address)
    host = bracketed[1] if bracketed else re.sub(r"^([^:]*):\w+$", r"\1", address)
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
