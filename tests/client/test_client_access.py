"""Who a client says it is: its token on every call, and never in plain text to another host."""

import logging
import os
import re
from pathlib import Path
from typing import Any

import grpc
import numpy as np
import pytest
from acpc.contract import Identity
from acpc_client import (
    AcpcClient,
    AsyncAcpcClient,
    Pair,
    Tls,
    access_from_environment,
    make_access,
)
from acpc_client.errors import ArgumentError
from acpc_client.transport.access import is_local, resolved
from client_counterparty import Counterparty
from client_messages import operation, status

WORD = "acpc_0123456789ab_very-secret"


def test_every_kind_of_call_carries_the_token(
    side: Any, counterparty: Counterparty, history: np.ndarray, blocks: np.ndarray
) -> None:
    pair = Pair(history, blocks, Identity())
    side.ask(lambda client: client.checkpoints.get("a"), token=WORD)
    side.collect(lambda client: client.compare_pairs("a", [pair]), token=WORD)
    counterparty.script.append(
        operation("operations/1", error=status(grpc.StatusCode.CANCELLED, "gone"))
    )
    side.collect(lambda client: client.operations.watch("operations/1"), token=WORD)
    plan = {
        "checkpoint": "a", "history": history, "goal": history[0],
        "past_blocks": blocks[:2], "perturbations": Identity(),
    }  # fmt: skip
    side.converse(plan, lambda session: session.certify(blocks[None]), token=WORD)
    assert len(counterparty.callers) >= 5
    assert set(counterparty.callers) == {f"Bearer {WORD}"}


def test_a_file_is_read_again_when_it_changes(
    side: Any, counterparty: Counterparty, tmp_path: Path
) -> None:
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
    assert counterparty.callers == ["Bearer one", "Bearer two"]


@pytest.mark.parametrize("target", ["gpu:1", "dns:///gpu:1", "10.0.0.1:1,127.0.0.1:1"])
def test_a_token_is_not_sent_in_plain_text_to_another_host(side_of: Any, target: str) -> None:
    with pytest.raises(ArgumentError, match="would travel in plain text") as caught:
        side_of(target).ask(None, token=WORD)
    assert WORD not in str(caught.value)
    AcpcClient(target, token=WORD, insecure=True).close()
    AcpcClient(target, token=WORD, tls=Tls()).close()


def test_what_is_meant_for_this_host_goes_by_no_proxy(
    side: Any, counterparty: Counterparty, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("no_proxy", "NO_PROXY", "no_grpc_proxy"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    side.ask(lambda client: client.checkpoints.get("a"), token=WORD)
    assert counterparty.callers == [f"Bearer {WORD}"]


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
