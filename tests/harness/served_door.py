"""A door in this process, with whatever servicers a test gives it."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import grpc
from acpc_server.observe import Metrics
from acpc_server.rpc import Call, Door, Limits, ReadLimit, Service, Workers
from google.protobuf.descriptor import ServiceDescriptor


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
    check: Callable[[Call], None] | None = None,
    uploads: Sequence[str] = (),
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
        door.add(service, Service(servicer, limits, workers, check, uploads))
    port = door.bind("127.0.0.1:0")
    door.start()
    try:
        yield f"127.0.0.1:{port}"
    finally:
        door.stop(0)


@contextmanager
def channel(address: str) -> Iterator[grpc.Channel]:
    """A connection of its own, as another caller has."""
    with grpc.insecure_channel(address, options=[("grpc.use_local_subchannel_pool", 1)]) as opened:
        yield opened
