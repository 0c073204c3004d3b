"""What probes ask for, and prometheus_client's server: ``/metrics``, ``/livez``, ``/readyz``."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterable, Sequence
from http import HTTPStatus
from socketserver import TCPServer
from typing import Any
from wsgiref.simple_server import WSGIRequestHandler

from prometheus_client import CollectorRegistry, make_wsgi_app
from prometheus_client.exposition import ThreadingWSGIServer

Wsgi = Callable[[dict[str, Any], Callable[..., object]], Iterable[bytes]]
IDLE_SECONDS = 5.0  # silence that ends a connection, each of which serves one request


class ServerHealth:
    """Readiness and liveness of one process, for every probe.

    A server without an obstacle is ready; a process that is not sick is live. A sick one exits.
    ``loaded`` returns the names of the loaded checkpoints, which stand in the answer of a probe.
    """

    def __init__(self, loaded: Callable[[], Sequence[str]] = tuple) -> None:
        self.loaded = loaded
        self._obstacles: dict[str, str] = {"starting": "the server starts"}
        self.sickness = ""  # why the process may not go on; empty while it may
        self._listener: Callable[[], object] = lambda: None

    @property
    def obstacles(self) -> dict[str, str]:
        """Why the server takes no calls, by cause; empty when it is ready."""
        return dict(self._obstacles)

    @property
    def ready(self) -> bool:
        """Whether the server takes calls."""
        return not self._obstacles

    @property
    def live(self) -> bool:
        """Whether the process may go on."""
        return not self.sickness

    def block(self, cause: str, why: str) -> None:
        """Be not ready for as long as ``cause`` stands."""
        self._obstacles[cause] = why
        self._listener()

    def clear(self, cause: str) -> None:
        """Take a cause away, if it stands."""
        self._obstacles.pop(cause, None)
        self._listener()

    def fail(self, why: str) -> None:
        """Be sick, and so never ready again."""
        self.sickness = self.sickness or why
        self.block("sick", self.sickness)

    def watch(self, listener: Callable[[], object]) -> None:
        """Have ``listener`` called after every change, in the thread that made it."""
        self._listener = listener


class HttpEndpoint:
    """Serves the series of a registry, and a server's health.

    ``pages`` answers ``/`` and ``/operations/...``.
    """

    def __init__(
        self,
        registry: CollectorRegistry,
        health: ServerHealth,
        pages: Wsgi | None = None,
    ) -> None:
        self._pages = pages
        self._series = make_wsgi_app(registry)
        self._health = health
        self._server: _Server | None = None

    def start(self, host: str, port: int) -> int:
        """Listen; returns the port, which the system chooses when it is 0. OSError when taken."""
        family, *_, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        made = type("Server", (_Server,), {"address_family": family})
        self._server = server = made((str(address[0]), port), _Handler)
        server.set_app(self._answer)
        threading.Thread(target=server.serve_forever, args=(0.1,), name="http", daemon=True).start()
        return int(server.server_address[1])

    def stop(self) -> None:
        """Listen no more."""
        if self._server is not None:
            self._server.shutdown()
            self._server.server_close()

    def _answer(self, environ: dict[str, Any], start: Callable[..., object]) -> Iterable[bytes]:
        """Answer a request, as a WSGI application."""
        path, health = environ["PATH_INFO"], self._health
        if path == "/metrics":
            answer: Iterable[bytes] = self._series(environ, start)
            return answer
        if self._pages is not None and (path == "/" or path.startswith("/operations/")):
            return self._pages(environ, start)
        loaded = health.loaded()
        known = {
            "/livez": (200, ["ok"]) if health.live else (503, [health.sickness]),
            "/readyz": (200, ["ok", *([f"loaded: {', '.join(loaded)}"] * bool(loaded))]),
        }
        if not health.ready:
            known["/readyz"] = 503, [": ".join(cause) for cause in health.obstacles.items()]
        code, lines = known.get(path, (404, []))
        status = HTTPStatus(code)
        start(f"{status:d} {status.phrase}", [("Content-Type", "text/plain; charset=utf-8")])
        return ["".join(f"{line}\n" for line in lines or [status.phrase]).encode()]


class _Server(ThreadingWSGIServer):
    def server_bind(self) -> None:
        """Bind, and ask no name service who this is."""
        TCPServer.server_bind(self)
        self.server_name, self.server_port = str(self.server_address[0]), self.server_address[1]
        self.setup_environ()

    def handle_error(self, request: Any, client_address: Any) -> None:  # noqa: ANN401
        """Say nothing of whoever is too slow, or has gone."""


class _Handler(WSGIRequestHandler):
    timeout = IDLE_SECONDS

    def log_message(self, *_: object) -> None:
        """Log nothing."""
