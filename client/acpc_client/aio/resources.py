"""Checkpoints, datasets, operations and jobs of the client."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from typing import Any, Generic, TypeAlias, TypeVar

import grpc
from acpc.contract import (
    Checkpoint,
    CheckpointRef,
    DatasetFile,
    LoadedCheckpoint,
    Progress,
    Score,
    TaskSummary,
)
from google.protobuf.duration_pb2 import Duration

from acpc_client.aio.transport import AsyncTransport
from acpc_client.calls import methods, requests
from acpc_client.calls.methods import Page, Rpc
from acpc_client.calls.options import check_timeout
from acpc_client.results.answers import Operation, StudyResult
from acpc_client.results.bar import OnProgress, listener
from acpc_client.retries import Watch

Answer = TypeVar("Answer")
Item = TypeVar("Item")
Listed: TypeAlias = list[Item]  # a class here has a method of that name
# Beyond a wait at the server itself, for the answer to arrive.
WAIT_SLACK_S = 10.0


class Resource:
    """What the resources of a client share: the transport, and lists in pages."""

    def __init__(self, transport: AsyncTransport) -> None:
        self._transport = transport

    async def _call(self, rpc: Rpc[Answer], timeout: float | None, **request: object) -> Answer:
        """The answer to a request of these fields."""
        return await self._transport.run(rpc, rpc.request(**request), timeout)

    async def _pages(
        self, rpc: Rpc[Page[Item]], timeout: float | None, **request: object
    ) -> Listed[Item]:
        """The records of every page."""
        page = await self._call(rpc, timeout, **request)
        found = [*page.items]
        while page.next_token:
            page = await self._call(rpc, timeout, page_token=page.next_token, **request)
            found += page.items
        return found


class AsyncCheckpoints(Resource):
    """The checkpoints below the server's root."""

    async def list(
        self, *, show_all: bool = False, timeout: float | None = None
    ) -> Listed[Checkpoint]:
        """Every checkpoint; ``timeout`` seconds for each page.

        With ``show_all`` also folders that hold something else, with ``problem`` and
        ``next_command``.
        """
        return await self._pages(methods.LIST_CHECKPOINTS, timeout, show_all=show_all)

    async def get(
        self, checkpoint: str | CheckpointRef, *, timeout: float | None = None
    ) -> Checkpoint:
        """One checkpoint, with what its files hold, or why they are not whole.

        The server reads them for it, once while they stay as they are.
        """
        ref = requests.reference(checkpoint)
        return await self._call(methods.GET_CHECKPOINT, timeout, checkpoint=ref)

    async def load(
        self,
        checkpoint: str | CheckpointRef,
        *,
        pin: bool = False,
        request_id: str | None = None,
        timeout: float | None = None,
    ) -> LoadedCheckpoint:
        """Reads a checkpoint onto the device; ``pin`` keeps it there until it is unloaded."""
        asked = {"checkpoint": requests.reference(checkpoint), "pin": pin}
        name = requests.identity(request_id)
        return await self._call(methods.LOAD_CHECKPOINT, timeout, request_id=name, **asked)

    async def unload(
        self,
        checkpoint: str | CheckpointRef,
        *,
        request_id: str | None = None,
        timeout: float | None = None,
    ) -> Checkpoint:
        """Frees the device memory of a checkpoint."""
        ref, name = requests.reference(checkpoint), requests.identity(request_id)
        rpc = methods.UNLOAD_CHECKPOINT
        return await self._call(rpc, timeout, request_id=name, checkpoint=ref)


class AsyncDatasets(Resource):
    """The datasets below the server's root, and the tasks as which they can be read."""

    async def list(self, *, timeout: float | None = None) -> Listed[DatasetFile]:
        """Every dataset; ``timeout`` seconds for each page."""
        return await self._pages(methods.LIST_DATASETS, timeout)

    async def tasks(self, *, timeout: float | None = None) -> Listed[TaskSummary]:
        """Every task preset, then every task file; ``timeout`` seconds for each page."""
        return await self._pages(methods.LIST_TASKS, timeout)


class AsyncOperations(Resource):
    """The jobs of the server."""

    async def list(self, *, filter: str = "", timeout: float | None = None) -> Listed[Operation]:
        """Every operation, newest first and without its answer, which :meth:`get` has.

        Args:
            filter: Terms joined by AND: ``state=failed``, ``kind=score_checkpoint``,
                ``checkpoint=<name>``, ``created>=2026-01-31T08:00:00Z``.
            timeout: Seconds for each page.
        """
        asked = {"name": "operations", "filter": filter}
        return await self._pages(methods.LIST_OPERATIONS, timeout, **asked)

    async def get(self, name: str, *, timeout: float | None = None) -> Operation:
        """One operation as it is now."""
        return await self._call(methods.GET_OPERATION, timeout, name=name)

    async def wait(self, name: str, *, timeout: float = 60.0) -> Operation:
        """Waits at the server for ``timeout`` seconds at most; the answer may not be done."""
        rpc = methods.WAIT_OPERATION
        limit = check_timeout(timeout) or rpc.timeout
        lasting = Duration()
        lasting.FromNanoseconds(int(limit * 1e9))
        request = rpc.request(name=name, timeout=lasting)
        return await self._transport.run(rpc, request, limit + WAIT_SLACK_S)

    async def cancel(self, name: str, *, timeout: float | None = None) -> None:
        """Asks for a job to be cancelled; it ends as soon as it can."""
        await self._call(methods.CANCEL_OPERATION, timeout, name=name)

    async def delete(self, name: str, *, timeout: float | None = None) -> None:
        """Forgets an operation that has ended. Not tried again."""
        await self._call(methods.DELETE_OPERATION, timeout, name=name)

    async def watch(
        self, name: str, *, timeout: float | None = None, patience: float | None = None
    ) -> AsyncIterator[Operation]:
        """The operation each time it changes, the last one done.

        Reconnects when the stream breaks, and waits while the server is away.

        Args:
            name: ``operations/<id>``.
            timeout: Seconds for the whole watch; None: until the operation is done.
            patience: Seconds that the server may be away at a stretch; None: the client's.

        Raises:
            DeadlineExceeded: ``timeout`` passed; the operation goes on at the server.
            ServerAway: The server was away for too long.
            NotFound: The server has no record of the operation, or has lost it.
        """
        watch = Watch(self._transport.absence(patience, timeout=timeout, whole=False), name)
        while True:
            request, rpc = methods.WATCH.request(name=watch.name), methods.WATCH
            stream: Any = None
            try:
                stream = self._transport.call(rpc)(request, timeout=watch.segment())
                async for answer in stream:
                    operation = rpc.read(answer)
                    if operation.done:
                        await self._transport.finish(stream)
                    if watch.news(operation):
                        yield operation
                    if operation.done:
                        return
                delay = watch.ended()
            except grpc.RpcError as raised:
                delay = watch.failed(self._transport.error(raised))
            finally:
                if stream is not None:
                    stream.cancel()
            await self._transport.rest(delay)


class _Job(Generic[Answer]):
    """A job at the server. It goes on whether or not anyone waits for it.

    Attributes:
        name: ``operations/<id>``; with it, any client can watch or cancel the job.
        submitted: The operation as the submission answered it.
    """

    _answer: Callable[[Operation], Answer]

    def __init__(self, operations: AsyncOperations, submitted: Operation) -> None:
        self._operations = operations
        self.name = submitted.name
        self.submitted = submitted

    async def operation(self, *, timeout: float | None = None) -> Operation:
        """The job as it is now."""
        return await self._operations.get(self.name, timeout=timeout)

    async def progress(self, *, timeout: float | None = None) -> Progress:
        """The job's progress."""
        operation = await self.operation(timeout=timeout)
        return operation.progress

    def watch(
        self, *, timeout: float | None = None, patience: float | None = None
    ) -> AsyncIterator[Operation]:
        """The job each time it changes; see ``Operations.watch``."""
        return self._operations.watch(self.name, timeout=timeout, patience=patience)

    async def result(
        self,
        timeout: float | None = None,
        *,
        patience: float | None = None,
        progress: bool | OnProgress = False,
    ) -> Answer:
        """Waits for the answer, ``timeout`` seconds at most; None: until the job ends.

        For ``patience`` see ``Operations.watch``. ``progress=True`` shows a bar on stderr; a
        function is called with each change instead.

        Raises:
            Cancelled: The job was cancelled.
            DeadlineExceeded: ``timeout`` passed; the job goes on.
            ServerAway: The server was away for too long; the job goes on, or resumes with it.
            AcpcError: Why the job ended without an answer.
        """
        operation, tell = self.submitted, listener(progress)
        async for update in self.watch(timeout=timeout, patience=patience):
            operation = update
            tell(operation)
        return self._answer(operation)

    async def cancel(self, *, timeout: float | None = None) -> None:
        """Asks for the job to be cancelled; it ends as soon as it can."""
        await self._operations.cancel(self.name, timeout=timeout)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.name!r})"


class AsyncScoreJob(_Job[Score]):
    """A scoring job at the server; its answer is a score."""

    _answer = staticmethod(Operation.result)


class AsyncStudyJob(_Job[StudyResult]):
    """A study at the server; its answer is a table of rows."""

    _answer = staticmethod(Operation.study_result)
