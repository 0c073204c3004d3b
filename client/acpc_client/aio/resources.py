"""Checkpoints, datasets, operations and jobs of the asyncio client."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Callable, Sequence
from contextlib import aclosing
from typing import Generic, TypeVar

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

from acpc_client.aio.listing import AsyncListing
from acpc_client.aio.transport import AsyncTransport
from acpc_client.calls import Page, PreparedCall, checkpoints, jobs
from acpc_client.results import OnProgress, Operation, StudyResult, listener
from acpc_client.transport import check_timeout
from acpc_client.watches import WatchPlan

Answer = TypeVar("Answer")
Item = TypeVar("Item")


class Resource:
    """What the resources of a client share: the transport, and lists in pages."""

    def __init__(self, transport: AsyncTransport) -> None:
        self._transport = transport

    def _pages(
        self, page: Callable[[str], PreparedCall[Page[Item]]], timeout: float | None
    ) -> AsyncListing[Item]:
        async def fetch(token: str) -> tuple[Sequence[Item], str]:
            answer = await self._transport.run(page(token), timeout)
            return answer.items, answer.next_token

        return AsyncListing(fetch)


class AsyncCheckpoints(Resource):
    """The checkpoints below the server's root."""

    def list(
        self, *, show_all: bool = False, page_size: int = 100, timeout: float | None = None
    ) -> AsyncListing[Checkpoint]:
        """Every checkpoint; pages are fetched as they are read, ``timeout`` seconds each.

        With ``show_all`` also folders that hold something else, with ``problem`` and
        ``next_command``.
        """
        return self._pages(lambda token: checkpoints.list_page(page_size, token, show_all), timeout)

    async def get(
        self, checkpoint: str | CheckpointRef, *, timeout: float | None = None
    ) -> Checkpoint:
        """One checkpoint."""
        return await self._transport.run(checkpoints.get(checkpoint), timeout)

    async def load(
        self,
        checkpoint: str | CheckpointRef,
        *,
        pin: bool = False,
        request_id: str | None = None,
        timeout: float | None = None,
    ) -> LoadedCheckpoint:
        """Reads a checkpoint onto the device; ``pin`` keeps it there until it is unloaded."""
        return await self._transport.run(checkpoints.load(checkpoint, pin, request_id), timeout)

    async def unload(
        self,
        checkpoint: str | CheckpointRef,
        *,
        request_id: str | None = None,
        timeout: float | None = None,
    ) -> Checkpoint:
        """Frees the device memory of a checkpoint."""
        return await self._transport.run(checkpoints.unload(checkpoint, request_id), timeout)


class AsyncDatasets(Resource):
    """The datasets below the server's root, and the tasks as which they can be read."""

    def list(
        self, *, page_size: int = 100, timeout: float | None = None
    ) -> AsyncListing[DatasetFile]:
        """Every dataset; pages are fetched as they are read, ``timeout`` seconds each."""
        return self._pages(lambda token: checkpoints.datasets_page(page_size, token), timeout)

    def tasks(
        self, *, page_size: int = 100, timeout: float | None = None
    ) -> AsyncListing[TaskSummary]:
        """Every task preset, then every task file; pages as in :meth:`list`."""
        return self._pages(lambda token: checkpoints.tasks_page(page_size, token), timeout)


class AsyncOperations(Resource):
    """The jobs of the server."""

    def list(
        self, *, filter: str = "", page_size: int = 100, timeout: float | None = None
    ) -> AsyncListing[Operation]:
        """Every operation, newest first and without its answer, which :meth:`get` has.

        Args:
            filter: Terms joined by AND: ``state=failed``, ``kind=score_checkpoint``,
                ``checkpoint=<name>``, ``created>=2026-01-31T08:00:00Z``.
            page_size: Operations a call; pages are fetched as they are read.
            timeout: Seconds a call.
        """
        return self._pages(lambda token: jobs.list_page(filter, page_size, token), timeout)

    async def get(self, name: str, *, timeout: float | None = None) -> Operation:
        """One operation as it is now."""
        return await self._transport.run(jobs.get(name), timeout)

    async def wait(self, name: str, *, timeout: float = jobs.WAIT.timeout) -> Operation:
        """Waits at the server for ``timeout`` seconds at most; the answer may not be done."""
        limit = check_timeout(timeout) or jobs.WAIT.timeout
        return await self._transport.run(jobs.wait(name, limit), limit + jobs.WAIT_SLACK_S)

    async def cancel(self, name: str, *, timeout: float | None = None) -> None:
        """Asks for a job to be cancelled; it ends as soon as it can."""
        await self._transport.run(jobs.cancel(name), timeout)

    async def delete(self, name: str, *, timeout: float | None = None) -> None:
        """Forgets an operation that has ended. Not tried again."""
        await self._transport.run(jobs.delete(name), timeout)

    async def watch(
        self, name: str, *, timeout: float | None = None, patience: float | None = None
    ) -> AsyncIterator[Operation]:
        """The operation each time it changes, the last one done.

        Reconnects when the stream breaks, polls when it keeps breaking, and waits while the server
        is away.

        Args:
            name: ``operations/<id>``.
            timeout: Seconds for the whole watch; None: until the operation is done.
            patience: Seconds that the server may be away at a stretch; None: the client's.

        Raises:
            DeadlineExceeded: ``timeout`` passed; the operation goes on at the server.
            ServerAway: The server was away for too long.
            NotFound: The server has no record of the operation, or has lost it.
        """
        absence = self._transport.absence(patience)
        plan = WatchPlan(self._transport.policy, absence, name, check_timeout(timeout))
        while True:
            try:
                async with aclosing(self._updates(plan)) as updates:
                    async for operation in updates:
                        if plan.news(operation):
                            yield operation
                        if operation.done:
                            return
                delay = plan.ended()
            except grpc.RpcError as raised:
                delay = plan.failed(self._transport.error(raised))
            await self._transport.rest(delay)

    async def _updates(self, plan: WatchPlan) -> AsyncGenerator[Operation, None]:
        """One stream of updates, or one poll."""
        call = jobs.watch(plan.name) if plan.streaming else jobs.get(plan.name)
        rpc = self._transport.rpc(call.method)
        if not plan.streaming:
            yield call.read(
                await rpc(call.request, timeout=min(call.method.timeout, plan.segment()))
            )
            return
        stream = rpc(call.request, timeout=plan.segment())
        try:
            async for answer in stream:
                operation = call.read(answer)
                if operation.done:
                    await self._transport.finish(stream)
                yield operation
        finally:
            stream.cancel()


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
