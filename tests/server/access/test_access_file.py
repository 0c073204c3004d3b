"""The access file: what it says, and that a mistake in it is told with its place and its fix."""

from pathlib import Path

import pytest
from acpc_server.access.access_file import AccessFile, read_access_file
from acpc_server.errors import FailedPrecondition
from acpc_server.scheduling import Quota

BOMB = "".join(f"b{n}: &b{n} [{'*b' + str(n - 1) if n else '*a'}, *a]\n" for n in range(40))

GOOD = """
quota: {calls_per_second: 100}
tenants:
  robotics:
    quota: {queued_jobs: 10, stored_mib: 2, calls: 8}
  vision: {}
issuers:
  - {name: login, issuer: https://login.example, audience: acpc, key_file: issuer.pem}
principals:
  - name: planner
    tenant: robotics
    roles: [read, plan]
    spiffe: [spiffe://example/ns/robots/sa/planner, spiffe://example/ns/fleet/*]
    jwt: [{issuer: login, subject: robot-7}]
    quota: {calls: 32, queued_jobs: 0}
"""


def read(tmp_path: Path, text: str) -> AccessFile:
    path = tmp_path / "access.yaml"
    path.write_text(text)
    return read_access_file(path)


def test_a_quota_is_the_callers_else_its_tenants_else_the_files_else_the_servers(
    tmp_path: Path,
) -> None:
    content = read(tmp_path, GOOD)
    usual = Quota(streams=4, calls=1, calls_per_second=1.0)
    assert content.quota_of("planner", "robotics", usual) == Quota(
        calls=32, streams=4, calls_per_second=100.0, queued_jobs=0, stored_bytes=2 * 2**20
    )
    assert content.quota_of("other", "robotics", usual) == Quota(
        calls=8, streams=4, calls_per_second=100.0, queued_jobs=10, stored_bytes=2 * 2**20
    )
    assert AccessFile().quota_of("planner", "robotics", usual) is None


def test_an_empty_file_is_a_file(tmp_path: Path) -> None:
    assert read(tmp_path, "# nobody yet\n") == AccessFile()


ISSUER = "{name: login, issuer: i, audience: a, key_file: k}"
BAD = {
    "name like that of a token's caller": ("principals: [{name: 'login:robot-7'}]",
        "principals.0.name: String should match"),
    "issuer named like SPIFFE ids": (f"issuers: [{ISSUER.replace('login', 'spiffe', 1)}]",
        "how SPIFFE ids begin"),
    "unknown key": ("principles: []", "unknown key 'principles'; did you mean 'principals'?"),
    "unknown key below": ("principals: [{name: a, role: [read]}]",
        "principals.0: unknown key 'role'; did you mean 'roles'?"),
    "unknown role": ("principals: [{name: a, roles: [reed]}]", "principals.0.roles"),
    "no role": ("principals: [{name: a, dns: [b]}]", "principals.0: principal 'a' has no roles"),
    "a tenant's name": ("tenants: {Lab: {}}", "tenants.Lab"),
    "a tenant that is not listed": ("tenants: {lab: {}}\nprincipals: [{name: a, tenant: lob}]",
        "principals.0.tenant: 'lob' is not under tenants"),
    "two of one name": ("principals: [{name: a}, {name: a}]", "principals: name: a is there twice"),
    "one certificate for two": (
        "principals: [{name: a, dns: [x], roles: [read]}, {name: b, dns: [x], roles: [read]}]",
        "principals: dns: x is there twice",
    ),
    "spiffe with a star inside": (
        "principals: [{name: a, roles: [read], spiffe: ['spiffe://d/*/x']}]",
        "principals.0.spiffe.0",
    ),
    "spiffe of a whole domain's name": (
        "principals: [{name: a, roles: [read], spiffe: ['spiffe://*']}]", "principals.0.spiffe.0"),
    "an issuer that is not there": (
        "principals: [{name: a, roles: [read], jwt: [{issuer: x, subject: y}]}]",
        "principals.0.jwt: there is no issuer named 'x'",
    ),
    "two sources of keys": (
        "issuers: [{name: n, issuer: i, audience: a, key_file: k, jwks_file: f}]",
        "issuers.0: give one of jwks_url, jwks_file and key_file",
    ),
    "a symmetric algorithm": (
        "issuers: [{name: n, issuer: i, audience: a, key_file: k, algorithms: [HS256]}]",
        "issuers.0.algorithms.0",
    ),
    "algorithm none": (
        "issuers: [{name: n, issuer: i, audience: a, key_file: k, algorithms: [none]}]",
        "issuers.0.algorithms.0",
    ),
    "a role map without its claim": (
        "issuers: [{name: n, issuer: i, audience: a, key_file: k, roles: {x: [read]}}]",
        "roles_claim",
    ),
    "a negative quota": ("quota: {calls: -1}", "quota.calls"),
    "not YAML": ("principals: [", "not YAML"),
    "nested too deep": ("tenants: " + "{a: " * 50_000, "not YAML"),
    "aliases that grow": (f"a: &a [x]\n{BOMB}", "not YAML"),
    "code": ("!!python/object/apply:os.system ['true']", "not YAML"),
    "a list": ("- principals", "valid dictionary"),
}  # fmt: skip


@pytest.mark.parametrize("case", BAD)
def test_a_mistake_is_told_with_its_place(tmp_path: Path, case: str) -> None:
    text, expected = BAD[case]
    with pytest.raises(FailedPrecondition) as caught:
        read(tmp_path, text)
    assert caught.value.message.startswith(f"{tmp_path / 'access.yaml'}: ")
    assert expected in caught.value.message
