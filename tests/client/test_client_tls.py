"""Transport security, against a server with a certificate made for the test."""

# ruff: noqa: ANN401 - a side is either client

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
import processes
import pytest
from acpc_client.errors import ArgumentError, Unavailable
from acpc_client.retries import RetryPolicy
from acpc_client.transport.channel import Tls
from client_counterparty import Counterparty, serve

pytestmark = pytest.mark.process


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    folder = tmp_path_factory.mktemp("tls")
    key, pem = folder / "key.pem", folder / "cert.pem"
    processes.run(
        [
            "openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2",
            "-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost",
            "-keyout", key, "-out", pem,
        ]
    )  # fmt: skip
    return key, pem


@pytest.fixture
def tls_target(certificate: tuple[Path, Path], counterparty: Counterparty) -> Iterator[str]:
    key, pem = certificate
    credentials = grpc.ssl_server_credentials([(key.read_bytes(), pem.read_bytes())])
    server, address = serve(counterparty, credentials)
    yield address
    server.stop(None).wait()


def test_the_right_authority_lets_the_call_through(
    side_of: Any, tls_target: str, certificate: tuple[Path, Path]
) -> None:
    tls = Tls(ca_file=certificate[1])
    found = side_of(tls_target).ask(lambda client: client.checkpoints.get("a"), tls=tls)
    assert found.name == "a"


def test_the_name_in_the_certificate_may_be_given_for_an_address(
    side_of: Any, tls_target: str, certificate: tuple[Path, Path]
) -> None:
    target = tls_target.replace("localhost", "ipv4:127.0.0.1")
    once = {"retry": RetryPolicy(attempts=1)}
    with pytest.raises(Unavailable):
        side_of(target).ask(
            lambda client: client.checkpoints.get("a"), tls=Tls(certificate[1]), **once
        )
    tls = Tls(certificate[1], server_name="localhost")
    assert side_of(target).ask(lambda client: client.checkpoints.get("a"), tls=tls).name == "a"


def test_a_certificate_of_the_clients_own_lets_it_in(
    side_of: Any, certificate: tuple[Path, Path], counterparty: Counterparty
) -> None:
    key, pem = certificate
    pair = (key.read_bytes(), pem.read_bytes())
    mutual = grpc.ssl_server_credentials([pair], pem.read_bytes(), require_client_auth=True)
    server, target = serve(counterparty, mutual)
    try:
        get = lambda client: client.checkpoints.get("a")  # noqa: E731
        with pytest.raises(Unavailable):
            side_of(target).ask(get, tls=Tls(pem), retry=RetryPolicy(attempts=1))
        assert side_of(target).ask(get, tls=Tls(pem, pem, key)).name == "a"
    finally:
        server.stop(None).wait()


def test_no_tls_against_a_tls_server_is_unavailable(side_of: Any, tls_target: str) -> None:
    with pytest.raises(Unavailable):
        side_of(tls_target).ask(lambda client: client.checkpoints.get("a"))


def test_unreadable_or_half_given_files_are_refused_by_name(side_of: Any, tmp_path: Path) -> None:
    with pytest.raises(ArgumentError, match=r"tls\.ca_file: cannot read .*missing\.pem"):
        side_of("localhost:1").ask(None, tls=Tls(ca_file=tmp_path / "missing.pem"))
    with pytest.raises(ArgumentError, match="both certificate_file and key_file"):
        side_of("localhost:1").ask(None, tls=Tls(key_file=tmp_path / "key.pem"))
