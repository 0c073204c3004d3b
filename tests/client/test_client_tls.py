"""Transport security, against a server with a certificate made for the test."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest
from acpc_client import RetryPolicy, Tls
from acpc_client.errors import ArgumentError, ServerAway
from client_counterparty import Counterparty, serve
from credentials import Authority

pytestmark = pytest.mark.process


def get(client: Any) -> Any:
    return client.checkpoints.get("a")


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    named = Authority().issue("test", dns=("localhost",))  # not good for an address
    pem, key = named.write(tmp_path_factory.mktemp("tls"), "cert")
    return key, pem


@pytest.fixture
def files(certificate: tuple[Path, Path]) -> Path:
    """Folder of the certificate, cert.pem, and of another authority."""
    folder = certificate[1].parent
    (folder / "other").write_bytes(Authority().pem)
    return folder


@pytest.fixture
def tls_target(certificate: tuple[Path, Path], counterparty: Counterparty) -> Iterator[str]:
    key, pem = certificate
    credentials = grpc.ssl_server_credentials([(key.read_bytes(), pem.read_bytes())])
    server, address = serve(counterparty, credentials)
    yield address
    server.stop(None).wait()


@pytest.mark.parametrize("host", ["localhost", "ipv4:127.0.0.1"])
def test_the_right_authority_lets_the_call_through(
    side_of: Any, tls_target: str, certificate: tuple[Path, Path], host: str
) -> None:
    """For an address the name in the certificate may be given."""
    tls = Tls(certificate[1], server_name=None if host == "localhost" else "localhost")
    assert side_of(tls_target.replace("localhost", host)).ask(get, tls=tls).name == "a"


def test_a_certificate_of_the_clients_own_lets_it_in(
    side_of: Any, certificate: tuple[Path, Path], counterparty: Counterparty
) -> None:
    key, pem = certificate
    pair = (key.read_bytes(), pem.read_bytes())
    mutual = grpc.ssl_server_credentials([pair], pem.read_bytes(), require_client_auth=True)
    server, target = serve(counterparty, mutual)
    try:
        with pytest.raises(ServerAway, match="ACPC_CLIENT_CERTIFICATE"):
            side_of(target).ask(get, tls=Tls(pem), retry=RetryPolicy(attempts=1))
        assert side_of(target).ask(get, tls=Tls(pem, pem, key)).name == "a"
    finally:
        server.stop(None).wait()


@pytest.fixture
def port(request: pytest.FixtureRequest) -> str:
    """Of a server that speaks TLS or plain text, as the test says."""
    found: str = request.getfixturevalue(request.param)
    return found.rpartition(":")[2]


TLS, PLAIN = "tls_target", "target"
NO_TLS, OTHER = "if it speaks TLS, set ACPC_TLS_CA", "check ACPC_TLS_CA and ACPC_TLS_NAME"
MISTAKES = {
    "no TLS at a port of TLS": (TLS, None, NO_TLS),
    "TLS at a port of plain text": (PLAIN, {}, OTHER),
    "another authority": (TLS, {"ca_file": "other"}, OTHER),
    "another name": (TLS, {"server_name": "a.b"}, OTHER),
}


@pytest.mark.parametrize(
    ("port", "given", "words"), MISTAKES.values(), ids=MISTAKES, indirect=["port"]
)
def test_a_mistake_about_tls_is_one_sentence(
    side_of: Any, port: str, files: Path, given: dict[str, str] | None,
    words: str, monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    tls = (
        None
        if given is None
        else Tls(**{"ca_file": "cert.pem", "server_name": "localhost", **given})
    )
    monkeypatch.chdir(files)
    with pytest.raises(ServerAway, match=words) as raised:
        side_of(f"127.0.0.1:{port}").ask(get, tls=tls, retry=RetryPolicy(attempts=1))
    assert not re.search(r"ipv4:|\n|SSL_|try again|last error", raised.value.message)


def test_unreadable_or_half_given_files_are_refused_by_name(side_of: Any, tmp_path: Path) -> None:
    with pytest.raises(ArgumentError, match=r"tls\.ca_file: cannot read .*missing\.pem"):
        side_of("localhost:1").ask(None, tls=Tls(ca_file=tmp_path / "missing.pem"))
    with pytest.raises(ArgumentError, match="both certificate_file and key_file"):
        side_of("localhost:1").ask(None, tls=Tls(key_file=tmp_path / "key.pem"))
