"""Health and reflection: the standard services that probes and tools ask."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import TypeAlias

from grpc_health.v1 import health_pb2
from grpc_reflection.v1alpha import reflection

from acpc_server.errors import NotFound
from acpc_server.rpc.call import Call, Conversation, Dialogue

REFLECTION_IDLE_SECONDS = 60.0
Answer: TypeAlias = health_pb2.HealthCheckResponse


class HealthService:
    """grpc.health.v1.Health, answered on the event loop: no busy worker keeps it waiting."""

    def __init__(self) -> None:
        self._serving: dict[str, bool] = {}
        self._watching: set[tuple[asyncio.AbstractEventLoop, asyncio.Event]] = set()

    def tell(self, serving: Mapping[str, bool]) -> None:
        """Say which services serve, by name; the empty name is the server. From any thread."""
        self._serving = dict(serving)
        for loop, moved in tuple(self._watching):
            loop.call_soon_threadsafe(moved.set)

    async def Check(self, request: health_pb2.HealthCheckRequest, context: Call) -> Answer:
        """Whether a service serves now."""
        if request.service not in self._serving:
            raise NotFound(f"no service is named {request.service[:100]!r}")
        return Answer(status=self._status(request.service))

    async def Watch(
        self, request: health_pb2.HealthCheckRequest, context: Call
    ) -> AsyncIterator[Answer]:
        """Whether a service serves, now and whenever that changes."""
        told = None
        watcher = asyncio.get_running_loop(), asyncio.Event()
        self._watching.add(watcher)
        try:
            while True:
                watcher[1].clear()
                status = self._status(request.service)
                if status != told:
                    told = status
                    yield Answer(status=status)
                await watcher[1].wait()
        finally:
            self._watching.discard(watcher)

    def _status(self, service: str) -> int:
        if service not in self._serving:
            return int(Answer.SERVICE_UNKNOWN)
        return int(Answer.SERVING if self._serving[service] else Answer.NOT_SERVING)


class Reflection:
    """grpc.reflection.v1alpha.ServerReflection, a question and an answer at a time."""

    def __init__(self, services: Sequence[str]) -> None:
        self._servicer = reflection.ReflectionServicer(services)

    def ServerReflectionInfo(self, _messages: None, context: Call) -> Conversation:
        """Describe services and messages."""
        return Conversation(
            self._answered(),
            REFLECTION_IDLE_SECONDS,
            hint="open a new stream for the next question",
            reason="REFLECTION_IDLE",
        )

    def _answered(self) -> Dialogue:
        question = yield None
        while question is not None:
            (answer,) = self._servicer.ServerReflectionInfo(iter((question,)), None)
            question = yield answer
        return None
