"""From verified credentials to the caller they name, by what the access file says."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from acpc_server.access.access_file import AccessFile, IssuerEntry, PrincipalEntry
from acpc_server.access.certificates import CertificateNames
from acpc_server.access.keys import ApiKey
from acpc_server.access.principal import Principal, Role
from acpc_server.access.tokens import VerifiedToken, bad_credentials
from acpc_server.scheduling import Quota

# Callers whose quota is not looked up at each of their calls.
MAX_REMEMBERED = 4096
_ROLES = frozenset(Role)
_SUBJECT = re.compile(r"[!-~]{1,200}")
_TENANT = re.compile(r"([a-z0-9][a-z0-9_-]{0,62})?")


class Callers:
    """Whom credentials name.

    Args:
        content: The access file.
        usual: The quota of a caller that the file says nothing of; what it says replaces parts.
    """

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
        """The caller of an API key, which has the key's roles and the file's quota."""
        return self._made(key.principal, key.tenant, key.roles)

    def of_certificate(self, names: CertificateNames) -> Principal:
        """The caller of a client certificate: by SPIFFE id, then DNS name, then common name.

        Raises:
            Unauthenticated: The file names nobody who has it.
        """
        entry = self._spiffe.get(names.spiffe)
        if entry is not None:
            return self._named(entry)
        # spiffe://domain/path/* is each workload below the path, as a caller of its own.
        parent = names.spiffe
        while "/" in parent.removeprefix("spiffe://"):
            parent = parent.rpartition("/")[0]
            entry = self._spiffe.get(f"{parent}/*")
            if entry is not None:
                return self._made(names.spiffe, entry.tenant, entry.roles, entry.name)
        for name in names.dns:
            if name in self._dns:
                return self._named(self._dns[name])
        if names.common_name in self._common:
            return self._named(self._common[names.common_name])
        raise bad_credentials("the client certificate names no principal of the access file")

    def of_token(self, token: VerifiedToken) -> Principal:
        """The caller of a token: who is listed by its subject, else what its claims say.

        Raises:
            Unauthenticated: Its claims cannot be used.
        """
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

    def _named(self, entry: PrincipalEntry) -> Principal:
        return self._made(entry.name, entry.tenant, entry.roles)

    def _make(self, name: str, tenant: str, roles: frozenset[Role], entry: str = "") -> Principal:
        """A caller with the quota of its entry, by default the one of its own name."""
        quota = self._content.quota_of(entry or name, tenant, self._usual)
        return Principal(name, tenant, roles, quota)


def _claimed_roles(claims: Mapping[str, Any], issuer: IssuerEntry) -> frozenset[Role]:
    """Roles of a claim: a list, or words with spaces between; values that say nothing are left."""
    given = claims.get(issuer.roles_claim)
    values = given.split() if isinstance(given, str) else given
    found: set[Role] = set()
    for value in values if isinstance(values, list) else ():
        if not isinstance(value, str):
            continue
        if issuer.roles:
            found |= issuer.roles.get(value, frozenset())
        elif value in _ROLES:
            found.add(Role(value))
    return frozenset(found)
