"""Health and reflection: the standard services that probes and tools call."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from functools import cache
from typing import Any, TypeAlias

from google.protobuf import descriptor_pb2, descriptor_pool, text_format
from google.protobuf.descriptor import FileDescriptor
from grpc_health.v1 import health_pb2
from grpc_reflection.v1alpha import reflection, reflection_pb2

from acpc_server.errors import NotFound
from acpc_server.rpc.call import Call
from acpc_server.rpc.limits import ReadLimit

IDLE = ReadLimit(60.0, "open a new stream for the next question", "REFLECTION_IDLE")
Answer: TypeAlias = health_pb2.HealthCheckResponse


class HealthService:
    """grpc.health.v1.Health, answered on the event loop: no busy worker keeps it waiting."""

    def __init__(self) -> None:
        self._serving: dict[str, bool] = {}
        self._watching: set[tuple[asyncio.AbstractEventLoop, asyncio.Event]] = set()

    def tell(self, serving: Mapping[str, bool]) -> None:
        """Set which services serve, by name; the empty name is the server. From any thread."""
        self._serving = dict(serving)
        for loop, moved in tuple(self._watching):
            loop.call_soon_threadsafe(moved.set)

    async def Check(self, request: health_pb2.HealthCheckRequest, context: Call) -> Answer:
        """Answer whether a service serves now."""
        if request.service not in self._serving:
            raise NotFound(f"no service is named {request.service[:100]!r}")
        return Answer(status=self._status(request.service))

    async def Watch(
        self, request: health_pb2.HealthCheckRequest, context: Call
    ) -> AsyncIterator[Answer]:
        """Answer whether a service serves, now and whenever that changes."""
        sent = None
        watcher = asyncio.get_running_loop(), asyncio.Event()
        self._watching.add(watcher)
        try:
            while True:
                watcher[1].clear()
                status = self._status(request.service)
                if status != sent:
                    sent = status
                    yield Answer(status=status)
                await watcher[1].wait()
        finally:
            self._watching.discard(watcher)

    def _status(self, service: str) -> int:
        if service not in self._serving:
            return int(Answer.SERVICE_UNKNOWN)
        return int(Answer.SERVING if self._serving[service] else Answer.NOT_SERVING)


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

    async def ServerReflectionInfo(self, context: Call) -> AsyncIterator[Any]:
        """Describe services and messages."""
        async for question in context.messages(IDLE):
            known = reflection_pb2.ServerReflectionRequest.FromString(question.SerializeToString())
            (answer,) = self._servicer.ServerReflectionInfo(iter((known,)), None)
            yield answer
