"""Who is admitted to what, by each kind of credentials, and what changes under a running server."""

import http.server
import json
import threading
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import structlog
from acpc_server.access import (
    LOCAL,
    METHOD_ROLES,
    AccessControl,
    AccessOptions,
    Principal,
    Role,
    TlsFiles,
    create_key,
    last_uses,
    require_role,
    revoke_key,
)
from acpc_server.errors import AcpcError, FailedPrecondition, PermissionDenied, Unauthenticated
from acpc_server.observe import Metrics
from acpc_server.scheduling import Quota
from credentials import Authority, jwk, public_pem, token
from cryptography.hazmat.primitives.asymmetric import ec
from waiting import wait_until

GET = "/google.longrunning.Operations/GetOperation"
KEY = ec.generate_private_key(ec.SECP256R1())
ROOT = Authority()
ISSUER = "{name: login, issuer: 'https://login.example', audience: acpc, algorithms: [ES256]"


def control(**options: object) -> AccessControl:
    return AccessControl(AccessOptions(**options), Metrics())


def admit(access: AccessControl, method: str, *given: Any) -> Principal:  # noqa: ANN401
    """What the door does with a call."""
    principal = access.identify(method, *given)
    require_role(principal, method)
    return principal


def bearer(text: str) -> list[tuple[str, str | bytes]]:
    return [("user-agent", "test"), ("authorization", f"Bearer {text}")]


def reason(
    access: AccessControl, metadata: list[tuple[str, str | bytes]], method: str = GET
) -> str:
    with pytest.raises(AcpcError) as caught:
        admit(access, method, metadata, {})
    return caught.value.reason


@pytest.fixture
def keys(tmp_path: Path) -> Path:
    return tmp_path / "keys.json"


def make_key(keys: Path, *roles: Role, name: str = "ci", tenant: str = "") -> str:
    chosen = frozenset(roles or Role)
    return create_key(keys, principal=name, tenant=tenant, roles=chosen, expires=None)


def access_file(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "access.yaml"
    path.write_text(text)
    return path


def tls_files(tmp_path: Path, authority: Authority = ROOT) -> TlsFiles:
    certificate, key = authority.issue("localhost").write(tmp_path, "server")
    ca = tmp_path / "ca.pem"
    ca.write_bytes(authority.pem)
    return TlsFiles(certificate, key, ca)


def test_without_access_control_every_caller_is_local() -> None:
    access = control()
    assert admit(access, GET, [], {}) is LOCAL
    assert access.port_credentials() is None


@pytest.mark.parametrize("role", Role)
def test_a_key_opens_the_methods_of_its_role_and_no_other(keys: Path, role: Role) -> None:
    text = make_key(keys, role, tenant="lab")
    access = control(keys_file=keys)
    for method, needed in METHOD_ROLES.items():
        if needed is role:
            found = admit(access, method, bearer(text), {})
            assert (found.name, found.tenant, found.roles) == ("ci", "lab", {role})
        else:
            with pytest.raises(PermissionDenied, match=f"needs the role {needed}; ci has {role}"):
                admit(access, method, bearer(text), {})


def test_credentials_that_do_not_count(keys: Path) -> None:
    text = make_key(keys)
    access = control(keys_file=keys)
    assert reason(access, []) == "NO_CREDENTIALS"
    assert reason(access, bearer(text) * 2) == "BAD_CREDENTIALS"
    for value in (text, f"Basic {text}", "Bearer ", "Bearer \u00e9", b"Bearer \xff"):
        assert reason(access, [("authorization", value)]) == "BAD_CREDENTIALS"
    assert reason(access, bearer(token(KEY))) == "BAD_CREDENTIALS"
    assert admit(access, GET, [("authorization", f"bearer  {text} ")], {}).name == "ci"


def test_an_unknown_key_and_a_wrong_secret_are_told_alike(keys: Path) -> None:
    text = make_key(keys)
    access = control(keys_file=keys)
    messages = set()
    for wrong in (text[:-1] + "x", f"acpc_{'0' * 12}_{text[-64:]}", text[:-64] + "0" * 64):
        with pytest.raises(Unauthenticated) as caught:
            admit(access, GET, bearer(wrong), {})
        messages.add(caught.value.message)
    assert len(messages) == 1


def test_an_expired_key(keys: Path) -> None:
    past = datetime(2020, 1, 1, tzinfo=UTC)
    text = create_key(keys, principal="ci", tenant="", roles=frozenset(Role), expires=past)
    assert reason(control(keys_file=keys), bearer(text)) == "EXPIRED_CREDENTIALS"


def test_a_keys_quota_is_in_the_access_file(keys: Path, tmp_path: Path) -> None:
    text = make_key(keys, tenant="lab")
    path = access_file(tmp_path, "tenants: {lab: {quota: {streams: 3}}}")
    access = control(keys_file=keys, access_file=path, quota=Quota(calls=7))
    assert admit(access, GET, bearer(text), {}).quota == Quota(calls=7, streams=3)


CLAIMS = """
tenants: {lab: {}}
issuers:
  - %s, key_file: issuer.pem, tenant_claim: team, roles_claim: scope, roles: {ops: [admin, read]}}
principals:
  - {name: planner, roles: [plan], jwt: [{issuer: login, subject: robot-7}]}
"""


def test_tokens_name_a_principal_or_say_tenant_and_roles(tmp_path: Path) -> None:
    (tmp_path / "issuer.pem").write_bytes(public_pem(KEY))
    access = control(access_file=access_file(tmp_path, CLAIMS % ISSUER))
    plan = "/acpc.v1.DiagnosticService/Plan"
    assert admit(access, plan, bearer(token(KEY)), {}).name == "planner"
    claimed = admit(access, GET, bearer(token(KEY, sub="ann", team="lab", scope="x ops")), {})
    assert (claimed.name, claimed.tenant, claimed.roles) == ("login:ann", "lab", {"admin", "read"})
    for team in ("", None, "elsewhere", "../lab", ["lab"]):
        text = token(KEY, sub="ann", team=team, scope="ops")
        assert reason(access, bearer(text)) == "BAD_CREDENTIALS"
    for scope in ("", None, "read", {"ops": 1}, [["ops"]]):
        text = token(KEY, sub="ann", team="lab", scope=scope)
        assert reason(access, bearer(text)) == "ROLE_MISSING"
    spaced = token(KEY, sub="a b", team="lab", scope="ops")
    assert reason(access, bearer(spaced)) == "BAD_CREDENTIALS"


CERTIFICATES = """
principals:
  - {name: planner, tenant: robots, roles: [read], spiffe: [spiffe://d/planner]}
  - {name: fleet, tenant: robots, roles: [read], spiffe: ["spiffe://d/fleet/*"]}
  - {name: ci, roles: [read], dns: [ci.example]}
  - {name: old, roles: [read], common_name: [old-client]}
"""


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        ({"spiffe": "spiffe://d/planner"}, "planner"),
        ({"spiffe": "spiffe://d/fleet/7"}, "spiffe://d/fleet/7"),
        ({"spiffe": "spiffe://d/fleet/north/7"}, "spiffe://d/fleet/north/7"),
        ({"dns": ("other.example", "ci.example")}, "ci"),
        ({"common_name": "old-client"}, "old"),
        ({"spiffe": "spiffe://d/fleet"}, ""),
        ({"spiffe": "spiffe://d/fleetwood/7"}, ""),
        ({"spiffe": "spiffe://d2/planner"}, ""),
        ({"common_name": "spiffe://d/planner"}, ""),
        ({"common_name": "ci.example"}, ""),
        ({"common_name": "planner"}, ""),
    ],
)
def test_certificates_name_principals(tmp_path: Path, names: dict, expected: str) -> None:
    access = control(tls=tls_files(tmp_path), access_file=access_file(tmp_path, CERTIFICATES))
    client = ROOT.issue(names.pop("common_name", "x"), **names).auth_context()
    if expected:
        assert admit(access, GET, [], client).name == expected
    else:
        with pytest.raises(Unauthenticated, match="names no principal"):
            admit(access, GET, [], client)


def test_a_bearer_names_the_caller_and_a_revoked_certificate_does_not_carry_it(
    tmp_path: Path, keys: Path
) -> None:
    text, client = make_key(keys), ROOT.issue("x", spiffe="spiffe://d/planner")
    crl = tmp_path / "crl.pem"
    crl.write_bytes(ROOT.revoke())
    access = control(
        tls=tls_files(tmp_path),
        access_file=access_file(tmp_path, CERTIFICATES),
        keys_file=keys,
        revocations=crl,
    )
    assert admit(access, GET, [], client.auth_context()).name == "planner"
    assert admit(access, GET, bearer(text), client.auth_context()).name == "ci"
    crl.write_bytes(ROOT.revoke(client))
    access.start()
    access.reload()

    def revoked() -> bool:
        try:
            admit(access, GET, bearer(text), client.auth_context())
        except Unauthenticated as error:
            return "revoked" in error.message
        return False

    wait_until(revoked)
    access.stop()


def admitted(access: AccessControl, text: str) -> bool:
    try:
        admit(access, GET, bearer(text), {})
    except AcpcError:
        return False
    return True


@pytest.fixture(autouse=True)
def changes_are_soon_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("acpc_server.access.files.POLL_SECONDS", 0.05)


def test_a_changed_file_counts_and_a_broken_one_does_not(keys: Path) -> None:
    first = make_key(keys)
    metrics = Metrics()
    access = AccessControl(AccessOptions(keys_file=keys), metrics)
    access.start()
    second = make_key(keys, name="later")
    wait_until(lambda: admitted(access, second))
    revoke_key(keys, first.split("_")[1])
    wait_until(lambda: not admitted(access, first))
    kept = keys.read_text()
    keys.write_text("broken")

    def value(name: str, **labels: str) -> float | None:
        return metrics.registry.get_sample_value(name, {"what": "keys", **labels})

    wait_until(lambda: value("acpc_access_reloads_total", result="failed"))
    assert admitted(access, second)
    assert value("acpc_access_stale") == 1
    keys.write_text(kept)
    wait_until(lambda: value("acpc_access_stale") == 0)
    access.stop()


def test_a_jwks_file_named_by_the_access_file_is_watched(tmp_path: Path) -> None:
    jwks, other = tmp_path / "jwks.json", ec.generate_private_key(ec.SECP256R1())
    jwks.write_text(json.dumps({"keys": [jwk(KEY, "a")]}))
    text = f"issuers:\n  - {ISSUER}, jwks_file: jwks.json, roles_claim: scope}}\n"
    access = control(access_file=access_file(tmp_path, text))
    access.start()
    old, new = token(KEY, kid="a", scope="read"), token(other, kid="b", scope="read")
    assert admitted(access, old)
    assert not admitted(access, new)
    jwks.write_text(json.dumps({"keys": [jwk(other, "b")]}))
    wait_until(lambda: admitted(access, new))
    assert not admitted(access, old)
    access.stop()


class _Publisher(http.server.BaseHTTPRequestHandler):
    """Serves the JWKS of a test; /moved points elsewhere, /endless never ends."""

    keys: tuple[object, ...] = ()
    served = 0

    def do_GET(self) -> None:
        type(self).served += 1
        self.send_response(302 if self.path == "/moved" else 200)
        if self.path == "/moved":
            self.send_header("Location", "/jwks")
        self.end_headers()
        if self.path == "/jwks":
            self.wfile.write(json.dumps({"keys": self.keys}).encode())
        while self.path == "/endless":
            try:
                self.wfile.write(b" " * 65536)
            except OSError:
                return

    def log_message(self, *_: object) -> None:
        """Nothing."""


@pytest.fixture
def publisher() -> Iterator[str]:
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), _Publisher) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


def fetched(tmp_path: Path, url: str) -> AccessControl:
    text = f"issuers:\n  - {ISSUER}, jwks_url: '{url}', roles_claim: scope}}\n"
    return control(access_file=access_file(tmp_path, text))


def test_keys_are_fetched_before_the_first_call(tmp_path: Path, publisher: str) -> None:
    _Publisher.keys = (jwk(KEY, "a"),)
    access = fetched(tmp_path, f"{publisher}/jwks")
    assert admitted(access, token(KEY, kid="a", scope="read"))
    asked = _Publisher.served
    for _ in range(50):  # strangers' tokens do not make the server ask the issuer each time
        assert not admitted(access, token(KEY, kid="unknown", scope="read"))
    assert _Publisher.served == asked
    access.stop()


def test_keys_of_this_host_come_by_no_proxy(
    tmp_path: Path, publisher: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    monkeypatch.delenv("no_proxy", raising=False)
    _Publisher.keys = (jwk(KEY, "a"),)
    access = fetched(tmp_path, f"{publisher}/jwks")
    assert admitted(access, token(KEY, kid="a", scope="read"))
    access.stop()


@pytest.mark.parametrize(
    ("source", "why"),
    [("jwks_url: 'https://['", "use https"), ('key_file: "a\\0b"', "cannot read .*null byte")],
)
def test_a_source_of_keys_that_no_source_can_be_is_told(
    tmp_path: Path, source: str, why: str
) -> None:
    with pytest.raises(FailedPrecondition, match=why):
        control(access_file=access_file(tmp_path, f"issuers:\n  - {ISSUER}, {source}}}\n"))


ODD_KEYS = [
    {"kty": "EC", "key_ops": 5},
    {"kty": ["EC"]},
    {"kty": "RSA", "n": 5, "e": None},
    {"kty": "EC", "crv": "P-256", "x": "\u00e9", "y": {}},
    None,
    5,
]


def test_one_odd_key_of_a_set_leaves_the_others_and_the_thread_that_fetches(
    tmp_path: Path, publisher: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("acpc_server.access.signing_keys.MIN_REFRESH_SECONDS", 0.02)
    _Publisher.keys = (*ODD_KEYS, {**jwk(KEY, "a"), "key_ops": None})
    access = fetched(tmp_path, f"{publisher}/jwks")
    assert admitted(access, token(KEY, kid="a", scope="read"))
    other = ec.generate_private_key(ec.SECP256R1())
    _Publisher.keys = (jwk(other, "b"), *ODD_KEYS)
    wait_until(lambda: admitted(access, token(other, kid="b", scope="read")))
    access.stop()


def test_an_issuer_that_has_gone_from_the_file_is_asked_no_more(
    tmp_path: Path, publisher: str
) -> None:
    _Publisher.keys, before = (jwk(KEY, "a"),), threading.enumerate()
    access = fetched(tmp_path, f"{publisher}/jwks")
    (asks,) = (one for one in threading.enumerate() if one.name == "jwks" and one not in before)
    access.start()
    known = token(KEY, kid="a", scope="read")
    assert admitted(access, known)
    access_file(tmp_path, "principals: []\n")
    access.reload()
    wait_until(lambda: not admitted(access, known) and not asks.is_alive())
    access.stop()


@pytest.mark.parametrize("path", ["/moved", "/endless", "/empty"])
def test_keys_that_cannot_be_fetched(tmp_path: Path, publisher: str, path: str) -> None:
    access = fetched(tmp_path, publisher + path)
    assert reason(access, bearer(token(KEY, kid="a"))) == "ISSUER_KEYS_AWAY"
    access.stop()


@pytest.mark.parametrize(
    "url", ["http://login.example/jwks", "ftp://127.0.0.1/x", "file:///etc/jwks", "https://", "x"]
)
def test_keys_from_where_anyone_could_change_them(tmp_path: Path, url: str) -> None:
    with pytest.raises(FailedPrecondition, match="use https"):
        fetched(tmp_path, url)


def test_options_with_which_nobody_could_call(tmp_path: Path) -> None:
    with pytest.raises(FailedPrecondition, match="nobody could call"):
        control(access_file=access_file(tmp_path, "tenants: {lab: {}}"))
    with pytest.raises(FailedPrecondition, match="list principals"):
        control(tls=tls_files(tmp_path))


def test_whether_anything_but_a_certificate_says_who_calls(tmp_path: Path) -> None:
    assert not control().by_certificate_alone
    listed = "tenants: {lab: {}}\nprincipals: [{name: a, tenant: lab, roles: [read], dns: [a.b]}]"
    certificates = {"tls": tls_files(tmp_path), "access_file": access_file(tmp_path, listed)}
    assert control(**certificates).by_certificate_alone
    make_key(tmp_path / "keys.json")
    assert not control(**certificates, keys_file=tmp_path / "keys.json").by_certificate_alone


def test_a_key_of_another_certificate(tmp_path: Path) -> None:
    files = tls_files(tmp_path)
    _, other = ROOT.issue("localhost").write(tmp_path, "other")
    with pytest.raises(FailedPrecondition, match="is not the key of"):
        control(tls=TlsFiles(files.certificate, other))


def test_guesses_are_counted_and_logged_once_a_second_at_most(keys: Path) -> None:
    text, metrics = make_key(keys), Metrics()
    access = AccessControl(AccessOptions(keys_file=keys), metrics)
    with structlog.testing.capture_logs() as lines:
        for guess in range(500):
            wrong = bearer(f"{text[:-3]}{guess:03}"[:82] + "g")
            with pytest.raises(Unauthenticated):
                admit(access, GET, wrong, {}, "ipv4:1.2.3.4:5")
    counted = metrics.registry.get_sample_value
    assert counted("acpc_access_denied_total", {"reason": "BAD_CREDENTIALS"}) == 500
    assert 1 <= len(lines) < 100
    assert lines[0]["event"] == "access_denied"
    assert "acpc_" not in str(lines)


def test_a_caller_is_known_by_its_key_or_certificate(keys: Path, tmp_path: Path) -> None:
    text = make_key(keys)
    tls = tls_files(tmp_path)
    rules = access_file(
        tmp_path, "principals: [{name: a, roles: [read], common_name: [a], dns: [b]}]"
    )
    access = control(keys_file=keys, tls=tls, access_file=rules)
    assert admit(access, GET, bearer(text), {}).credential == text.split("_")[1]
    for identity in (ROOT.issue("a"), ROOT.issue("a"), ROOT.issue("c", dns=("b",))):
        found = admit(access, GET, [], identity.auth_context())
        assert int(found.credential, 16) == identity.certificate.serial_number


def test_the_last_use_of_a_key_is_kept_and_a_full_disk_stops_nothing(
    keys: Path, tmp_path: Path
) -> None:
    texts = [make_key(keys, name=name) for name in ("used", "idle", "gone")]
    ids = [text.split("_")[1] for text in texts]
    now = [1e9]
    options = AccessOptions(keys_file=keys, key_uses=tmp_path / "state" / "key-uses.json")
    with structlog.testing.capture_logs() as lines:
        first = AccessControl(options, Metrics(), lambda: now[0])
        admit(first, GET, bearer(texts[0]), {})
        admit(first, GET, bearer(texts[2]), {})
        first.stop()  # there is no folder yet
        assert [line["event"] for line in lines] == ["key_uses_unwritten"]
        (tmp_path / "state").mkdir()
        first.stop()
    revoke_key(keys, ids[2])
    second = AccessControl(options, Metrics(), lambda: now[0])
    now[0] += 90
    admit(second, GET, bearer(texts[0]), {})
    second.stop()
    kept = {key: at.timestamp() for key, at in last_uses(tmp_path / "state").items()}
    assert kept == {ids[0]: 1e9 + 90}
    (tmp_path / "state" / "key-uses.json").write_text("[" * 100_000)
    assert last_uses(tmp_path / "state") == {}
    admit(AccessControl(options, Metrics()), GET, bearer(texts[0]), {})
