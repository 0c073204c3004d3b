"""Access control of a real server: each kind of credentials, each role, and changes under way."""

import json
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc
import pytest
import wire
from acpc.v1 import diagnostic_service_pb2 as diagnostic
from acpc_server.access import METHOD_ROLES, Role, create_key, revoke_key
from credentials import Authority, Identity, private_pem, public_pem, token
from cryptography.hazmat.primitives.asymmetric import ec
from google.longrunning import operations_pb2
from grpc_health.v1 import health_pb2
from methods import call
from served_world import ServedWorld
from server_process import LogLine, ServerProcess
from waiting import GENEROUS_SECONDS, wait_until

KEY = ec.generate_private_key(ec.SECP256R1())
LIST = "/google.longrunning.Operations/ListOperations"
SCORE = "/acpc.v1.ScoringService/ScoreCheckpoint"
PAIRS = "/acpc.v1.DiagnosticService/ComparePairs"
HEALTH = "/grpc.health.v1.Health/Check"
ACCESS = """
tenants: {lab: {quota: {streams: 1}}, other: {}}
issuers:
  - name: login
    issuer: https://login.example
    audience: acpc
    key_file: issuer.pem
    leeway_seconds: 1
    tenant_claim: team
    roles_claim: scope
principals:
  - {name: planner, tenant: lab, roles: [read], spiffe: [spiffe://d/planner]}
"""
Metadata = Sequence[tuple[str, str]]


def bearer(text: str) -> Metadata:
    return (("authorization", f"Bearer {text}"),)


@dataclass
class Guarded:
    """A server that asks for credentials, and a key for each role."""

    server: ServerProcess
    channel: grpc.Channel
    keys_file: Path
    folder: Path
    keys: dict[Role, str]

    def new_key(self, name: str, *roles: Role, tenant: str = "") -> str:
        """A key that the server knows already."""
        chosen = frozenset(roles or Role)
        key = create_key(self.keys_file, principal=name, tenant=tenant, roles=chosen, expires=None)
        wait_until(lambda: self.code(LIST, bearer(key)) != "UNAUTHENTICATED")
        return key

    def code(self, method: str, metadata: Metadata = (), data: bytes = b"") -> str:
        """Status of a call."""
        refused = call(self.channel, method, data, metadata)
        return refused.code if refused else "OK"

    def audited(self, principal: str, code: str) -> LogLine:
        """The line of the audit that tells of a call."""
        told = {"event": "audit", "principal": principal, "code": code}
        return self.server.wait_for_log(lambda line: told.items() <= line.items())


@pytest.fixture(scope="module")
def guarded(world: ServedWorld, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Guarded]:
    folder = tmp_path_factory.mktemp("access")
    (folder / "issuer.pem").write_bytes(public_pem(KEY))
    (folder / "access.yaml").write_text(ACCESS)
    path = folder / "keys.json"
    keys = {
        role: create_key(
            path, principal=f"{role}-only", tenant="", roles=frozenset({role}), expires=None
        )
        for role in Role
    }
    flags = {"keys_file": path, "access_file": folder / "access.yaml"}
    state = tmp_path_factory.mktemp("state")
    with (
        world.server(state, **flags) as server,
        grpc.insecure_channel(server.address) as channel,
    ):
        yield Guarded(server, channel, path, folder, keys)
        assert server.bugs() == []
        text = json.dumps(server.log())
        assert "acpc_" not in text.replace("acpc_server", "")
        assert "eyJ" not in text, "a token is in the log"


@pytest.mark.parametrize("method", sorted(METHOD_ROLES))
def test_a_method_is_for_its_role_alone(guarded: Guarded, method: str) -> None:
    refused = call(guarded.channel, method)
    assert (refused.code, refused.reason) == ("UNAUTHENTICATED", "NO_CREDENTIALS")
    for role, key in guarded.keys.items():
        code = guarded.code(method, bearer(key))
        if role is METHOD_ROLES[method]:
            assert code not in ("UNAUTHENTICATED", "PERMISSION_DENIED", "INTERNAL")
        else:
            refused = call(guarded.channel, method, metadata=bearer(key))
            assert (refused.code, refused.reason) == ("PERMISSION_DENIED", "ROLE_MISSING")
            assert f"needs the role {METHOD_ROLES[method]}" in refused.message


def test_only_who_may_list_names_is_told_the_nearest(guarded: Guarded) -> None:
    """Of checkpoints, which are the server's; operations and anchor sets are never suggested."""
    asked = wire.score(checkpoint=wire.checkpoint("lewn")).SerializeToString()
    both = guarded.new_key("reader", Role.SCORE, Role.READ, tenant="lab")
    told = {}
    for name, key in (("score", guarded.keys[Role.SCORE]), ("both", both)):
        refused = call(guarded.channel, SCORE, asked, bearer(key))
        assert refused.code == "NOT_FOUND"
        told[name] = refused.message
    assert told["score"] == "checkpoint 'lewn': 'lewn' does not exist"
    assert told["both"].startswith(f"{told['score']}; did you mean 'lewm'")


def test_health_is_open(guarded: Guarded) -> None:
    answer = guarded.channel.unary_unary(
        HEALTH, response_deserializer=health_pb2.HealthCheckResponse.FromString
    )(b"", timeout=GENEROUS_SECONDS)
    assert answer.status == health_pb2.HealthCheckResponse.SERVING


@pytest.mark.parametrize("method", [LIST, SCORE, PAIRS])
def test_a_stranger_is_answered_before_a_message_is_read(guarded: Guarded, method: str) -> None:
    """The call sends headers and neither a message nor an end."""
    over = threading.Event()

    def silent() -> Iterator[bytes]:
        over.wait(GENEROUS_SECONDS)
        yield from ()

    answers = guarded.channel.stream_stream(method)(silent(), timeout=GENEROUS_SECONDS)
    try:
        refused = wire.refusal(lambda: list(answers))
    finally:
        over.set()
    assert refused.reason == "NO_CREDENTIALS"


def test_tokens(guarded: Guarded) -> None:
    good = {"team": "lab", "scope": "read plan"}
    assert guarded.code(LIST, bearer(token(KEY, **good))) == "OK"
    assert guarded.code(SCORE, bearer(token(KEY, **good))) == "PERMISSION_DENIED"
    assert guarded.code(LIST, bearer(token(KEY, **{**good, "team": "x"}))) == "UNAUTHENTICATED"
    old = bearer(token(KEY, **good, exp=1_000_000_000))
    expired = call(guarded.channel, LIST, metadata=old)
    assert expired.reason == "EXPIRED_CREDENTIALS"
    line = guarded.server.wait_for_log(
        lambda line: line["event"] == "rpc" and line["principal"] == "login:robot-7"
    )
    assert line["tenant"] == "lab"


def test_calls_that_change_something_are_audited(guarded: Guarded) -> None:
    key = guarded.new_key("auditor", tenant="lab")
    sent = [*bearer(key), ("x-request-id", "audit-me")]
    data = wire.score(checkpoint=wire.checkpoint("no-such")).SerializeToString()
    assert guarded.code(SCORE, sent, data) == "NOT_FOUND"
    line = guarded.audited("auditor", "NOT_FOUND")
    wanted = {"method": SCORE, "tenant": "lab", "request_id": "audit-me"}
    assert wanted.items() <= line.items()
    assert line["subject"] == {"checkpoint": "no-such"}
    assert line["peer"].startswith("ipv4:127.0.0.1")
    assert "grpc-python" in line["user_agent"]

    answer = guarded.channel.unary_unary(SCORE)(
        wire.score().SerializeToString(), metadata=bearer(key), timeout=GENEROUS_SECONDS
    )
    name = operations_pb2.Operation.FromString(answer).name
    wanted = {"checkpoint": "lewm", "operation": name}
    assert guarded.audited("auditor", "OK")["subject"] == wanted
    denied = guarded.keys[Role.READ]
    assert guarded.code(SCORE, bearer(denied)) == "PERMISSION_DENIED"
    guarded.audited("read-only", "PERMISSION_DENIED")
    audited = {line["method"] for line in guarded.server.log() if line["event"] == "audit"}
    assert LIST not in audited


def open_pairs(
    guarded: Guarded, key: str, over: threading.Event
) -> Iterator[diagnostic.ComparePairsResponse]:
    """A ComparePairs stream that has answered one pair and then stays open until ``over``."""
    first = diagnostic.ComparePairsRequest(pair=wire.pair())

    def messages() -> Iterator[diagnostic.ComparePairsRequest]:
        yield first
        over.wait(GENEROUS_SECONDS)

    stream = guarded.channel.stream_stream(
        PAIRS,
        request_serializer=diagnostic.ComparePairsRequest.SerializeToString,
        response_deserializer=diagnostic.ComparePairsResponse.FromString,
    )(messages(), metadata=bearer(key), timeout=GENEROUS_SECONDS)
    next(stream)
    return stream


def test_a_revoked_key_ends_an_idle_stream(guarded: Guarded) -> None:
    key, over = guarded.new_key("leaver"), threading.Event()
    stream = open_pairs(guarded, key, over)
    revoke_key(guarded.keys_file, key.split("_")[1])
    try:
        refused = wire.refusal(lambda: next(stream))
    finally:
        over.set()
    assert (refused.code, refused.reason) == ("UNAUTHENTICATED", "BAD_CREDENTIALS")


def test_a_token_that_expires_ends_an_idle_stream(guarded: Guarded) -> None:
    over = threading.Event()
    claims = {"team": "other", "scope": "plan"}
    try:
        for seconds in (4, 16, 64):  # until it is good for longer than opening a stream takes
            short = token(KEY, **claims, sub="short", exp=int(time.time()) + seconds)
            refused = None
            try:
                stream = open_pairs(guarded, short, over)
            except grpc.RpcError:
                continue
            refused = wire.refusal(lambda opened=stream: next(opened))
            break
    finally:
        over.set()
    assert (refused.code, refused.reason) == ("UNAUTHENTICATED", "EXPIRED_CREDENTIALS")


ODD_HEADERS: dict[str, Metadata] = {
    "two of them": (("authorization", "Bearer {}"), ("authorization", "Bearer {}")),
    "joined with a comma": (("authorization", "Bearer {}, Bearer {}"),),
    "empty": (("authorization", "Bearer "),),
    "no scheme": (("authorization", "{}"),),
    "Basic": (("authorization", "Basic {}"),),
    "as bytes": (("authorization-bin", "Bearer {}"),),
    "under another name": (("x-authorization", "Bearer {}"),),
    "of the caller's tenant": (("x-acpc-tenant", "lab"), ("x-forwarded-user", "read-only")),
}


@pytest.mark.parametrize("case", ODD_HEADERS)
def test_an_odd_header_opens_nothing(guarded: Guarded, case: str) -> None:
    key = guarded.keys[Role.READ]
    filled = [(name, value.format(key, key)) for name, value in ODD_HEADERS[case]]
    given: Any = [(name, x.encode() if name.endswith("-bin") else x) for name, x in filled]
    assert guarded.code(LIST, given) == "UNAUTHENTICATED"


def test_a_quota_of_the_access_file_counts(guarded: Guarded) -> None:
    """The tenant lab has one stream a caller; a caller of another tenant has more."""
    key, over = guarded.new_key("narrow", tenant="lab"), threading.Event()
    try:
        held = open_pairs(guarded, key, over)
        refused = call(guarded.channel, PAIRS, metadata=bearer(key))
        assert refused.reason == "TOO_MANY_STREAMS"
        wide = guarded.new_key("wide", tenant="other")
        more = [open_pairs(guarded, wide, over) for _ in range(2)]
    finally:
        over.set()
    assert [list(stream) for stream in (held, *more)] == [[], [], []]


def test_a_hang_up_reads_the_files_and_never_kills(guarded: Guarded) -> None:
    def reloaded() -> int:
        return sum(line["event"] == "reloaded" for line in guarded.server.log())

    before = reloaded()
    os.kill(guarded.server.pid, signal.SIGHUP)
    wait_until(lambda: reloaded() >= before + 2)
    assert guarded.code(LIST, bearer(guarded.keys[Role.READ])) == "OK"


def test_a_hang_up_without_access_control(server: ServerProcess, channel: grpc.Channel) -> None:
    os.kill(server.pid, signal.SIGHUP)
    assert call(channel, HEALTH) is None
    assert call(channel, LIST) is None


def secure(server: ServerProcess, trusts: Identity, client: Identity | None = None) -> grpc.Channel:
    pair = (private_pem(client.key), client.pem) if client else (None, None)
    credentials = grpc.ssl_channel_credentials(trusts.pem, *pair)
    # Channels with equal arguments share connections, also with other credentials.
    return grpc.secure_channel(
        f"localhost:{server.port}", credentials, [("grpc.use_local_subchannel_pool", 1)]
    )


def asked(server: ServerProcess, trusts: Identity, client: Identity | None = None) -> str:
    """Status of a call on a connection of its own."""
    with secure(server, trusts, client) as channel:
        refused = call(channel, LIST)
    return refused.code if refused else "OK"


def mutual(world: ServedWorld, folder: Path, root: Authority) -> ServerProcess:
    """A server with a certificate of ``root`` and the other files of ``folder``."""
    certificate, key = root.issue("localhost").write(folder, "server")
    files = {"client_ca": folder / "clients.pem", "crl": folder / "clients.crl"}
    files |= {"certificate": certificate, "key": key}
    flags = {f"tls_{name}": file for name, file in files.items()}
    return world.server(folder / "state", access_file=folder / "access.yaml", **flags)


def test_client_certificates_and_changes_of_each_file(world: ServedWorld, tmp_path: Path) -> None:
    (tmp_path / "issuer.pem").write_bytes(public_pem(KEY))
    (tmp_path / "access.yaml").write_text(ACCESS)
    root, later, clients = Authority("first"), Authority("later"), Authority("clients")
    (tmp_path / "clients.pem").write_bytes(clients.pem)
    certificate, key = tmp_path / "server.pem", tmp_path / "server.key"
    crl = tmp_path / "clients.crl"
    crl.write_bytes(clients.revoke())
    planner = clients.issue("x", spiffe="spiffe://d/planner")
    again = clients.issue("x", spiffe="spiffe://d/planner")
    nobody = clients.issue("planner")
    stranger = Authority("clients").issue("x", spiffe="spiffe://d/planner")
    with mutual(world, tmp_path, root) as server, secure(server, root, planner) as lasting:
        assert call(lasting, LIST) is None
        refused = call(lasting, SCORE)
        assert refused.reason == "ROLE_MISSING"
        assert asked(server, root, nobody) == "UNAUTHENTICATED"
        assert asked(server, root) == "UNAVAILABLE"
        assert asked(server, root, stranger) == "UNAVAILABLE"

        # Revoked on an open connection; another certificate of the same name still counts.
        crl.write_bytes(clients.revoke(planner))
        wait_until(lambda: call(lasting, LIST) is not None)
        assert asked(server, root, again) == "OK"

        # A certificate that cannot be used leaves the old one, and the log says so.
        certificate.write_bytes(later.issue("localhost").pem)
        server.wait_for_log(
            lambda line: line["event"] == "reload_failed" and "is not the key of" in line["error"]
        )
        assert asked(server, root, again) == "OK"
        key.chmod(0o644)
        server.wait_for_log(
            lambda line: line["event"] == "reload_failed" and "chmod 600" in line["error"]
        )
        assert asked(server, root, again) == "OK"
        key.chmod(0o600)
        later.issue("localhost").write(tmp_path, "server")
        wait_until(lambda: asked(server, later, again) == "OK")
        assert asked(server, root, again) == "UNAVAILABLE"

        # At once on SIGHUP; files as they are.
        root.issue("localhost").write(tmp_path, "server")
        os.kill(server.pid, signal.SIGHUP)
        wait_until(lambda: asked(server, root, again) == "OK")
        assert server.terminate() == 0
        assert server.bugs() == []


Flags = dict[str, object]


def keys_flags(folder: Path) -> Flags:
    path = folder / "keys.json"
    create_key(path, principal="a", tenant="", roles=frozenset(Role), expires=None)
    return {"keys_file": path}


def tls_flags(folder: Path, mode: int = 0o600) -> Flags:
    certificate, key = Authority().issue("localhost").write(folder, "server")
    key.chmod(mode)
    return {"tls_certificate": certificate, "tls_key": key}


OPEN = {"host": "0.0.0.0"}  # noqa: S104
REFUSED: dict[str, tuple[Callable[[Path], Flags], str]] = {
    "open to all": (lambda folder: OPEN, "--insecure"),
    "TLS alone says not who calls": (lambda folder: {**OPEN, **tls_flags(folder)}, "--keys-file"),
    "keys in the clear": (lambda folder: {**OPEN, **keys_flags(folder)}, "in the clear"),
    "a key that others can read": (lambda folder: tls_flags(folder, 0o644), "chmod 600"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_a_server_that_is_not_safe_does_not_start(
    world: ServedWorld, tmp_path: Path, case: str
) -> None:
    flags, expected = REFUSED[case]
    server = world.server(tmp_path / "state", **flags(tmp_path))
    with pytest.raises(RuntimeError, match=expected):
        server.start()
    assert server.wait() == 1


@pytest.mark.parametrize("ways", ["insecure", "keys and TLS"])
def test_a_server_that_is_open_on_purpose_starts(
    world: ServedWorld, tmp_path: Path, ways: str
) -> None:
    insecure = ways == "insecure"
    open_wide = {**OPEN, "metrics_host": "0.0.0.0"}  # noqa: S104
    given: Any = open_wide if insecure else {**OPEN, **keys_flags(tmp_path), **tls_flags(tmp_path)}
    environment = {"ACPC_INSECURE": "true"} if insecure else {}
    with world.server(tmp_path / "state", environment=environment, **given) as server:
        assert server.port > 0
        warned = {line["event"] for line in server.log() if line["level"] == "warning"}
        assert warned >= {"insecure", "metrics_open"} if insecure else "insecure" not in warned
