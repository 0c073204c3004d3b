"""Access control of a real server: each kind of credentials, each role, and changes under way."""

import json
import os
import signal
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc
import pytest
import wire
from acpc.v1 import checkpoint_service_pb2 as checkpoints
from acpc.v1 import diagnostic_service_pb2 as diagnostic
from acpc_server.access import (
    METHOD_ROLES,
    Role,
    create_key,
    revoke_key,
    set_certificate_role,
)
from credentials import Authority, Identity, private_pem
from google.longrunning import operations_pb2
from grpc_health.v1 import health_pb2
from methods import METHODS, call
from served_world import ServedWorld
from server_process import LogLine, ServerProcess
from waiting import GENEROUS_SECONDS, wait_until

LIST = "/google.longrunning.Operations/ListOperations"
SCORE = "/acpc.v1.ScoringService/ScoreCheckpoint"
LOAD = "/acpc.v1.CheckpointService/LoadCheckpoint"
CANCEL = "/google.longrunning.Operations/CancelOperation"
PAIRS = "/acpc.v1.DiagnosticService/ComparePairs"
HEALTH = "/grpc.health.v1.Health/Check"
ORDER = list(Role)
Metadata = Sequence[tuple[str, str]]


def bearer(text: str) -> Metadata:
    return (("authorization", f"Bearer {text}"),)


@dataclass
class Guarded:
    """A server that asks for credentials, and a key for each role."""

    server: ServerProcess
    channel: grpc.Channel
    keys_file: Path
    keys: dict[Role, str]

    def new_key(self, name: str, role: Role = Role.ADMIN) -> str:
        """A key that the server knows already."""
        key = create_key(self.keys_file, name, role)
        wait_until(lambda: self.code(LIST, bearer(key)) != "UNAUTHENTICATED")
        return key

    def code(self, method: str, metadata: Metadata = (), data: bytes = b"") -> str:
        refused = call(self.channel, method, data, metadata)
        return refused.code if refused else "OK"

    def logged(self, principal: str, **wanted: str) -> LogLine:
        """The line of the log category access that tells of a call."""
        told = {"event": "access", "principal": principal, **wanted}
        return self.server.wait_for_log(lambda line: told.items() <= line.items())


@pytest.fixture(scope="module")
def guarded(world: ServedWorld, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Guarded]:
    path = tmp_path_factory.mktemp("access") / "keys.json"
    keys = {role: create_key(path, f"{role}-only", role) for role in Role}
    state = tmp_path_factory.mktemp("state")
    with (
        world.server(state, keys_file=path) as server,
        grpc.insecure_channel(server.address) as channel,
    ):
        yield Guarded(server, channel, path, keys)
        assert server.bugs() == []
        text = json.dumps(server.log())
        assert "acpc_" not in text.replace("acpc_server", ""), "a key is in the log"
        digests = [key["sha256"] for key in json.loads(path.read_text())["keys"]]
        assert not any(digest in text for digest in digests)


@pytest.mark.parametrize("method", sorted(METHODS))
def test_a_method_is_for_its_role_and_those_above(guarded: Guarded, method: str) -> None:
    refused = call(guarded.channel, method)
    assert (refused.code, refused.reason) == ("UNAUTHENTICATED", "NO_CREDENTIALS")
    needed = METHOD_ROLES[method]
    for role, key in guarded.keys.items():
        if ORDER.index(role) >= ORDER.index(needed):
            code = guarded.code(method, bearer(key))
            assert code not in ("UNAUTHENTICATED", "PERMISSION_DENIED", "INTERNAL")
        else:
            refused = call(guarded.channel, method, metadata=bearer(key))
            assert (refused.code, refused.reason) == ("PERMISSION_DENIED", "ROLE_MISSING")
            assert f"needs the role {needed}" in refused.message


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


def test_changes_and_denials_are_logged(guarded: Guarded) -> None:
    key = guarded.new_key("operator")
    sent = [*bearer(key), ("x-request-id", "mine")]
    asked = checkpoints.LoadCheckpointRequest(checkpoint=wire.checkpoint("no-such"))
    assert guarded.code(LOAD, sent, asked.SerializeToString()) == "NOT_FOUND"
    line = guarded.logged("operator", code="NOT_FOUND")
    wanted = {"method": LOAD, "subject": "no-such", "request_id": "mine", "logger": "acpc.access"}
    assert wanted.items() <= line.items()
    assert line["credential"] == key.split("_")[1]
    assert line["peer"].startswith("ipv4:127.0.0.1")

    answer = guarded.channel.unary_unary(SCORE)(
        wire.score().SerializeToString(), metadata=bearer(key), timeout=GENEROUS_SECONDS
    )
    name = operations_pb2.Operation.FromString(answer).name
    cancel = operations_pb2.CancelOperationRequest(name=name).SerializeToString()
    other = bearer(guarded.keys[Role.COMPUTE])
    assert guarded.code(CANCEL, other, cancel) == "PERMISSION_DENIED"
    guarded.logged("compute-only", code="PERMISSION_DENIED", method=CANCEL, subject=name)
    assert guarded.code(CANCEL, bearer(key), cancel) == "OK"
    guarded.logged("operator", code="OK", method=CANCEL, subject=name)
    assert guarded.code(SCORE, bearer(guarded.keys[Role.READ])) == "PERMISSION_DENIED"
    guarded.logged("read-only", code="PERMISSION_DENIED", method=SCORE)
    told = {line["method"] for line in guarded.server.log() if line["event"] == "access"}
    assert LIST not in told


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


ODD_HEADERS: dict[str, Metadata] = {
    "two of them": (("authorization", "Bearer {}"), ("authorization", "Bearer {}")),
    "joined with a comma": (("authorization", "Bearer {}, Bearer {}"),),
    "empty": (("authorization", "Bearer "),),
    "no scheme": (("authorization", "{}"),),
    "Basic": (("authorization", "Basic {}"),),
    "as bytes": (("authorization-bin", "Bearer {}"),),
    "under another name": (("x-authorization", "Bearer {}"),),
    "as a proxy names users": (("x-forwarded-user", "read-only"),),
}


@pytest.mark.parametrize("case", ODD_HEADERS)
def test_an_odd_header_opens_nothing(guarded: Guarded, case: str) -> None:
    key = guarded.keys[Role.READ]
    filled = [(name, value.format(key, key)) for name, value in ODD_HEADERS[case]]
    given: Any = [(name, x.encode() if name.endswith("-bin") else x) for name, x in filled]
    assert guarded.code(LIST, given) == "UNAUTHENTICATED"


def test_a_hang_up_ends_nothing(server: ServerProcess, channel: grpc.Channel) -> None:
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
    with secure(server, trusts, client) as channel:
        refused = call(channel, LIST)
    return refused.code if refused else "OK"


NAMES: list[tuple[dict[str, Any], str]] = [
    ({"common_name": "old-client"}, "old-client"),
    ({"common_name": "x", "dns": ("ci.example", "b.example")}, "ci.example"),
    ({"common_name": "x", "spiffe": "spiffe://d/ns/planner"}, "spiffe://d/ns/planner"),
    ({"common_name": "x", "spiffe": ("spiffe://d/a", "spiffe://d/b")}, "x"),
    ({"common_name": "spiffe://d/ns/planner"}, ""),
]


def test_client_certificates_and_changes_of_each_file(world: ServedWorld, tmp_path: Path) -> None:
    root, later, clients = Authority("first"), Authority("later"), Authority("clients")
    certificate, key = root.issue("localhost").write(tmp_path, "server")
    ca, keys = tmp_path / "clients.pem", tmp_path / "keys.json"
    ca.write_bytes(clients.pem)
    set_certificate_role(keys, "reader", Role.READ)
    files = {"tls_certificate": certificate, "tls_key": key, "tls_client_ca": ca}
    planner, stranger = clients.issue("planner"), Authority("clients").issue("planner")
    with (
        world.server(tmp_path / "state", keys_file=keys, **files) as server,
        secure(server, root, planner) as lasting,
    ):
        assert call(lasting, LIST) is None
        refused = call(lasting, LOAD)
        assert "needs the role admin; planner has compute" in refused.message
        with secure(server, root, clients.issue("reader")) as reader:
            assert call(reader, LIST) is None
            assert call(reader, SCORE).reason == "ROLE_MISSING"
        for given, name in NAMES:
            with secure(server, root, clients.issue(**given)) as channel:
                refused = call(channel, LOAD)
            wanted = f"needs the role admin; {name} has compute" if name else "cannot be a caller's"
            assert wanted in refused.message
        assert asked(server, root) == "UNAVAILABLE"
        assert asked(server, root, stranger) == "UNAVAILABLE"

        # What the file says counts on open connections too.
        set_certificate_role(keys, "planner", Role.ADMIN)
        wait_until(lambda: call(lasting, LOAD).reason != "ROLE_MISSING")

        def failed(words: str) -> None:
            """A file that cannot be used leaves what was read before; the log says so."""

            def told() -> bool:
                assert asked(server, root, planner) == "OK"  # files are looked at when calls come
                failures = [x["error"] for x in server.log() if x["event"] == "reload_failed"]
                return any(words in failure for failure in failures)

            wait_until(told)

        kept = keys.read_text()
        keys.write_text("broken")
        failed(str(keys))
        keys.write_text(kept)
        certificate.write_bytes(later.issue("localhost").pem)
        failed("and its key")
        key.chmod(0o644)
        failed("chmod 600")
        key.chmod(0o600)
        later.issue("localhost").write(tmp_path, "server")
        wait_until(lambda: asked(server, later, planner) == "OK")
        assert asked(server, root, planner) == "UNAVAILABLE"

        # Another authority of clients, for new connections.
        ca.write_bytes(Authority("others").pem)
        wait_until(lambda: asked(server, later, planner) == "UNAVAILABLE")
        assert call(lasting, LIST) is None
        assert server.terminate() == 0
        assert server.bugs() == []


@pytest.mark.parametrize("ways", ["insecure", "keys and TLS"])
def test_a_server_that_is_open_on_purpose_starts(
    world: ServedWorld, tmp_path: Path, ways: str
) -> None:
    insecure, given = ways == "insecure", {"host": "0.0.0.0"}  # noqa: S104
    if insecure:
        given["metrics_host"] = given["host"]
    else:
        create_key(tmp_path / "keys.json", "a", Role.READ)
        certificate, key = Authority().issue("localhost").write(tmp_path, "server")
        given |= {"tls_certificate": certificate, "tls_key": key}
        given["keys_file"] = tmp_path / "keys.json"
    environment = {"ACPC_INSECURE": "true"} if insecure else {}
    with world.server(tmp_path / "state", environment=environment, **given) as server:
        assert server.port > 0
        warned = {line["event"] for line in server.log() if line["level"] == "warning"}
        assert warned >= {"insecure", "metrics_open"} if insecure else "insecure" not in warned


def test_a_caller_leaves_others_a_quarter_of_the_streams(guarded: Guarded) -> None:
    """There are 16."""
    key, over = guarded.new_key("greedy"), threading.Event()
    try:
        held = [open_pairs(guarded, key, over) for _ in range(12)]
        refused = wire.refusal(lambda: open_pairs(guarded, key, over))
        assert (refused.code, refused.reason) == ("RESOURCE_EXHAUSTED", "TOO_MANY_STREAMS")
        assert refused.retry_after
        held += [open_pairs(guarded, guarded.keys[Role.COMPUTE], over) for _ in range(4)]
        refused = wire.refusal(lambda: open_pairs(guarded, guarded.keys[Role.ADMIN], over))
        assert refused.reason == "TOO_MANY_STREAMS"
    finally:
        over.set()
    assert not any(list(stream) for stream in held)
