# Generated from aio/resources.py by client/unasync.py; do not edit.
"""Checkpoints, datasets, operations and jobs of the blocking client."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import closing
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

from acpc_client.calls import Page, PreparedCall, checkpoints, jobs
from acpc_client.results import OnProgress, Operation, StudyResult, listener
from acpc_client.sync.listing import Listing
from acpc_client.sync.transport import SyncTransport
from acpc_client.transport import check_timeout
from acpc_client.watches import WatchPlan

Answer = TypeVar("Answer")
Item = TypeVar("Item")


class Resource:
    """What the resources of a client share: the transport, and lists in pages."""

    def __init__(self, transport: SyncTransport) -> None:
        self._transport = transport

    def _pages(
        self, page: Callable[[str], PreparedCall[Page[Item]]], timeout: float | None
    ) -> Listing[Item]:
        def fetch(token: str) -> tuple[Sequence[Item], str]:
            answer = self._transport.run(page(token), timeout)
            return answer.items, answer.next_token

        return Listing(fetch)


class Checkpoints(Resource):
    """The checkpoints below the server's root."""

    def list(
        self, *, show_all: bool = False, page_size: int = 100, timeout: float | None = None
    ) -> Listing[Checkpoint]:
        """Every checkpoint; pages are fetched as they are read, ``timeout`` seconds each.

        With ``show_all`` also folders that hold something else, with ``problem`` and
        ``next_command``.
        """
        return self._pages(lambda token: checkpoints.list_page(page_size, token, show_all), timeout)

    def get(self, checkpoint: str | CheckpointRef, *, timeout: float | None = None) -> Checkpoint:
        """One checkpoint."""
        return self._transport.run(checkpoints.get(checkpoint), timeout)

    def load(
        self,
        checkpoint: str | CheckpointRef,
        *,
        pin: bool = False,
        request_id: str | None = None,
        timeout: float | None = None,
    ) -> LoadedCheckpoint:
        """Reads a checkpoint onto the device; ``pin`` keeps it there until it is unloaded."""
        return self._transport.run(checkpoints.load(checkpoint, pin, request_id), timeout)

    def unload(
        self,
        checkpoint: str | CheckpointRef,
        *,
        request_id: str | None = None,
        timeout: float | None = None,
    ) -> Checkpoint:
        """Frees the device memory of a checkpoint."""
        return self._transport.run(checkpoints.unload(checkpoint, request_id), timeout)


class Datasets(Resource):
    """The datasets below the server's root, and the tasks as which they can be read."""

    def list(self, *, page_size: int = 100, timeout: float | None = None) -> Listing[DatasetFile]:
        """Every dataset; pages are fetched as they are read, ``timeout`` seconds each."""
        return self._pages(lambda token: checkpoints.datasets_page(page_size, token), timeout)

    def tasks(self, *, page_size: int = 100, timeout: float | None = None) -> Listing[TaskSummary]:
        """Every task preset, then every task file; pages as in :meth:`list`."""
        return self._pages(lambda token: checkpoints.tasks_page(page_size, token), timeout)


class Operations(Resource):
    """The jobs of the server."""

    def list(
        self, *, filter: str = "", page_size: int = 100, timeout: float | None = None
    ) -> Listing[Operation]:
        """Every operation, newest first and without its answer, which :meth:`get` has.

        Args:
            filter: Terms joined by AND: ``state=failed``, ``kind=score_checkpoint``,
                ``checkpoint=<name>``, ``created>=2026-01-31T08:00:00Z``.
            page_size: Operations a call; pages are fetched as they are read.
            timeout: Seconds a call.
        """
        return self._pages(lambda token: jobs.list_page(filter, page_size, token), timeout)

    def get(self, name: str, *, timeout: float | None = None) -> Operation:
        """One operation as it is now."""
        return self._transport.run(jobs.get(name), timeout)

    def wait(self, name: str, *, timeout: float = jobs.WAIT.timeout) -> Operation:
        """Waits at the server for ``timeout`` seconds at most; the answer may not be done."""
        limit = check_timeout(timeout) or jobs.WAIT.timeout
        return self._transport.run(jobs.wait(name, limit), limit + jobs.WAIT_SLACK_S)

    def cancel(self, name: str, *, timeout: float | None = None) -> None:
        """Asks for a job to be cancelled; it ends as soon as it can."""
        self._transport.run(jobs.cancel(name), timeout)

    def delete(self, name: str, *, timeout: float | None = None) -> None:
        """Forgets an operation that has ended. Not tried again."""
        self._transport.run(jobs.delete(name), timeout)

    def watch(
        self, name: str, *, timeout: float | None = None, patience: float | None = None
    ) -> Iterator[Operation]:
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
                with closing(self._updates(plan)) as updates:
                    for operation in updates:
                        if plan.news(operation):
                            yield operation
                        if operation.done:
                            return
                delay = plan.ended()
            except grpc.RpcError as raised:
                delay = plan.failed(self._transport.error(raised))
            self._transport.rest(delay)

    def _updates(self, plan: WatchPlan) -> Generator[Operation, None, None]:
        """One stream of updates, or one poll."""
        call = jobs.watch(plan.name) if plan.streaming else jobs.get(plan.name)
        rpc = self._transport.rpc(call.method)
        if not plan.streaming:
            yield call.read(rpc(call.request, timeout=min(call.method.timeout, plan.segment())))
            return
        stream = rpc(call.request, timeout=plan.segment())
        try:
            for answer in stream:
                operation = call.read(answer)
                if operation.done:
                    self._transport.finish(stream)
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

    def __init__(self, operations: Operations, submitted: Operation) -> None:
        self._operations = operations
        self.name = submitted.name
        self.submitted = submitted

    def operation(self, *, timeout: float | None = None) -> Operation:
        """The job as it is now."""
        return self._operations.get(self.name, timeout=timeout)

    def progress(self, *, timeout: float | None = None) -> Progress:
        """The job's progress."""
        operation = self.operation(timeout=timeout)
        return operation.progress

    def watch(
        self, *, timeout: float | None = None, patience: float | None = None
    ) -> Iterator[Operation]:
        """The job each time it changes; see ``Operations.watch``."""
        return self._operations.watch(self.name, timeout=timeout, patience=patience)

    def result(
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
        for update in self.watch(timeout=timeout, patience=patience):
            operation = update
            tell(operation)
        return self._answer(operation)

    def cancel(self, *, timeout: float | None = None) -> None:
        """Asks for the job to be cancelled; it ends as soon as it can."""
        self._operations.cancel(self.name, timeout=timeout)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.name!r})"


class ScoreJob(_Job[Score]):
    """A scoring job at the server; its answer is a score."""

    _answer = staticmethod(Operation.result)


class StudyJob(_Job[StudyResult]):
    """A study at the server; its answer is a table of rows."""

    _answer = staticmethod(Operation.study_result)
