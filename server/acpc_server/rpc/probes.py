"""Health and reflection: the standard services that probes and tools call."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from functools import cache, partial
from typing import Any, TypeAlias

from google.protobuf import descriptor_pb2, descriptor_pool, text_format
from google.protobuf.descriptor import FileDescriptor
from grpc_health.v1 import health_pb2
from grpc_reflection.v1alpha import reflection, reflection_pb2

from acpc_server.errors import NotFound
from acpc_server.observe import ServerHealth
from acpc_server.rpc.call import Call
from acpc_server.rpc.limits import IDLE_SECONDS, ReadLimit

IDLE = ReadLimit(IDLE_SECONDS, "open a new stream for the next question", "REFLECTION_IDLE")
Answer: TypeAlias = health_pb2.HealthCheckResponse
# A name for probes that ask whether the process is to be restarted, which a busy or draining one
# is not.
LIVENESS = "liveness"


class HealthService:
    """grpc.health.v1.Health, answered on the event loop: no busy worker keeps it waiting.

    Every service, and the empty name, by readiness; one name by liveness.
    """

    def __init__(self, health: ServerHealth, services: Sequence[str] = ()) -> None:
        self._health, self._services = health, {"", *services}
        self._wake: set[Callable[[], object]] = set()  # of those who watch
        health.watch(self._moved)

    def _moved(self) -> None:  # in any thread
        for wake in tuple(self._wake):
            wake()

    async def Check(self, request: health_pb2.HealthCheckRequest, call: Call) -> Answer:
        """Answer whether a service serves now."""
        if (status := self._status(request.service)) == Answer.SERVICE_UNKNOWN:
            raise NotFound(f"no service is named {request.service[:100]!r}")
        return Answer(status=status)

    async def Watch(
        self, request: health_pb2.HealthCheckRequest, call: Call
    ) -> AsyncIterator[Answer]:
        """Answer whether a service serves, now and whenever that changes."""
        sent, moved = None, asyncio.Event()
        wake = partial(asyncio.get_running_loop().call_soon_threadsafe, moved.set)
        self._wake.add(wake)
        try:
            while True:
                moved.clear()
                status = self._status(request.service)
                if status != sent:
                    sent = status
                    yield Answer(status=status)
                await moved.wait()
        finally:
            self._wake.discard(wake)

    def _status(self, service: str) -> int:
        if service not in {*self._services, LIVENESS}:
            return int(Answer.SERVICE_UNKNOWN)
        serves = self._health.live if service == LIVENESS else self._health.ready
        return int(Answer.SERVING if serves else Answer.NOT_SERVING)


@cache
def reflection_versions() -> tuple[FileDescriptor, FileDescriptor]:
    """Return the schemas of server reflection: v1, which new tools ask first, and v1alpha.

    grpcio-reflection has v1alpha only; v1 has the same messages in another package.
    """
    pool, name = descriptor_pool.Default(), "grpc/reflection/v1/reflection.proto"
    try:
        found = pool.FindFileByName(name)
    except KeyError:
        older = descriptor_pb2.FileDescriptorProto()
        reflection_pb2.DESCRIPTOR.CopyToProto(older)
        newer = text_format.MessageToString(older).replace("v1alpha", "v1")
        made = text_format.Parse(newer, descriptor_pb2.FileDescriptorProto())
        made.name = name
        pool.AddSerializedFile(made.SerializeToString())
        found = pool.FindFileByName(name)
    return found, reflection_pb2.DESCRIPTOR


class Reflection:
    """ServerReflection of either version, a question and an answer at a time."""

    def __init__(self, services: Sequence[str]) -> None:
        files = reflection_versions()
        self.own = [name.full_name for file in files for name in file.services_by_name.values()]
        self._servicer = reflection.ReflectionServicer([*services, *self.own])

    async def ServerReflectionInfo(self, call: Call) -> AsyncIterator[Any]:
        """Describe services and messages."""
        async for question in call.messages(IDLE):
            known = reflection_pb2.ServerReflectionRequest.FromString(question.SerializeToString())
            (answer,) = self._servicer.ServerReflectionInfo(iter((known,)), None)
            yield answer
