"""Decides who makes a call: the owner of an API key, or of a client certificate."""

import time
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path

import grpc
import structlog

from acpc_server.access.files import Reloaded
from acpc_server.access.keys import KeyFile, read_keys
from acpc_server.access.roles import ANYONE, LOCAL, Principal, Role, needed_role
from acpc_server.access.tls import TlsFiles
from acpc_server.errors import Unauthenticated
from acpc_server.observe import Metrics

log = structlog.get_logger("acpc.access")
# What names a certificate, the first of these that it has, as gRPC calls them.
CERTIFICATE_NAMES = ("peer_spiffe_id", "peer_dns", "x509_common_name")
# Lines of rejected callers are at least so far apart.
LOG_SECONDS = 1.0
Metadata = Iterable[tuple[str, str | bytes]]
AuthContext = Mapping[str, Sequence[bytes]]


class AccessControl:
    """Identifies callers; without a key file and an authority, every caller may do everything.

    Its files are read when it is made, which raises FailedPrecondition, and again when they change;
    one that cannot be used then leaves what was read before.
    """

    def __init__(
        self, metrics: Metrics, *, keys_file: Path | None = None, tls: TlsFiles | None = None
    ) -> None:
        self._denied = metrics.access_denied
        self._next_line, self._unlogged = 0.0, 0
        self._keys: Reloaded[KeyFile] | None = None
        self._tls: Reloaded[grpc.ServerCertificateConfiguration] | None = None
        if keys_file is not None:
            self._keys = Reloaded("keys", [keys_file], partial(read_keys, keys_file))
        if tls is not None:
            paths = [path for path in (tls.certificate, tls.key, tls.client_ca) if path]
            self._tls = Reloaded("tls", paths, tls.load)
        self._certified = tls is not None and tls.client_ca is not None
        self.authenticated = self._certified or keys_file is not None
        """Whether callers must say who they are."""

    def port_credentials(self) -> grpc.ServerCredentials | None:
        """Return the credentials of the port; None when it speaks no TLS.

        Open connections keep the certificates they were made with; new ones get those read last.
        """
        if (state := self._tls) is None:
            return None
        shown = state.value

        def changed() -> grpc.ServerCertificateConfiguration | None:
            nonlocal shown
            # gRPC, which calls this by one thread at a time, takes each for good: once.
            given, shown = shown, state.value
            return None if given is shown else shown

        return grpc.dynamic_ssl_server_credentials(shown, changed, self._certified)  # type: ignore[arg-type]

    def identify(
        self, method: str, metadata: Metadata, auth_context: AuthContext, peer: str = ""
    ) -> Principal:
        """Identify who calls ``/package.Service/Method``; takes microseconds and never waits.

        ``auth_context`` is what TLS knows of the connection; ``peer`` is for the log. A key counts
        before a certificate. Raises Unauthenticated: There are no credentials that count.
        """
        if not self.authenticated:
            return LOCAL
        if needed_role(method) is None:
            return ANYONE
        try:
            given = [value for key, value in metadata if key == "authorization"]
            return self._of_key(given) if given else self._of_certificate(auth_context)
        except Unauthenticated as error:
            self._denied.labels(error.reason).inc()
            now, self._unlogged = time.monotonic(), self._unlogged + 1
            if now >= self._next_line:  # one a second: guesses cannot fill the disk
                facts = {"reason": error.reason, "method": method, "peer": peer}
                log.warning("denied", **facts, unlogged=self._unlogged - 1)
                self._next_line, self._unlogged = now + LOG_SECONDS, 0
            raise

    def _of_key(self, given: Sequence[str | bytes]) -> Principal:
        value = given[0]
        scheme, _, text = value.partition(" ") if isinstance(value, str) else ("", "", "")
        text = text.strip()
        if len(given) > 1 or scheme.lower() != "bearer" or not text or not text.isascii():
            raise _bad("the header authorization is not one line of the form Bearer <API key>")
        key = self._keys.value.find(text) if self._keys else None
        if key is None:
            # The same for an id that never was, one that was revoked, and a wrong secret.
            raise _bad("the API key is not valid")
        if key.over():
            raise Unauthenticated(
                "the API key has expired; get a new one", reason="EXPIRED_CREDENTIALS"
            )
        return Principal(key.name, key.role, key.id)

    def _of_certificate(self, auth_context: AuthContext) -> Principal:
        kind = next((kind for kind in CERTIFICATE_NAMES if auth_context.get(kind)), None)
        if kind is None:
            raise Unauthenticated(
                "the call has no credentials; send the header authorization: Bearer with an API "
                "key, or a client certificate that has a name",
                reason="NO_CREDENTIALS",
            )
        name = auth_context[kind][0].decode(errors="replace")
        # What an authority checks as a host's or a person's name must not pass for a SPIFFE id.
        posing = name.startswith("spiffe://") and kind != CERTIFICATE_NAMES[0]
        if posing or not name.isprintable() or len(name) > 256:
            raise _bad("the name of the client certificate cannot be a caller's")
        roles = self._keys.value.certificates if self._keys else {}
        return Principal(name, roles.get(name, Role.COMPUTE))


def _bad(problem: str) -> Unauthenticated:
    return Unauthenticated(problem, reason="BAD_CREDENTIALS")
