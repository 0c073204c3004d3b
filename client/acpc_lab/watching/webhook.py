"""Takes requests to score a checkpoint over HTTP, and answers with an operation to poll.

The request is that of axolotl's external benchmark API (github.com/axolotl-ai-cloud/axolotl, pull
request 3818), and the answers are ones that its asynchronous mode understands. One thread serves
all callers, each of whom has a bounded time for a bounded request.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import hmac
import io
import ipaddress
import json
import logging
import math
import os
import threading
from collections.abc import Mapping
from email.message import Message
from http import HTTPStatus
from http.client import HTTPException, parse_headers
from pathlib import Path
from typing import Any, Self

from acpc_client.errors import AcpcError, ArgumentError

from acpc_lab.campaigns import TaskState
from acpc_lab.integrations import EpochScore
from acpc_lab.watching.arrivals import ScoredCheckpoint, ScoringRequest
from acpc_lab.watching.finding import WeightsFile, is_text
from acpc_lab.watching.watch import Watch

EVENTS = ("save", "eval", "train_end")
_PATH = "/operations"
_MAX_HEAD = 16 * 1024
_MAX_BODY = 64 * 1024
_SECONDS = 10.0
# Of those, for the headers, and for a caller with an answer to close: in both it holds a place.
_SILENT_SECONDS = 2.0
_MAX_CONNECTIONS = 64
_MAX_PATH = 4096
_log = logging.getLogger("acpc_lab")


class RejectedRequest(Exception):
    """A request that cannot be answered as asked."""

    def __init__(self, status: HTTPStatus, code: str, message: str, field: str = "") -> None:
        super().__init__(message)
        self._status = status
        self._document = {"error": {"code": code, "field": field or None, "message": message}}

    def answer(self, *, post: bool = False) -> Answer:
        """What the caller is told; ``post``: of a path that takes POST."""
        headers: dict[HTTPStatus, Mapping[str, str]] = {
            HTTPStatus.SERVICE_UNAVAILABLE: {"Retry-After": "5"},
            HTTPStatus.UNAUTHORIZED: {"WWW-Authenticate": "Bearer"},
            HTTPStatus.METHOD_NOT_ALLOWED: {"Allow": "POST" if post else "GET"},
        }
        return Answer(self._status, self._document, headers.get(self._status, {}))


@dataclasses.dataclass(frozen=True)
class Answer:
    """What goes back."""

    status: HTTPStatus
    document: Mapping[str, Any]
    headers: Mapping[str, str] = dataclasses.field(default_factory=dict)

    def encoded(self) -> bytes:
        """The answer as HTTP/1.1."""
        body = json.dumps(self.document).encode() + b"\n"
        headers = {
            "Content-Type": "application/json",
            "Content-Length": str(len(body)),
            "Connection": "close",
            **self.headers,
        }
        lines = [f"HTTP/1.1 {self.status.value} {self.status.phrase}"]
        lines += [f"{name}: {value}" for name, value in headers.items()]
        return "\r\n".join([*lines, "", ""]).encode() + body


class Webhook:
    """Listens while its ``with`` block lasts.

    Args:
        watch: Scores what is asked for.
        host: Name or address to listen at.
        port: 0: a free one, see the attribute.
        token: What callers must send as their bearer token; empty: they need none.

    Raises:
        ArgumentError: Others can reach the address, and there is no token.
        OSError: It cannot listen there.
    """

    def __init__(self, watch: Watch, host: str, port: int, token: str = "") -> None:
        if not token and not is_loopback(host):
            raise ArgumentError("listen", f"others can reach {host}: give it a token, too")
        self._watch = watch
        self._host, self.port = host, port
        self._token = token.encode()
        self._open = 0
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)

    def __enter__(self) -> Self:
        starting = asyncio.start_server(self._serve, self._host, self.port, limit=_MAX_HEAD)
        try:
            self._server = self._loop.run_until_complete(starting)
        except BaseException:
            self._loop.close()
            raise
        self.port = self._server.sockets[0].getsockname()[1]
        self._thread.start()
        return self

    def __exit__(self, *exc_info: object) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.run_until_complete(self._end())
        self._loop.close()

    async def _end(self) -> None:
        """Hangs up on everybody."""
        self._server.close()
        left = asyncio.all_tasks(self._loop) - {asyncio.current_task()}
        for task in left:
            task.cancel()
        await asyncio.gather(*left, return_exceptions=True)
        await self._loop.shutdown_default_executor()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._open += 1
        try:
            async with asyncio.timeout(_SECONDS):
                writer.write((await self._answer(reader)).encoded())
                await writer.drain()
                writer.write_eof()
                # A caller that still sends would lose the answer if this end closed first. Of a
                # crowd nobody is waited for: each holds a file descriptor.
                async with asyncio.timeout(_SILENT_SECONDS):
                    while self._open <= 2 * _MAX_CONNECTIONS and await reader.read(_MAX_BODY):
                        pass
        except (TimeoutError, OSError, asyncio.CancelledError):
            writer.transport.abort()  # the caller has gone or is too slow, or the watch ends
        finally:
            self._open -= 1
            writer.close()
            with contextlib.suppress(OSError, asyncio.CancelledError):
                await writer.wait_closed()

    async def _answer(self, reader: asyncio.StreamReader) -> Answer:
        try:
            if self._open > _MAX_CONNECTIONS:
                raise RejectedRequest(
                    HTTPStatus.SERVICE_UNAVAILABLE, "BUSY", "too many connections; try again"
                )
            async with asyncio.timeout(_SILENT_SECONDS):
                method, path, headers = await _head(reader)
            self._admit(headers)
            if path == _PATH and method == "POST":
                document = await _body(reader, headers)
                return await asyncio.to_thread(self._take, document)
            if path.startswith(f"{_PATH}/") and method == "GET":
                return await asyncio.to_thread(self._look_up, path.removeprefix(f"{_PATH}/"))
        except RejectedRequest as rejected:
            return rejected.answer()
        except TimeoutError:
            raise
        except Exception:  # noqa: BLE001 - nobody is left without an answer
            _log.exception("the webhook failed on a request")
            words = "a fault of the watcher; its log has more"
            return RejectedRequest(HTTPStatus.INTERNAL_SERVER_ERROR, "INTERNAL", words).answer()
        known = path == _PATH or path.startswith(f"{_PATH}/")
        status = HTTPStatus.METHOD_NOT_ALLOWED if known else HTTPStatus.NOT_FOUND
        what = f"found {method} {path[:200]}, wanted POST {_PATH} or GET {_PATH}/ID"
        return RejectedRequest(status, status.name, what).answer(post=path == _PATH)

    def _admit(self, headers: Message) -> None:
        """Lets those in who have the token; without one, those who mean this machine."""
        if self._token:
            kind, _, given = headers.get("Authorization", "").partition(" ")
            fits = hmac.compare_digest(given.strip().encode("latin-1", "replace"), self._token)
            if kind.lower() != "bearer" or not fits:
                raise RejectedRequest(
                    HTTPStatus.UNAUTHORIZED, "UNAUTHENTICATED", "wants the token: Bearer TOKEN",
                    "Authorization",
                )  # fmt: skip
        elif not is_loopback(_host_of(headers.get("Host", ""))):
            # A page in a browser can be made to call here under a name of its own.
            raise RejectedRequest(
                HTTPStatus.FORBIDDEN, "PERMISSION_DENIED", "wants a name of this machine", "Host"
            )

    def _take(self, document: object) -> Answer:
        """Takes a request to score a checkpoint."""
        request = self._read(document)
        try:
            name = self._watch.ask(request)
        except (AcpcError, OSError) as error:
            words = f"cannot note it now: {error}"
            raise RejectedRequest(HTTPStatus.SERVICE_UNAVAILABLE, "UNAVAILABLE", words) from error
        answer = self._look_up(name)
        return Answer(HTTPStatus.ACCEPTED, answer.document, {"Location": f"{_PATH}/{name}"})

    def _look_up(self, name: str) -> Answer:
        """An operation as it is."""
        try:
            found = self._watch.asked(name)
        except (AcpcError, OSError) as error:
            raise RejectedRequest(
                HTTPStatus.SERVICE_UNAVAILABLE, "UNAVAILABLE", f"cannot read it now: {error}"
            ) from error
        if found is None:
            raise RejectedRequest(HTTPStatus.NOT_FOUND, "NOT_FOUND", "no such operation", "id")
        return Answer(HTTPStatus.OK, _operation(*found))

    def _read(self, document: object) -> ScoringRequest:
        """What a body asks for; other fields than the known ones are passed over."""
        if not isinstance(document, Mapping):
            raise _wrong("", "found no JSON object")
        given: dict[str, Any] = {}
        kinds = {"event": str, "step": int, "checkpoint_dir": str, "output_dir": str}
        for name, kind in kinds.items():
            value = document.get(name)
            if name not in document:
                raise _wrong(name, "is missing")
            if not isinstance(value, kind) or isinstance(value, bool):
                wanted = "text" if kind is str else "a whole number"
                raise _wrong(name, f"found {json.dumps(value)[:60]}, wanted {wanted}")
            if isinstance(value, str) and name != "checkpoint_dir" and not is_text(value):
                raise _wrong(name, f"found {value[:60]!r}, which is no Unicode text")
            if isinstance(value, str) and len(value) > _MAX_PATH:
                raise _wrong(name, f"has {len(value)} letters, wanted {_MAX_PATH} at most")
            given[name] = value
        if given["event"] not in EVENTS:
            raise _wrong("event", f"found {given['event'][:60]!r}, wanted {', '.join(EVENTS)}")
        if not 0 <= given["step"] < 2**63:
            raise _wrong("step", f"found {given['step']}, wanted 0 or more")
        found = self._weights(given["checkpoint_dir"], given["step"])
        return ScoringRequest(
            given["event"], given["step"], found.ref.name, found.ref.weights, given["output_dir"]
        )

    def _weights(self, folder: str, step: int) -> WeightsFile:
        """The weights file of a folder below the watched one."""
        finder, field = self._watch.finder, "checkpoint_dir"
        try:
            place = Path(os.path.realpath(finder.root / folder))
            place.relative_to(finder.root)
        except ValueError as error:
            wrong = f"found {folder[:200]!r}, wanted a folder below {finder.root}"
            raise _wrong(field, wrong, "OUTSIDE_ROOT") from error
        try:
            files = list(finder.below(place, alone=True))
        except OSError as error:
            raise _wrong(field, f"{folder[:200]!r}: {error.strerror}", "NO_CHECKPOINT") from error
        named = [item for item in files if self._watch.is_named(item)]
        chosen = [item for item in named if item.epoch == step] if len(named) > 1 else named
        if len(chosen) == 1:
            return chosen[0]
        names = ", ".join(item.ref.weights for item in (named or files)[:8])
        if named:
            raise _wrong(field, f"step {step} is of none or several of: {names}", "AMBIGUOUS")
        if files:
            wrong = f"the sweep file means no checkpoint called {files[0].ref.name} ({names})"
            raise _wrong(field, wrong, "NOT_IN_SWEEP")
        wrong = f"{folder[:200]!r} holds no config.json with a .pt or .safetensors beside it"
        raise _wrong(field, wrong, "NO_CHECKPOINT")


def is_loopback(host: str) -> bool:
    """Whether only this machine reaches an address, or means one by a name."""
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return host.lower() == "localhost"


def _wrong(field: str, message: str, code: str = "INVALID_ARGUMENT") -> RejectedRequest:
    return RejectedRequest(HTTPStatus.UNPROCESSABLE_ENTITY, code, message, field)


def _host_of(header: str) -> str:
    """A Host header without its port."""
    host, _, port = header.rpartition(":")
    return host if host and port.isdigit() else header


async def _head(reader: asyncio.StreamReader) -> tuple[str, str, Message]:
    """Method, path and headers."""
    wrong = RejectedRequest(HTTPStatus.BAD_REQUEST, "BAD_REQUEST", "is no HTTP/1.1 request")
    try:
        line, _, rest = (await reader.readuntil(b"\r\n\r\n")).partition(b"\r\n")
        method, path, version = line.decode("ascii").split(" ")
        headers = parse_headers(io.BytesIO(rest))
    except asyncio.LimitOverrunError as error:
        status = HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE
        raise RejectedRequest(status, "TOO_LARGE", f"headers are over {_MAX_HEAD} bytes") from error
    except (asyncio.IncompleteReadError, ValueError, HTTPException) as error:
        raise wrong from error
    if not version.startswith("HTTP/1."):
        raise wrong
    return method, path.partition("?")[0], headers


async def _body(reader: asyncio.StreamReader, headers: Message) -> object:
    """The JSON of a request."""
    if headers.get_content_type() != "application/json":  # a page in a browser cannot send that
        status = HTTPStatus.UNSUPPORTED_MEDIA_TYPE
        wanted = "wanted Content-Type: application/json"
        raise RejectedRequest(status, "UNSUPPORTED_MEDIA_TYPE", wanted, "Content-Type")
    length = headers.get("Content-Length", "")
    if not (length.isascii() and length.isdigit()):
        wanted = "wanted a Content-Length"
        raise RejectedRequest(HTTPStatus.LENGTH_REQUIRED, "LENGTH_REQUIRED", wanted)
    if len(length) > 9 or int(length) > _MAX_BODY:
        status = HTTPStatus.REQUEST_ENTITY_TOO_LARGE
        raise RejectedRequest(status, "TOO_LARGE", f"the body is over {_MAX_BODY} bytes")
    try:
        return json.loads(await reader.readexactly(int(length)))
    except (asyncio.IncompleteReadError, ValueError, RecursionError) as error:
        wrong = f"the body is no JSON: {error}"
        raise RejectedRequest(HTTPStatus.BAD_REQUEST, "BAD_JSON", wrong) from error


def _operation(request: ScoringRequest, scored: ScoredCheckpoint | None) -> dict[str, Any]:
    """An operation as JSON; axolotl reads ``status``, ``job_id`` and ``metrics``."""
    document: dict[str, Any] = {
        "job_id": request.id, "status": "queued", "event": request.event, "step": request.step,
        "checkpoint": request.checkpoint, "weights": request.weights, "verdict": None,
        "metrics": {}, "scores": [], "errors": [],
    }  # fmt: skip
    if scored is None:
        return document
    states = {item.state for item in scored.results}
    status = "completed"
    if not all(state.done for state in states):
        status = "running" if any(item.attempt for item in scored.results) else "queued"
    elif states != {TaskState.SUCCEEDED}:
        status = "failed"
    several = len({item.cell.seed for item in scored.results}) > 1
    for item in scored.results:
        cell, step = item.cell, request.step
        prefix = f"acpc/seed{cell.seed}" if several else "acpc"
        found = EpochScore(
            step, step, cell.checkpoint, cell.shift, item.operation, item.score, None
        ).metrics(prefix)
        document["metrics"] |= {name: x for name, x in found.items() if math.isfinite(x)}
        if item.code and item.score is None:
            document["errors"].append({"code": item.code, "message": item.message})
    return {**document, **scored.to_dict(), "status": status}
