"""Decides who makes a call: from its credentials to the caller that the access file names."""

import re
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

import grpc

from acpc_server.access.access_file import AccessFile, IssuerEntry, PrincipalEntry, read_access_file
from acpc_server.access.certificates import CertificateNames, PeerCertificates, read_revocations
from acpc_server.access.files import Reloaded, Reloader
from acpc_server.access.key_uses import KeyUses
from acpc_server.access.keys import PREFIX, ApiKey, read_keys
from acpc_server.access.roles import ANYONE, LOCAL, Principal, Role, needed_role
from acpc_server.access.signing_keys import FetchedKeys, KeySource, read_jwks, read_pem_key
from acpc_server.access.tls import ServerTls, TlsFiles
from acpc_server.access.tokens import (
    DeniedLog,
    Issuer,
    TokenVerifier,
    VerifiedToken,
    bad_credentials,
    expired_credentials,
)
from acpc_server.errors import AcpcError, FailedPrecondition, Unauthenticated
from acpc_server.observe import Metrics
from acpc_server.scheduling import NO_QUOTA, Quota

# Callers whose quota is not looked up at each of their calls.
MAX_REMEMBERED = 4096
_SUBJECT = re.compile(r"[!-~]{1,200}")
_TENANT = re.compile(r"([a-z0-9][a-z0-9_-]{0,62})?")
AUTHORIZATION = "authorization"
Metadata = Iterable[tuple[str, str | bytes]]
AuthContext = Mapping[str, Sequence[bytes]]


@dataclass(frozen=True)
class AccessOptions:
    """Access settings; without any, every caller may do everything."""

    access_file: Path | None = None  # tenants, callers, issuers of tokens, quotas
    keys_file: Path | None = None
    key_uses: Path | None = None  # where the last use of keys is written
    tls: TlsFiles | None = None
    revocations: Path | None = None  # revocation list of the clients' authority
    quota: Quota = NO_QUOTA  # of a caller, unless the access file has another

    @property
    def authenticated(self) -> bool:
        """Whether callers must say who they are."""
        by_certificate = self.tls is not None and self.tls.client_ca is not None
        return by_certificate or self.access_file is not None or self.keys_file is not None


class Callers:
    """Names the callers of verified credentials; the access file replaces parts of ``usual``."""

    def __init__(self, content: AccessFile, usual: Quota) -> None:
        self._content = content
        self._usual = usual
        self._made = lru_cache(MAX_REMEMBERED)(self._make)
        self._claimed = lru_cache(MAX_REMEMBERED)(self._of_claims)
        entries = content.principals
        self._spiffe = {match: entry for entry in entries for match in entry.spiffe}
        self._dns = {match: entry for entry in entries for match in entry.dns}
        self._common = {match: entry for entry in entries for match in entry.common_name}
        self._jwt = {(m.issuer, m.subject): entry for entry in entries for m in entry.jwt}

    def of_key(self, key: ApiKey) -> Principal:
        """Return the caller of an API key, with the key's roles and the file's quota."""
        return self._made(key.principal, key.tenant, key.roles, credential=key.id)

    def of_certificate(self, names: CertificateNames) -> Principal:
        """Return the caller of a certificate: by SPIFFE id, then DNS name, then common name."""
        entry, serial = self._spiffe.get(names.spiffe), f"{names.serial[1]:X}"
        if entry is not None:
            return self._named(entry, serial)
        # spiffe://domain/path/* is each workload below the path, as a caller of its own.
        parent = names.spiffe
        while "/" in parent.removeprefix("spiffe://"):
            parent = parent.rpartition("/")[0]
            entry = self._spiffe.get(f"{parent}/*")
            if entry is not None:
                return self._made(names.spiffe, entry.tenant, entry.roles, entry.name, serial)
        for name in names.dns:
            if name in self._dns:
                return self._named(self._dns[name], serial)
        if names.common_name in self._common:
            return self._named(self._common[names.common_name], serial)
        raise bad_credentials("the client certificate names no principal of the access file")

    def of_token(self, token: VerifiedToken) -> Principal:
        """Return the caller of a token: by its subject, else by its claims."""
        entry = self._jwt.get((token.issuer.name, token.subject))
        return self._claimed(token) if entry is None else self._named(entry)

    def _of_claims(self, token: VerifiedToken) -> Principal:
        if not token.issuer.roles_claim:
            raise bad_credentials("the token's subject is no principal of the access file")
        if not _SUBJECT.fullmatch(token.subject):
            raise bad_credentials("the token's sub is not 1 to 200 printable characters")
        tenant = self._claimed_tenant(token)
        roles = _claimed_roles(token.claims, token.issuer)
        return self._made(f"{token.issuer.name}:{token.subject}", tenant, roles)

    def _claimed_tenant(self, token: VerifiedToken) -> str:
        if not token.issuer.tenant_claim:
            return ""
        tenant = token.claims.get(token.issuer.tenant_claim)
        # A token without the claim must not end in the tenant of those who need none.
        if not isinstance(tenant, str) or not tenant or not _TENANT.fullmatch(tenant):
            raise bad_credentials(
                f"the token's claim {token.issuer.tenant_claim} is not the name of a tenant "
                "(small letters, digits, - and _)"
            )
        if not self._content.has_tenant(tenant):
            raise bad_credentials("the token's tenant is not one of the access file")
        return tenant

    def _named(self, entry: PrincipalEntry, credential: str = "") -> Principal:
        return self._made(entry.name, entry.tenant, entry.roles, credential=credential)

    def _make(
        self, name: str, tenant: str, roles: frozenset[Role], entry: str = "", credential: str = ""
    ) -> Principal:
        quota = self._content.quota_of(entry or name, tenant, self._usual)
        return Principal(name, tenant, roles, quota, credential)


@dataclass(frozen=True)
class _Rules:
    """A state of the access file and of the keys it names."""

    content: AccessFile
    callers: Callers
    tokens: TokenVerifier
    files: tuple[Path, ...]


class AccessControl:
    """Identifies callers.

    Its files are read when it is made, which raises FailedPrecondition, and again when they change
    or :meth:`reload` is called; one that cannot be used then leaves what was read before.
    """

    def __init__(
        self, options: AccessOptions, metrics: Metrics, clock: Callable[[], float] = time.time
    ) -> None:
        self._options = options
        self._clock = clock
        self._denied = DeniedLog(metrics)
        self._reloader = Reloader()
        self._fetched: dict[str, FetchedKeys] = {}
        self._certificates = PeerCertificates(clock)
        self._tls = tls = ServerTls(options.tls, metrics) if options.tls else None
        if tls is not None:
            self._reloader.add(tls.state)

        def watched(what: str, path: Path, load: Callable[[], Any]) -> Reloaded[Any]:
            return self._reloader.add(Reloaded(what, load, lambda _: [path], metrics))

        path, keys = options.revocations, options.keys_file
        self._revocations = self._keys = None
        self._uses: KeyUses | None = None
        if path is not None and tls is not None:
            self._revocations = watched(
                "revocations", path, lambda: read_revocations(path, tls.state.value.authorities)
            )
        if keys is not None:
            self._keys = watched("keys", keys, partial(read_keys, keys))
            if options.key_uses is not None:
                ring = self._keys
                self._uses = KeyUses(options.key_uses, lambda: ring.value.ids, clock)
                self._reloader.also = self._uses.refresh
        self._rules = self._reloader.add(
            Reloaded("access", self._read_rules, lambda rules: rules.files, metrics)
        )
        self._require_callers()

    def start(self) -> None:
        """Begin to watch the files."""
        self._reloader.start()

    def reload(self) -> None:
        """Read every file again. Safe in a signal handler."""
        self._reloader.poke()

    def stop(self) -> None:
        """End every watch."""
        self._reloader.stop()
        if self._uses is not None:
            self._uses.refresh(force=True)
        for source in self._fetched.values():
            source.close()

    def port_credentials(self) -> grpc.ServerCredentials | None:
        """Return the credentials of the port; None when it speaks no TLS."""
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
        """Identify who calls ``/package.Service/Method``; takes microseconds and never waits.

        ``auth_context`` is what TLS knows of the connection; ``peer`` is for the log, and to bound
        failures. Unauthenticated: no credentials that count; otherwise raises as
        :meth:`TokenVerifier.verify`.
        """
        if not self._options.authenticated:
            return LOCAL
        if needed_role(method) is None:
            return ANYONE
        try:
            return self._authenticate(metadata, auth_context, peer)
        except AcpcError as error:
            self._denied.add(error.reason, method, peer)
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
        if self._uses is not None:
            self._uses.note(key.id)
        return callers.of_key(key)

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
        for url in self._fetched.keys() - {entry.jwks_url for entry in content.issuers}:
            self._fetched.pop(url).close()  # nobody asks an issuer that has gone from the file
        return _Rules(content, callers, verifier, tuple(files))

    def _source(self, entry: IssuerEntry, folder: Path) -> KeySource:
        """Return an issuer's keys; what is fetched goes on when the file is read again."""
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


def _claimed_roles(claims: Mapping[str, Any], issuer: IssuerEntry) -> frozenset[Role]:
    """Read the roles of a claim, a list or words; unknown values are left out."""
    given = claims.get(issuer.roles_claim)
    values = given.split() if isinstance(given, str) else given
    found: set[Role] = set()
    for value in values if isinstance(values, list) else ():
        if not isinstance(value, str):
            continue
        if issuer.roles:
            found |= issuer.roles.get(value, frozenset())
        elif value in set(Role):
            found.add(Role(value))
    return frozenset(found)


def _bearer(given: Sequence[str | bytes]) -> str:
    value = given[0]
    scheme, _, token = value.partition(" ") if isinstance(value, str) else ("", "", "")
    token = token.strip()
    if len(given) > 1 or scheme.lower() != "bearer" or not token or not token.isascii():
        raise bad_credentials("the header authorization is not one line of the form Bearer <token>")
    return token
