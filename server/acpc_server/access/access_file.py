"""The access file: tenants, callers, token issuers and quotas, as YAML."""

from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, Literal, Self

import yaml
from acpc.contract import did_you_mean
from acpc.datasets import plain_yaml
from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    StringConstraints,
    ValidationError,
    model_validator,
)

from acpc_server.access.files import read_public
from acpc_server.access.roles import Role
from acpc_server.errors import FailedPrecondition
from acpc_server.scheduling import Quota

# Without colons, which callers from tokens (issuer:sub) and SPIFFE ids have in their names: what an
# issuer puts into a token names nobody else.
Name = Annotated[str, StringConstraints(pattern=r"^[!-9;-~]{1,256}$")]
# Part of folder names and of job ids; empty is the tenant of a server without authentication.
Tenant = Annotated[str, StringConstraints(pattern=r"^([a-z0-9][a-z0-9_-]{0,62})?$")]
Spiffe = Annotated[str, StringConstraints(pattern=r"^spiffe://[^/*]+(/[^*]+?)?(/\*)?$")]
Algorithm = Literal[
    "RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA"
]  # fmt: skip


class Strict(BaseModel):
    """Base of the parts of a file; rejects unknown keys."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    @model_validator(mode="before")
    @classmethod
    def _known(cls, value: Any) -> Any:  # noqa: ANN401 - whatever the file holds
        for key in value if isinstance(value, dict) else ():
            if key not in cls.model_fields:
                known = f"known are {', '.join(cls.model_fields)}"
                hint = did_you_mean(str(key), cls.model_fields, known)
                raise ValueError(f"unknown key {key!r}; {hint}")
        return value


class QuotaEntry(Strict):
    """Limits of a caller, 0 for none; what is left out comes from its tenant, then the file."""

    calls: int | None = Field(default=None, ge=0)
    streams: int | None = Field(default=None, ge=0)
    waits: int | None = Field(default=None, ge=0)
    uploads: int | None = Field(default=None, ge=0)
    calls_per_second: float | None = Field(default=None, ge=0)
    queued_jobs: int | None = Field(default=None, ge=0)
    stored_mib: int | None = Field(default=None, ge=0)

    def limits(self) -> dict[str, Any]:
        """Return what is given, as fields of :class:`Quota`."""
        given = self.model_dump(exclude_none=True)
        if self.stored_mib is not None:
            given["stored_bytes"] = given.pop("stored_mib") * 2**20
        return given


class TenantEntry(Strict):
    """Defaults of a tenant's callers."""

    quota: QuotaEntry = QuotaEntry()


class TokenSubject(Strict):
    """A JWT's issuer, by its name in this file, and the token's ``sub``."""

    issuer: str
    subject: str = Field(min_length=1)


class PrincipalEntry(Strict):
    """A caller: what it may do, and how it is recognised."""

    name: Name
    tenant: Tenant = ""
    roles: frozenset[Role] = frozenset()
    quota: QuotaEntry = QuotaEntry()
    spiffe: tuple[Spiffe, ...] = ()
    dns: tuple[str, ...] = ()
    common_name: tuple[str, ...] = ()
    jwt: tuple[TokenSubject, ...] = ()

    @model_validator(mode="after")
    def _roles(self) -> Self:
        if (self.spiffe or self.dns or self.common_name or self.jwt) and not self.roles:
            raise ValueError(
                f"principal {self.name!r} has no roles; give some of {', '.join(Role)} (callers "
                "with API keys have the roles of the key)"
            )
        return self


class IssuerEntry(Strict):
    """Who signs tokens, with which keys, and what their claims mean."""

    name: Name
    issuer: str = Field(min_length=1)
    audience: str = Field(min_length=1)
    jwks_url: str = ""
    jwks_file: Path | None = None
    key_file: Path | None = None
    algorithms: tuple[Algorithm, ...] = Field(("RS256", "ES256"), min_length=1)
    leeway_seconds: float = Field(30.0, ge=0, le=600)
    tenant_claim: str = ""
    roles_claim: str = ""
    roles: dict[str, frozenset[Role]] = {}

    @model_validator(mode="after")
    def _one_source(self) -> Self:
        given = [bool(self.jwks_url), self.jwks_file is not None, self.key_file is not None]
        if sum(given) != 1:
            raise ValueError("give one of jwks_url, jwks_file and key_file")
        if self.roles and not self.roles_claim:
            raise ValueError("roles maps values of a claim; name the claim in roles_claim")
        return self


class AccessFile(Strict):
    """The whole file."""

    quota: QuotaEntry = QuotaEntry()
    tenants: dict[Tenant, TenantEntry] = {}
    issuers: tuple[IssuerEntry, ...] = ()
    principals: tuple[PrincipalEntry, ...] = ()

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        _distinct("issuers: name", [issuer.name for issuer in self.issuers])
        if any(issuer.name == "spiffe" for issuer in self.issuers):
            raise ValueError("issuers: spiffe: is how SPIFFE ids begin; give another name")
        _distinct("issuers: issuer", [issuer.issuer for issuer in self.issuers])
        _distinct("principals: name", [principal.name for principal in self.principals])
        for kind in ("spiffe", "dns", "common_name", "jwt"):
            matched = [match for entry in self.principals for match in getattr(entry, kind)]
            _distinct(f"principals: {kind}", matched)
        issuers = {issuer.name for issuer in self.issuers}
        for index, entry in enumerate(self.principals):
            for token in entry.jwt:
                if token.issuer not in issuers:
                    raise ValueError(
                        f"principals.{index}.jwt: there is no issuer named {token.issuer!r}; add "
                        "it under issuers, or use one of " + (", ".join(issuers) or "none")
                    )
            if not self.has_tenant(entry.tenant):
                raise ValueError(
                    f"principals.{index}.tenant: {entry.tenant!r} is not under tenants, which "
                    "lists all of them once it lists one; add it there"
                )
        return self

    def has_tenant(self, tenant: str) -> bool:
        """Whether the file knows a tenant; one without a list of tenants takes any."""
        return not tenant or not self.tenants or tenant in self.tenants

    def quota_of(self, name: str, tenant: str, usual: Quota) -> Quota | None:
        """Return a caller's limits: its own, else its tenant's, the file's, the usual ones.

        None when the file has none for it.
        """
        own = next((entry.quota for entry in self.principals if entry.name == name), QuotaEntry())
        shared = self.tenants.get(tenant, TenantEntry()).quota
        given = {**self.quota.limits(), **shared.limits(), **own.limits()}
        return replace(usual, **given) if given else None


def read_access_file(path: Path) -> AccessFile:
    """Read and check an access file; FailedPrecondition names the place in it and the fix."""
    data = read_public(path)
    try:
        content = plain_yaml(data.decode("utf-8"))
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        problem = " ".join(str(error).split())
        raise FailedPrecondition(f"{path}: not YAML ({problem})") from error
    try:
        return AccessFile.model_validate({} if content is None else content)
    except ValidationError as error:
        raise FailedPrecondition(f"{path}: {explained(error)}") from error


def explained(error: ValidationError) -> str:
    """Describe the problems that pydantic found, each with its place."""
    parts = []
    for problem in error.errors(include_url=False):
        place = ".".join(str(part) for part in problem["loc"] if part != "[key]")
        text = problem["msg"].removeprefix("Value error, ")
        parts.append(f"{place}: {text}" if place else text)
    return "; ".join(parts)


def _distinct(where: str, values: list[Any]) -> None:
    seen = set()
    for value in values:
        if value in seen:
            raise ValueError(f"{where}: {value} is there twice; each may name one caller")
        seen.add(value)
