"""Who a client says it is, and to whom: tokens, targets, TLS."""

import logging
import os
import re
from pathlib import Path
from typing import Any

import grpc
import pytest
from acpc.contract import Identity
from acpc_client import (
    AcpcClient,
    AsyncAcpcClient,
    Pair,
    RetryPolicy,
    Tls,
    access_from_environment,
    make_access,
)
from acpc_client.errors import ArgumentError, ServerAway
from acpc_client.transport.access import is_local, resolved
from client_counterparty import Counterparty, served
from client_fixtures import BLOCKS, HISTORY
from client_messages import operation, status
from credentials import Authority

WORD = "acpc_0123456789ab_very-secret"


def test_every_kind_of_call_carries_the_token(side: Any) -> None:
    pair = Pair(HISTORY, BLOCKS, Identity())
    side.ask(lambda client: client.checkpoints.get("a"), token=WORD)
    side.collect(lambda client: client.compare_pairs("a", [pair]), token=WORD)
    side.server.script.append(
        operation("operations/1", error=status(grpc.StatusCode.CANCELLED, "gone"))
    )
    side.collect(lambda client: client.operations.watch("operations/1"), token=WORD)
    plan = {
        "checkpoint": "a", "history": HISTORY, "goal": HISTORY[0],
        "past_blocks": BLOCKS[:2], "perturbations": Identity(),
    }  # fmt: skip
    side.converse(plan, lambda session: session.certify(BLOCKS[None]), token=WORD)
    assert len(side.server.callers) >= 5
    assert set(side.server.callers) == {f"Bearer {WORD}"}


def test_a_file_is_read_again_when_it_changes(side: Any, tmp_path: Path) -> None:
    file, fresh = tmp_path / "token", tmp_path / "fresh"
    file.write_text("one\n")

    def rotate() -> None:
        fresh.write_text("two\n")
        fresh.replace(file)

    with AcpcClient(side.target, token=file) as client:
        client.checkpoints.get("a")
        rotate()
        client.checkpoints.get("a")
        file.unlink()
        with pytest.raises(ArgumentError, match=r"token: cannot read .*token: No such file"):
            client.checkpoints.get("a")
    assert side.server.callers == ["Bearer one", "Bearer two"]


@pytest.mark.parametrize("target", ["gpu:1", "dns:///gpu:1", "10.0.0.1:1,127.0.0.1:1"])
def test_a_token_is_not_sent_in_plain_text_to_another_host(side_of: Any, target: str) -> None:
    with pytest.raises(ArgumentError, match="would travel in plain text") as caught:
        side_of(target).ask(None, token=WORD)
    assert WORD not in str(caught.value)
    AcpcClient(target, token=WORD, insecure=True).close()
    AcpcClient(target, token=WORD, tls=Tls()).close()


def test_what_is_meant_for_this_host_goes_by_no_proxy(
    side: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("no_proxy", "NO_PROXY", "no_grpc_proxy"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    side.ask(lambda client: client.checkpoints.get("a"), token=WORD)
    assert side.server.callers == [f"Bearer {WORD}"]


@pytest.mark.parametrize("token", ["", "two words", "line\nbreak", "späth"])
def test_a_token_that_no_header_carries_is_not_repeated_in_the_error(token: str) -> None:
    with pytest.raises(ArgumentError, match="token: ") as caught:
        AcpcClient("localhost:1", token=token)
    assert not token or token not in repr(caught.value)


HERE = [
    "localhost:1", "localhost", "127.0.0.1:1", "[::1]:1", "::1", "ipv4:127.0.0.1:1,127.0.0.2:2",
    "ipv6:[::1]:1", "dns:///localhost:1", "unix:/run/acpc", "unix:///run/acpc",
]  # fmt: skip
ELSEWHERE = [
    "gpu:1", "localhost.evil.example:1", "dns://127.0.0.1/gpu:1", "dns://10.255.255.1/localhost:1",
    "ipv4:127.0.0.1:1,10.0.0.1:2", "0.0.0.0:1", "xds:///localhost",
]  # fmt: skip


@pytest.mark.parametrize("target", [*HERE, *ELSEWHERE])
def test_what_is_on_this_host(target: str) -> None:
    assert is_local(target) is (target in HERE)


def test_several_addresses_are_one_target() -> None:
    assert resolved("10.0.0.1:1,10.0.0.2:1") == "ipv4:10.0.0.1:1,10.0.0.2:1"
    assert resolved(["[::1]:1", "[::2]:1"]) == "ipv6:[::1]:1,[::2]:1"
    assert resolved(["gpu:1"]) == resolved("gpu:1") == "gpu:1"
    assert resolved("ipv4:10.0.0.1:1,10.0.0.2:1") == "ipv4:10.0.0.1:1,10.0.0.2:1"
    for wrong in (["gpu:1", "gpu2:1"], ["10.0.0.1:1", "[::1]:1"], "10.0.0.1:1,gpu:1"):
        with pytest.raises(ArgumentError, match="dns:///name:port"):
            resolved(wrong)
    for nothing in ("", []):
        with pytest.raises(ArgumentError, match="target: found nothing"):
            resolved(nothing)


@pytest.mark.parametrize(
    "target",
    [
        "unix:", "ipv4:", "dns:///", ":50051", "gpu:99999", "http://gpu:50051", "gpu 1:50051",
        "gpu\udcff:1", "gpu:1\n",
    ],
)  # fmt: skip
def test_a_target_that_names_no_server_is_rejected(target: str) -> None:
    """Grpc would ask nobody, and say so in words of its own."""
    with pytest.raises(ArgumentError, match=re.escape(f"target: found {target}, wanted host:port")):
        resolved(target)


def test_the_environment_means_what_the_flags_mean(monkeypatch: pytest.MonkeyPatch) -> None:
    said = {
        "ACPC_TLS_CA": "ca", "ACPC_TLS_NAME": "acpc", "ACPC_CLIENT_CERTIFICATE": "c",
        "ACPC_CLIENT_KEY": "k", "ACPC_TOKEN_FILE": "t",
    }  # fmt: skip
    for name in list(os.environ):
        if name.startswith("ACPC_"):
            monkeypatch.delenv(name)
    assert access_from_environment() == {}
    for name, value in said.items():
        monkeypatch.setenv(name, value)
    assert access_from_environment() == {"tls": Tls("ca", "c", "k", "acpc"), "token": Path("t")}
    assert make_access(api_key="key") == {"token": "key"}


def test_a_key_that_everyone_can_read_is_told(
    tmp_path: Path, logged: list[logging.LogRecord]
) -> None:
    key = tmp_path / "key.pem"
    key.write_text("a key")
    key.chmod(0o644)
    Tls(certificate_file=key, key_file=key).credentials()
    (told,) = logged
    assert "chmod 600" in told.getMessage()
    key.chmod(0o640)
    Tls(certificate_file=key, key_file=key).credentials()
    assert logged == [told]


@pytest.mark.parametrize(
    ("options", "field"),
    [
        ({"target": 50051}, "target"), ({"target": b"localhost:1"}, "target"),
        ({"target": [("localhost", 1)]}, "target"), ({"timeout": "5"}, "timeout"),
        ({"patience": "5"}, "patience"),
        ({"retry": 3}, "retry"), ({"tls": True}, "tls"), ({"tls": Tls(5)}, "tls.ca_file"),
        ({"tls": Tls(server_name=5)}, "tls.server_name"), ({"token": b"secret"}, "token"),
        ({"token": lambda: None}, "token"), ({"on_away": "log"}, "on_away"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("kind", [AcpcClient, AsyncAcpcClient])
def test_an_option_of_a_wrong_type_is_named_when_the_client_is_made(
    kind: Any, options: dict[str, Any], field: str
) -> None:
    with pytest.raises(ArgumentError, match=r"found .*wanted ") as raised:
        kind(**{"target": "localhost:1", **options})
    assert raised.value.field == field
    assert "secret" not in str(raised.value)


def get(client: Any) -> Any:
    return client.checkpoints.get("a")


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder of a certificate that is not good for an address, its key, and another authority."""
    folder = tmp_path_factory.mktemp("tls")
    Authority().issue("test", dns=("localhost",)).write(folder, "cert")
    (folder / "other").write_bytes(Authority().pem)
    return folder


def credentials(files: Path, mutual: bool = False) -> grpc.ServerCredentials:
    key, pem = ((files / f"cert.{suffix}").read_bytes() for suffix in ("key", "pem"))
    trusted = pem if mutual else None
    return grpc.ssl_server_credentials([(key, pem)], trusted, require_client_auth=mutual)


@pytest.mark.process
@pytest.mark.parametrize("host", ["localhost", "ipv4:127.0.0.1"])
def test_the_right_authority_lets_the_call_through(side_of: Any, files: Path, host: str) -> None:
    """For an address the name in the certificate may be given."""
    tls = Tls(files / "cert.pem", server_name=None if host == "localhost" else "localhost")
    with served(Counterparty(), credentials(files)) as target:
        assert side_of(target.replace("localhost", host)).ask(get, tls=tls).name == "a"


@pytest.mark.process
def test_a_certificate_of_the_clients_own_lets_it_in(side_of: Any, files: Path) -> None:
    pem, key = files / "cert.pem", files / "cert.key"
    with served(Counterparty(), credentials(files, mutual=True)) as target:
        with pytest.raises(ServerAway, match="ACPC_CLIENT_CERTIFICATE"):
            side_of(target).ask(get, tls=Tls(pem), retry=RetryPolicy(attempts=1))
        assert side_of(target).ask(get, tls=Tls(pem, pem, key)).name == "a"


NO_TLS, OTHER = "if it speaks TLS, set ACPC_TLS_CA", "check ACPC_TLS_CA and ACPC_TLS_NAME"
GOOD = {"ca_file": "cert.pem", "server_name": "localhost"}
MISTAKES: dict[str, tuple[bool, dict[str, str] | None, str]] = {
    "no TLS at a port of TLS": (True, None, NO_TLS),
    "TLS at a port of plain text": (False, GOOD, OTHER),
    "another authority": (True, GOOD | {"ca_file": "other"}, OTHER),
    "another name": (True, GOOD | {"server_name": "a.b"}, OTHER),
}


@pytest.mark.process
@pytest.mark.parametrize("case", MISTAKES)
def test_a_mistake_about_tls_is_one_sentence(
    side_of: Any, case: str, files: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    of_tls, given, words = MISTAKES[case]
    monkeypatch.chdir(files)
    with served(Counterparty(), credentials(files) if of_tls else None) as target:
        address = f"127.0.0.1:{target.rpartition(':')[2]}"
        tls = None if given is None else Tls(**given)
        with pytest.raises(ServerAway, match=words) as raised:
            side_of(address).ask(get, tls=tls, retry=RetryPolicy(attempts=1))
    assert not re.search(r"ipv4:|\n|SSL_|try again|last error", raised.value.message)


def test_unreadable_or_half_given_files_are_refused_by_name(side_of: Any, tmp_path: Path) -> None:
    with pytest.raises(ArgumentError, match=r"tls\.ca_file: cannot read .*missing\.pem"):
        side_of("localhost:1").ask(None, tls=Tls(ca_file=tmp_path / "missing.pem"))
    with pytest.raises(ArgumentError, match="both certificate_file and key_file"):
        side_of("localhost:1").ask(None, tls=Tls(key_file=tmp_path / "key.pem"))
