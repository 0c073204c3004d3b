"""A proxy between client and server is named where no server answers."""

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest
from acpc_client import RetryPolicy
from acpc_client.errors import ServerAway
from acpc_client.transport.access import by_proxy

AWAY = "gpu-host.invalid:50051"


class Refusing(BaseHTTPRequestHandler):
    """A proxy that lets nobody through."""

    def do_CONNECT(self) -> None:
        self.send_error(403)

    def log_message(self, *_: object) -> None:
        """Writes nothing."""


@pytest.fixture
def proxy(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), Refusing) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        address = f"127.0.0.1:{server.server_port}"
        monkeypatch.delenv("grpc_proxy", raising=False)
        monkeypatch.delenv("https_proxy", raising=False)
        monkeypatch.setenv("http_proxy", f"http://me:secret@{address}/")
        monkeypatch.setenv("no_proxy", "elsewhere")
        yield address
        server.shutdown()
        thread.join()


def test_a_proxy_that_refuses_is_named_with_the_way_around_it(side_of: Any, proxy: str) -> None:
    with pytest.raises(ServerAway) as caught:
        side_of(AWAY).ask(lambda client: client.checkpoints.get("a"), retry=RetryPolicy(attempts=1))
    message = caught.value.message
    assert "HTTP proxy returned response code 403" in message
    assert f"http_proxy sends calls to it by the proxy {proxy}" in message
    assert "add gpu-host.invalid to no_proxy" in message
    assert "secret" not in message and "ipv4:" not in message
    assert not caught.value.sent


@pytest.mark.parametrize(
    ("target", "variables", "named"),
    [
        ("gpu:1", {}, ""),
        ("localhost:1", {"http_proxy": "p:1"}, ""),
        ("unix:/run/acpc.sock", {"http_proxy": "p:1"}, ""),
        ("gpu:1", {"HTTP_PROXY": "p:1"}, ""),
        ("gpu:1", {"http_proxy": "p:1"}, "http_proxy"),
        ("gpu:1", {"http_proxy": "p:1", "https_proxy": "q:1"}, "https_proxy"),
        ("gpu.lab:1", {"http_proxy": "p:1", "no_proxy": "a, .LAB"}, ""),
        ("gpu.lab:1", {"http_proxy": "p:1", "no_proxy": ",", "no_grpc_proxy": "x"}, "http_proxy"),
        ("dns:///gpu:1", {"grpc_proxy": "http://p:1"}, "grpc_proxy"),
        ("ipv4:10.0.0.1:1,10.0.0.2:1", {"http_proxy": "p:1", "no_proxy": "10.0.0.1"}, "http_proxy"),
    ],
)
def test_the_variable_is_the_one_that_grpc_reads(
    target: str, variables: dict[str, str], named: str
) -> None:
    words = by_proxy(target, variables)
    assert words.partition(" ")[0] == named
    if "10.0.0.2" in target:
        assert "add 10.0.0.2 to no_proxy" in words
