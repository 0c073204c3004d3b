"""Attacks on the door of a server: each is a context manager that holds its calls open.

Every attack is given a :class:`Target` and yields what it managed to send. ``ATTACKS`` names them;
``watched`` tells what they did to other callers and to the server's process. Floods of frames that
gRPC's own core turns down are not among them.
"""

import asyncio
import contextlib
import socket
import struct
import threading
import time
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
from acpc.v1 import anchor_service_pb2, diagnostic_service_pb2, scoring_service_pb2
from google.longrunning import operations_pb2
from google.protobuf.message import Message
from grpc_health.v1 import health_pb2

MIB = 2**20
PAIR = "/acpc.v1.DiagnosticService/ComparePair"
UPLOAD = "/acpc.v1.AnchorService/UploadAnchors"
WAIT = "/google.longrunning.Operations/WaitOperation"
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


@dataclass(frozen=True)
class Target:
    """Where a server listens.

    Attributes:
        address: ``host:port`` of gRPC.
        metrics: ``host:port`` of ``/metrics``; empty when it is off.
        operation: Name of a job that has not ended, to wait for.
        seconds: How long an attack that repeats itself goes on.
    """

    address: str
    metrics: str = ""
    operation: str = ""
    seconds: float = 10.0


Attack = Callable[[Target], contextlib.AbstractContextManager[Notes]]


@contextmanager
def half_open(target: Target, path: str, count: int) -> Iterator[Notes]:
    """Calls that send their headers and never a body."""
    with http2.Connection(target.address) as connection:
        for _ in range(count):
            connection.call(path)
        yield {"calls": count}


@contextmanager
def whole(
    target: Target, path: str, make: Callable[[Target], Message], count: int, **options: Any
) -> Iterator[Notes]:
    """Whole calls over one connection, whose answers are left alone."""
    body = http2.message(make(target).SerializeToString())
    with http2.Connection(target.address, **options) as connection:
        for _ in range(count):
            connection.body(connection.call(path), body, end=True)
        yield {"calls": count}


def _wait(target: Target) -> Message:
    return operations_pb2.WaitOperationRequest(name=target.operation, timeout={"seconds": 60})


@contextmanager
def busy_waits(target: Target) -> Iterator[Notes]:
    """1,000 WaitOperation calls that return at once, and are asked again without end."""
    request = operations_pb2.WaitOperationRequest(name=target.operation, timeout={})
    notes: Notes = {"calls": 1000, "answered": 0}
    over = threading.Event()

    async def attack() -> None:
        async with grpc.aio.insecure_channel(target.address) as channel:
            ask = channel.unary_unary(WAIT)

            async def again() -> None:
                while not over.is_set():
                    with contextlib.suppress(grpc.RpcError):
                        await ask(request.SerializeToString())
                        notes["answered"] += 1

            await asyncio.gather(*(again() for _ in range(notes["calls"])))

    thread = threading.Thread(target=lambda: asyncio.run(attack()))
    thread.start()
    try:
        yield notes
    finally:
        over.set()
        thread.join()


@contextmanager
def silent_uploads(target: Target) -> Iterator[Notes]:
    """8 uploads that fall silent after their header."""
    header = anchor_service_pb2.UploadHeader(anchors=12, history=2, horizon=3)
    request = anchor_service_pb2.UploadAnchorsRequest(header=header)
    with http2.Connection(target.address) as connection:
        for index in range(8):
            request.header.request_id = f"silent-{index}"
            connection.body(connection.call(UPLOAD), http2.message(request.SerializeToString()))
        yield {"calls": 8}


@contextmanager
def short_bodies(target: Target) -> Iterator[Notes]:
    """20 bodies of 63 MiB that lack their last byte."""
    size, sent = 63 * MIB, [0] * 20
    body = http2.message(bytes(size - 1), length=size)
    with ExitStack() as stack:
        opened = [stack.enter_context(http2.Connection(target.address)) for _ in sent]

        def send(index: int) -> None:
            with contextlib.suppress(OSError):
                sent[index] = opened[index].body(opened[index].call(PAIR), body)

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
    with http2.Connection(target.address) as connection:
        for _ in range(4):
            number = connection.call(PAIR, (b"grpc-encoding", b"gzip"))
            connection.body(number, http2.message(bomb, compressed=True), end=True)
        yield {"calls": 4, "mib_each": round(len(bomb) / MIB, 2)}


@contextmanager
def scrape_connections(target: Target) -> Iterator[Notes]:
    """600 connections to /metrics that never finish their request."""
    host, _, port = target.metrics.rpartition(":")
    with ExitStack() as stack:
        for _ in range(600):
            opened = socket.create_connection((host, int(port)), timeout=2)
            stack.enter_context(opened).sendall(b"GET /metrics HTTP/1.1\r\n")
        yield {"connections": 600}


@contextmanager
def many_connections(target: Target) -> Iterator[Notes]:
    """200 connections, each with a call that has no body."""
    with ExitStack() as stack:
        for _ in range(200):
            stack.enter_context(http2.Connection(target.address)).call(PAIR)
        yield {"connections": 200}


@contextmanager
def rapid_reset(target: Target) -> Iterator[Notes]:
    """Calls that are reset as soon as they are made, as fast as they can be sent."""
    stop, notes = threading.Event(), {"sent": 0}
    block = http2.request_headers(PAIR)
    reset = struct.pack(">I", http2.CANCEL)

    def run(connection: http2.Connection) -> None:
        give_up = time.monotonic() + target.seconds
        with contextlib.suppress(OSError):  # the server closes the connection
            while not stop.is_set() and time.monotonic() < give_up:
                for number in [connection.stream() for _ in range(100)]:
                    connection.send(
                        http2.frame(http2.HEADERS, http2.END_HEADERS, number, block)
                        + http2.frame(http2.RST_STREAM, 0, number, reset)
                    )
                    notes["sent"] += 1

    with http2.Connection(target.address) as connection:
        thread = threading.Thread(target=run, args=(connection,))
        thread.start()
        try:
            yield notes
        finally:
            stop.set()
            thread.join()


@contextmanager
def unread_streams(target: Target) -> Iterator[Notes]:
    """32 ComparePairs streams of two pairs each whose answers are given no room to be sent."""
    request = diagnostic_service_pb2.ComparePairsRequest(pair_id="unread", pair=wire.pair())
    body = http2.message(request.SerializeToString()) * 2
    with http2.Connection(target.address, window=0) as connection:
        for _ in range(32):
            connection.body(connection.call("/acpc.v1.DiagnosticService/ComparePairs"), body)
        yield {"calls": 32}


ATTACKS: dict[str, Attack] = {
    "half_open_unary": partial(half_open, path=PAIR, count=88),
    "half_open_health": partial(half_open, path="/grpc.health.v1.Health/Check", count=4),
    "idle_Plan": partial(half_open, path="/acpc.v1.DiagnosticService/Plan", count=32),
    "idle_UploadAnchors": partial(half_open, path=UPLOAD, count=32),
    "waits": partial(whole, path=WAIT, make=_wait, count=80),
    "watches": partial(
        whole, path="/acpc.v1.ScoringService/WatchOperation", count=80,
        make=lambda target: scoring_service_pb2.WatchOperationRequest(name=target.operation),
    ),
    "health_watches": partial(
        whole, path="/grpc.health.v1.Health/Watch", count=80,
        make=lambda _: health_pb2.HealthCheckRequest(),
    ),
    "unread_answers": partial(whole, path=PAIR, make=lambda _: wire.pair(), count=88, window=0),
    "unread_streams": unread_streams,
    "busy_waits": busy_waits,
    "silent_uploads": silent_uploads,
    "short_bodies": short_bodies,
    "gzip_bombs": gzip_bombs,
    "scrape_connections": scrape_connections,
    "many_connections": many_connections,
    "rapid_reset": rapid_reset,
}  # fmt: skip
