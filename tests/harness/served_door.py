"""A door in this process, with whatever servicers a test gives it."""

import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import grpc
from acpc.v1 import checkpoint_service_pb2 as pb
from acpc_server.observe import Metrics
from acpc_server.rpc import Call, Door, Limits, ReadLimit, Workers
from google.protobuf.descriptor import ServiceDescriptor
from waiting import GENEROUS_SECONDS

CHECKPOINTS = pb.DESCRIPTOR.services_by_name["CheckpointService"]


class Held:
    """Answers in a worker; a page of two entries, or what loads, once it is let go."""

    def __init__(self) -> None:
        self.begun, self.go_on = threading.Event(), threading.Event()

    def ListCheckpoints(
        self, request: pb.ListCheckpointsRequest, call: Call
    ) -> pb.ListCheckpointsResponse:
        if request.page_size == 2:
            self._wait()
        return pb.ListCheckpointsResponse(next_page_token=str(request.page_size))

    def LoadCheckpoint(
        self, request: pb.LoadCheckpointRequest, call: Call
    ) -> pb.LoadCheckpointResponse:
        self._wait()
        return pb.LoadCheckpointResponse()

    def _wait(self) -> None:
        self.begun.set()
        assert self.go_on.wait(GENEROUS_SECONDS)


@contextmanager
def served(
    services: dict[ServiceDescriptor, object],
    *,
    places: Mapping[str, int] | None = None,
    slots: int = 4,
    grace: float = 0.2,
    held_bytes: int = 2**40,
    message_seconds: float = 5.0,
    threads: int = 4,
    metrics: Metrics | None = None,
    check: Callable[[str, str, float | None], None] | None = None,
    identify: Any = None,
) -> Iterator[str]:
    """The address of a door that serves; keywords as of ``Limits`` and ``Door``."""
    limits = Limits(
        places or {},
        slots=slots,
        grace=grace,
        held_bytes=held_bytes,
        limit=ReadLimit(message_seconds),
    )
    door = Door(metrics or Metrics(), identify)
    workers = Workers(threads)
    for service, servicer in services.items():
        door.add(service, servicer, limits, workers, check)
    port = door.bind("127.0.0.1:0")
    door.start()
    try:
        yield f"127.0.0.1:{port}"
    finally:
        door.stop(0)


@contextmanager
def channel(address: str) -> Iterator[grpc.Channel]:
    with grpc.insecure_channel(address, options=[("grpc.use_local_subchannel_pool", 1)]) as opened:
        yield opened


@contextmanager
def half_open(address: str, path: str, count: int) -> Iterator[list[Any]]:
    """Calls of one connection that send their headers and no message until the block ends."""
    go_on = threading.Event()

    def silent() -> Iterator[bytes]:
        go_on.wait(GENEROUS_SECONDS)
        yield from ()

    with channel(address) as opened:
        call = opened.stream_unary(path)
        try:
            yield [call.future(silent(), timeout=GENEROUS_SECONDS) for _ in range(count)]
        finally:
            go_on.set()
