"""Says of every call who makes it; the face of access control."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import grpc

from acpc_server.access.access_file import AccessFile, IssuerEntry, read_access_file
from acpc_server.access.callers import Callers
from acpc_server.access.certificates import PeerCertificates, Revocations, read_revocations
from acpc_server.access.failures import Failures
from acpc_server.access.keys import PREFIX, KeyRing, read_keys
from acpc_server.access.principal import ANYONE, LOCAL, Principal
from acpc_server.access.reloading import Reloaded, Reloader
from acpc_server.access.roles import needed_role
from acpc_server.access.signing_keys import FetchedKeys, KeySource, read_jwks, read_pem_key
from acpc_server.access.tls import ServerTls, TlsFiles
from acpc_server.access.tokens import (
    Issuer,
    TokenVerifier,
    bad_credentials,
    expired_credentials,
)
from acpc_server.errors import AcpcError, FailedPrecondition, Unauthenticated
from acpc_server.observe import Metrics
from acpc_server.scheduling import NO_QUOTA, Quota

AUTHORIZATION = "authorization"
Metadata = Iterable[tuple[str, str | bytes]]
AuthContext = Mapping[str, Sequence[bytes]]


@dataclass(frozen=True)
class AccessOptions:
    """What access is decided by; without any of it every caller may do everything.

    Attributes:
        access_file: Tenants, callers, issuers of tokens, quotas.
        keys_file: API keys.
        tls: The server's certificate, and the authority of its clients'.
        revocations: Revocation list of the clients' authority.
        quota: What each caller may use, unless the access file says otherwise.
    """

    access_file: Path | None = None
    keys_file: Path | None = None
    tls: TlsFiles | None = None
    revocations: Path | None = None
    quota: Quota = NO_QUOTA

    @property
    def authenticated(self) -> bool:
        """Whether callers must say who they are."""
        by_certificate = self.tls is not None and self.tls.client_ca is not None
        return by_certificate or self.access_file is not None or self.keys_file is not None

    @property
    def encrypted(self) -> bool:
        """Whether the port speaks TLS."""
        return self.tls is not None


@dataclass(frozen=True)
class _Rules:
    """One state of the access file and of the keys it names."""

    content: AccessFile
    callers: Callers
    tokens: TokenVerifier
    files: tuple[Path, ...]


class AccessControl:
    """Who calls.

    Its files are read when it is made, and again when they change or :meth:`reload` is called; one
    that cannot be used then leaves what was read before.

    Raises:
        FailedPrecondition: A file cannot be used.
    """

    def __init__(
        self, options: AccessOptions, metrics: Metrics, clock: Callable[[], float] = time.time
    ) -> None:
        self._options = options
        self._clock = clock
        self._failures = Failures(metrics)
        self._reloader = Reloader()
        self._fetched: dict[str, FetchedKeys] = {}
        self._certificates = PeerCertificates(clock)
        self._tls = self._watched_tls(metrics)
        self._revocations = self._watched_revocations(metrics)
        self._keys = self._watched_keys(metrics)
        self._rules: Reloaded[_Rules] = Reloaded(
            "access", self._read_rules, lambda rules: rules.files, metrics
        )
        self._reloader.add(self._rules)
        self._require_callers()

    def start(self) -> None:
        """Begin to look after changed files."""
        self._reloader.start()

    def reload(self) -> None:
        """Read every file again. Safe in a signal handler."""
        self._reloader.poke()

    def stop(self) -> None:
        """Look after nothing any more."""
        self._reloader.stop()
        for source in self._fetched.values():
            source.close()

    def port_credentials(self) -> grpc.ServerCredentials | None:
        """Credentials of the port; None when it speaks no TLS."""
        return self._tls.credentials() if self._tls else None

    @property
    def by_certificate_alone(self) -> bool:
        """Whether callers must say who they are, and only a certificate can."""
        options = self._options
        by_header = options.keys_file is not None or bool(self._rules.value.content.issuers)
        return options.authenticated and not by_header

    def identify(
        self, method: str, metadata: Metadata, auth_context: AuthContext, peer: str = ""
    ) -> Principal:
        """Who makes a call. Takes microseconds and never waits.

        Args:
            method: Full name, ``/package.Service/Method``.
            metadata: The call's metadata.
            auth_context: What TLS knows of the connection.
            peer: Where it comes from: for the log, and to bound failures.

        Raises:
            Unauthenticated: No credentials, or some that do not count.
            Unavailable: The keys to check a token with could not be fetched yet.
            ResourceExhausted: Too many tokens from the peer's address have just failed.
        """
        if not self._options.authenticated:
            return LOCAL
        if needed_role(method) is None:
            return ANYONE
        try:
            return self._authenticate(metadata, auth_context, peer)
        except AcpcError as error:
            self._failures.failed(error.reason, method, peer)
            raise

    def _authenticate(self, metadata: Metadata, auth_context: AuthContext, peer: str) -> Principal:
        callers = self._rules.value.callers
        revocations = self._revocations.value if self._revocations else None
        # A revoked certificate does not carry a token either.
        names = self._certificates.names(auth_context, revocations)
        given = [value for key, value in metadata if key == AUTHORIZATION]
        if not given:
            if names is None:
                raise Unauthenticated(
                    "the call has no credentials; send the header authorization: Bearer with an "
                    "API key or a token",
                    reason="NO_CREDENTIALS",
                )
            return callers.of_certificate(names)
        token = _bearer(given)
        if token.startswith(PREFIX):
            return self._of_key(token, callers)
        return callers.of_token(self._rules.value.tokens.verify(token, peer))

    def _of_key(self, token: str, callers: Callers) -> Principal:
        key = self._keys.value.find(token) if self._keys else None
        if key is None:
            # The same for an id that never was, one that was revoked, and a wrong secret.
            raise bad_credentials("the API key is not valid")
        if key.expires is not None and self._clock() >= key.expires.timestamp():
            raise expired_credentials("the API key")
        return callers.of_key(key)

    def _watched_tls(self, metrics: Metrics) -> ServerTls | None:
        if self._options.tls is None:
            return None
        tls = ServerTls(self._options.tls, metrics)
        self._reloader.add(tls.state)
        return tls

    def _watched_revocations(self, metrics: Metrics) -> Reloaded[Revocations] | None:
        path, tls = self._options.revocations, self._tls
        if path is None or tls is None:
            return None
        found = Reloaded(
            "revocations",
            lambda: read_revocations(path, tls.state.value.authorities),
            lambda _: [path],
            metrics,
        )
        self._reloader.add(found)
        return found

    def _watched_keys(self, metrics: Metrics) -> Reloaded[KeyRing] | None:
        path = self._options.keys_file
        if path is None:
            return None
        found = Reloaded("keys", partial(read_keys, path), lambda _: [path], metrics)
        self._reloader.add(found)
        return found

    def _read_rules(self) -> _Rules:
        path = self._options.access_file
        content = AccessFile() if path is None else read_access_file(path)
        folder = Path() if path is None else path.parent
        files = [] if path is None else [path]
        issuers = []
        for entry in content.issuers:
            key_path = entry.jwks_file or entry.key_file
            files += [] if key_path is None else [folder / key_path]
            issuers.append(Issuer(entry, self._source(entry, folder)))
        callers = Callers(content, self._options.quota)
        verifier = TokenVerifier(issuers, self._clock)
        return _Rules(content, callers, verifier, tuple(files))

    def _source(self, entry: IssuerEntry, folder: Path) -> KeySource:
        """Where an issuer's keys are; what is fetched goes on when the file is read again."""
        if entry.jwks_file is not None:
            return read_jwks(folder / entry.jwks_file)
        if entry.key_file is not None:
            return read_pem_key(folder / entry.key_file)
        if entry.jwks_url not in self._fetched:
            self._fetched[entry.jwks_url] = FetchedKeys(entry.jwks_url)
        return self._fetched[entry.jwks_url]

    def _require_callers(self) -> None:
        """Raise FailedPrecondition when nobody could ever be admitted."""
        options, content = self._options, self._rules.value.content
        if not self.by_certificate_alone:
            return
        if options.tls is None or options.tls.client_ca is None:
            raise FailedPrecondition(
                f"{options.access_file}: nobody could call: it has no issuers; add one, or give "
                "--keys-file or --tls-client-ca"
            )
        if not any(p.spiffe or p.dns or p.common_name for p in content.principals):
            raise FailedPrecondition(
                "--tls-client-ca says whose certificates are real, not what they may do; list "
                "principals with spiffe, dns or common_name in --access-file"
            )


def _bearer(given: Sequence[str | bytes]) -> str:
    value = given[0]
    scheme, _, token = value.partition(" ") if isinstance(value, str) else ("", "", "")
    token = token.strip()
    if len(given) > 1 or scheme.lower() != "bearer" or not token or not token.isascii():
        raise bad_credentials("the header authorization is not one line of the form Bearer <token>")
    return token
