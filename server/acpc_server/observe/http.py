"""The HTTP endpoint: ``/metrics``, ``/livez``, ``/readyz`` and pages, at a bounded cost.

A connection serves one request, in a thread of its own; of too many the oldest goes. Series are
rendered for one request at a time, so that probes are answered while a series hangs.
"""

from __future__ import annotations

import gzip
import hmac
import socket
import threading
from collections.abc import Callable
from contextlib import suppress
from email.message import Message
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from socketserver import TCPServer
from typing import Any, NamedTuple

import structlog
from prometheus_client import CollectorRegistry
from prometheus_client.exposition import choose_encoder, gzip_accepted

from acpc_server.observe.health import ServerHealth

log = structlog.get_logger("acpc.http")
MAX_CONNECTIONS = 64
# Silence that ends a connection, and how long a request waits until the series are rendered.
IDLE_SECONDS, RENDER_SECONDS = 5.0, 10.0
PLAIN = "text/plain; charset=utf-8"


class Answer(NamedTuple):
    """What a GET is answered."""

    status: HTTPStatus
    body: bytes
    headers: dict[str, str]


class HttpEndpoint:
    """Serves the series of a registry, and a server's health.

    ``token`` gives the bearer token that ``/metrics`` needs; None: it needs none. ``pages`` answers
    all other paths, from path, query and headers.
    """

    def __init__(
        self,
        registry: CollectorRegistry,
        health: ServerHealth,
        token: Callable[[], str] | None = None,
        pages: Callable[[str, str, Message], Answer] | None = None,
    ) -> None:
        self._pages = pages
        self._registry = registry
        self._health = health
        self._token = token
        self._rendering = threading.Lock()
        self._server: _Server | None = None

    def start(self, host: str, port: int) -> int:
        """Listen; returns the port, which the system chooses when it is 0. OSError when taken."""
        family, *_, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        self._server = _Server(family, (str(address[0]), port), self)
        threading.Thread(
            target=self._server.serve_forever, args=(0.1,), name="http", daemon=True
        ).start()
        return int(self._server.server_address[1])

    def stop(self) -> None:
        """Listen no more."""
        if self._server is not None:
            self._server.shutdown()
            self._server.server_close()

    def answer(self, target: str, headers: Message) -> Answer:
        """Answer a GET."""
        path, _, query = target.partition("?")
        if path == "/metrics":
            return self._metrics(headers)
        if path == "/livez":
            return _verdict([] if self._health.live else [self._health.sickness])
        if self._pages is not None and (path == "/" or path.startswith("/operations/")):
            try:
                return self._pages(path, query, headers)
            except Exception:  # a bug, or no memory
                log.exception("page_failed", path=path)
                return _plain(HTTPStatus.INTERNAL_SERVER_ERROR)
        if path != "/readyz":
            return _plain(HTTPStatus.NOT_FOUND)
        loaded = self._health.loaded()
        causes = [f"{cause}: {why}" for cause, why in self._health.obstacles.items()]
        return _verdict(causes, f"loaded: {', '.join(loaded)}" if loaded else "")

    def _metrics(self, headers: Message) -> Answer:
        if not self._allowed(str(headers["Authorization"])):
            return _plain(HTTPStatus.UNAUTHORIZED, {"WWW-Authenticate": "Bearer"})
        if not self._rendering.acquire(timeout=RENDER_SECONDS):
            return _plain(HTTPStatus.SERVICE_UNAVAILABLE)
        try:
            encode, content_type = choose_encoder(str(headers["Accept"]))
            body, told = encode(self._registry), {"Content-Type": content_type}
            if gzip_accepted(str(headers["Accept-Encoding"])):
                body, told["Content-Encoding"] = gzip.compress(body, compresslevel=5), "gzip"
        except Exception:  # also of memory
            log.exception("metrics_failed")
            return _plain(HTTPStatus.INTERNAL_SERVER_ERROR)
        finally:
            self._rendering.release()
        return Answer(HTTPStatus.OK, body, told)

    def _allowed(self, given: str) -> bool:
        if self._token is None:
            return True
        try:
            token = self._token()
            same = hmac.compare_digest(given.encode(), f"Bearer {token}".encode())
            return same and bool(token)  # an empty file opens nothing
        except Exception:  # its file cannot be read at the moment
            log.exception("metrics_token_unreadable")
            return False


class _Server(ThreadingHTTPServer):
    """Holds few connections, the newest."""

    def __init__(
        self, family: socket.AddressFamily, address: tuple[str, int], endpoint: HttpEndpoint
    ) -> None:
        self.address_family = family
        self.endpoint = endpoint
        self.open: dict[socket.socket, None] = {}  # oldest first
        super().__init__(address, _Handler)

    def server_bind(self) -> None:
        """Bind, and ask no name service who this is."""
        TCPServer.server_bind(self)

    def process_request(self, request: Any, client_address: Any) -> None:  # noqa: ANN401
        """Serve a connection in a thread of its own."""
        self.open[request] = None
        if len(self.open) > MAX_CONNECTIONS:
            with suppress(OSError, StopIteration, RuntimeError):
                next(iter(self.open)).shutdown(socket.SHUT_RDWR)
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:  # noqa: ANN401
        """Close a connection."""
        self.open.pop(request, None)
        super().shutdown_request(request)

    def handle_error(self, request: Any, client_address: Any) -> None:  # noqa: ANN401
        """Say nothing of whoever is too slow, or has gone."""


class _Handler(BaseHTTPRequestHandler):
    server: _Server
    timeout = IDLE_SECONDS
    server_version, sys_version = "acpc", ""

    def do_GET(self) -> None:
        """Answer, once."""
        answer = self.server.endpoint.answer(self.path, self.headers)
        self.send_response(answer.status)
        for name, value in (answer.headers | {"Content-Length": str(len(answer.body))}).items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(answer.body)

    do_HEAD = do_GET

    def log_message(self, *_: object) -> None:
        """Log nothing."""


def _plain(status: HTTPStatus, headers: dict[str, str] | None = None) -> Answer:
    return Answer(status, f"{status.phrase}\n".encode(), {"Content-Type": PLAIN} | (headers or {}))


def _verdict(causes: list[str], more: str = "") -> Answer:
    status = HTTPStatus.SERVICE_UNAVAILABLE if causes else HTTPStatus.OK
    lines = causes or [line for line in ("ok", more) if line]
    body = "".join(f"{line}\n" for line in lines).encode()
    return Answer(status, body, {"Content-Type": PLAIN})
