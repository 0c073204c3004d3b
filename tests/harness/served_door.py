"""A door in this process, with whatever servicers a test gives it."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import grpc
from acpc_server.observe import Metrics
from acpc_server.rpc import Door, Ingress, ReadLimit, Receiver
from acpc_server.scheduling import CallerLimits, Quota, Resource, WorkerPool
from google.protobuf.descriptor import ServiceDescriptor


@contextmanager
def served(
    services: dict[ServiceDescriptor, object],
    *,
    total: Quota | None = None,
    slots: int = 4,
    grace: float = 0.2,
    message_seconds: float = 5.0,
    threads: int = 4,
    holds: dict[str, Resource] | None = None,
    **given: Any,  # noqa: ANN401
) -> Iterator[str]:
    """The address of a door that serves; keywords as of ``Ingress``, ``Receiver`` and ``Door``."""
    limits = CallerLimits(total or Quota())
    check = {"check": given.pop("check")} if "check" in given else {}
    ingress = Ingress(Receiver(slots, grace=grace), limits, ReadLimit(message_seconds), **check)
    door = Door(given.pop("metrics", None) or Metrics(), WorkerPool(threads), ingress, **given)
    for service, servicer in services.items():
        door.add(service, servicer, holds=holds)
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
