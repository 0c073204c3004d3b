"""The HTTP endpoint: ``/metrics``, ``/livez`` and ``/readyz``, at a bounded cost.

One thread runs all connections on an event loop, another renders the series, so that probes are
answered while a series hangs, and where no thread is left: what servers with a thread a connection
cannot do. A connection serves one request; of too many the oldest goes.
"""

from __future__ import annotations

import asyncio
import gzip
import hmac
import http.client
import io
import socket
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from email.message import Message
from http import HTTPStatus
from typing import NamedTuple

import structlog
from prometheus_client import CollectorRegistry
from prometheus_client.exposition import choose_encoder, gzip_accepted

from acpc_server.observe.health import ServerHealth

log = structlog.get_logger("acpc.http")
MAX_CONNECTIONS = 64
MAX_HEAD_BYTES = 8 * 1024
READ_SECONDS, ANSWER_SECONDS = 5.0, 10.0
# A rendering is shared by those who ask within so many times as long as it took, so that rendering
# takes at most a fifth of a processor, however many ask.
SHARED_TIMES = 4.0
OPENMETRICS = "application/openmetrics-text"


class _Form(NamedTuple):
    """Format in which the series are requested."""

    openmetrics: bool
    gzipped: bool


class _Answer(NamedTuple):
    """A response, and until when (monotonic clock) it may be given to others."""

    status: HTTPStatus
    body: bytes
    headers: tuple[tuple[str, str], ...] = (("Content-Type", "text/plain; charset=utf-8"),)
    shared_until: float = 0.0

    def encoded(self, *, with_body: bool) -> bytes:
        headers = (*self.headers, ("Content-Length", str(len(self.body))), ("Connection", "close"))
        lines = [f"HTTP/1.1 {self.status.value} {self.status.phrase}"]
        lines += [f"{name}: {value}" for name, value in headers]
        return "\r\n".join([*lines, "", ""]).encode() + (self.body if with_body else b"")


class HttpEndpoint:
    """Serves the series of a registry, and a server's health.

    ``token`` gives the bearer token that ``/metrics`` needs; None: it needs none.
    """

    def __init__(
        self,
        registry: CollectorRegistry,
        health: ServerHealth,
        token: Callable[[], str] | None = None,
    ) -> None:
        self._registry = registry
        self._health = health
        self._token = token
        self._open: dict[asyncio.StreamWriter, None] = {}  # oldest first
        self._rendered: dict[_Form, asyncio.Future[_Answer]] = {}
        self._renderer = ThreadPoolExecutor(1, thread_name_prefix="render")
        self._stop: Callable[[], object] = lambda: None
        self._running = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self, host: str, port: int) -> int:
        """Listen; returns the port, which the system chooses when it is 0. OSError when taken."""
        family, *_, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        listener = socket.create_server((str(address[0]), port), family=family)
        bound = int(listener.getsockname()[1])
        self._renderer.submit(int)  # starts its thread while one can be had
        self._thread = threading.Thread(
            target=asyncio.run, args=(self._serve(listener),), name="http", daemon=True
        )
        self._thread.start()
        self._running.wait()
        return bound

    def stop(self) -> None:
        """Close every connection and listen no more."""
        self._stop()
        if self._thread is not None:
            self._thread.join(ANSWER_SECONDS)
        self._renderer.shutdown(wait=False)

    async def _serve(self, listener: socket.socket) -> None:
        loop, stopped = asyncio.get_running_loop(), asyncio.Event()
        self._stop = lambda: loop.call_soon_threadsafe(stopped.set)
        server = await asyncio.start_server(self._connected, sock=listener, limit=MAX_HEAD_BYTES)
        self._running.set()
        async with server:
            await stopped.wait()
            for writer in [*self._open]:  # which a server waits for from Python 3.12 on
                writer.transport.abort()

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._open[writer] = None
        if len(self._open) > MAX_CONNECTIONS:
            oldest = next(iter(self._open))
            del self._open[oldest]
            oldest.transport.abort()
        writer.transport.set_write_buffer_limits(0)  # drain waits until all is sent
        try:
            async with asyncio.timeout(READ_SECONDS):
                head = await _read_head(reader)
            async with asyncio.timeout(ANSWER_SECONDS):
                answer = await self._answer(head) if head else _plain(_TOO_LARGE)
                writer.write(answer.encoded(with_body=not head.startswith(b"HEAD ")))
                await writer.drain()
        except (OSError, EOFError, asyncio.CancelledError):  # whoever is too slow, or has gone
            pass
        finally:
            self._open.pop(writer, None)
            writer.transport.abort()

    async def _answer(self, head: bytes) -> _Answer:
        try:
            line, _, rest = head.partition(b"\r\n")
            method, target, _version = line.decode("ascii").split(" ")
            headers = http.client.parse_headers(io.BytesIO(rest))
        except (ValueError, http.client.HTTPException):
            return _plain(HTTPStatus.BAD_REQUEST)
        path = target.partition("?")[0]
        if path not in ("/metrics", "/livez", "/readyz"):
            return _plain(HTTPStatus.NOT_FOUND)
        if method not in ("GET", "HEAD"):
            return _plain(HTTPStatus.METHOD_NOT_ALLOWED, ("Allow", "GET, HEAD"))
        if path == "/metrics":
            return await self._metrics(headers)
        if path == "/livez":
            return _verdict([] if self._health.live else [self._health.sickness])
        causes = [f"{cause}: {why}" for cause, why in self._health.obstacles.items()]
        loaded = self._health.loaded()
        return _verdict(causes, [f"loaded: {', '.join(loaded)}"] if loaded else [])

    async def _metrics(self, headers: Message) -> _Answer:
        if not self._allowed(str(headers["Authorization"])):
            return _plain(HTTPStatus.UNAUTHORIZED, ("WWW-Authenticate", "Bearer"))
        form = _Form(
            OPENMETRICS in str(headers["Accept"]), gzip_accepted(headers["Accept-Encoding"])
        )
        known = self._rendered.get(form)
        if known is None or (known.done() and known.result().shared_until < time.monotonic()):
            loop = asyncio.get_running_loop()
            known = self._rendered[form] = loop.run_in_executor(self._renderer, self._render, form)
        return await asyncio.shield(known)  # others may wait for it too

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

    def _render(self, form: _Form) -> _Answer:
        started = time.monotonic()
        try:
            encode, content_type = choose_encoder(OPENMETRICS if form.openmetrics else "")
            body, headers = encode(self._registry), [("Content-Type", content_type)]
            if form.gzipped:
                body = gzip.compress(body, compresslevel=5)
                headers.append(("Content-Encoding", "gzip"))
        except Exception:  # also of memory: whoever asks next would get the same error for ever
            with suppress(Exception):
                log.exception("metrics_failed")
            return _plain(HTTPStatus.INTERNAL_SERVER_ERROR)
        now = time.monotonic()
        until = now + SHARED_TIMES * (now - started)
        return _Answer(HTTPStatus.OK, body, tuple(headers), until)


_TOO_LARGE = HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE


async def _read_head(reader: asyncio.StreamReader) -> bytes:
    """Request line and headers; empty when they are too long."""
    try:
        return await reader.readuntil(b"\r\n\r\n")
    except asyncio.LimitOverrunError:
        return b""


def _plain(status: HTTPStatus, *headers: tuple[str, str]) -> _Answer:
    return _Answer(status, f"{status.phrase}\n".encode(), headers)


def _verdict(causes: list[str], more: Sequence[str] = ()) -> _Answer:
    status = HTTPStatus.SERVICE_UNAVAILABLE if causes else HTTPStatus.OK
    lines = causes or ["ok", *more]
    return _Answer(status, "".join(f"{line}\n" for line in lines).encode())
