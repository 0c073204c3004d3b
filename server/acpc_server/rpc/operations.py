"""google.longrunning.Operations, served as it stands, over the jobs."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from acpc.contract import JobState, Timing, moment
from google.longrunning import operations_pb2 as pb
from google.protobuf import empty_pb2
from google.rpc import error_details_pb2

from acpc_server.access import require_owner
from acpc_server.errors import InvalidArgument
from acpc_server.jobs import Job, JobFilter, JobService
from acpc_server.rpc.call import DOMAIN, Call, plain_status
from acpc_server.rpc.following import JobFollowers
from acpc_server.rpc.request import PREFIX, read_name, read_page
from acpc_server.scoring import ScoreJobKind
from acpc_server.studies import StudyJobKind

WAIT_SECONDS = 60.0
MAX_FILTER = 1000
# Of a page, which ends before it: gRPC's clients take messages of 4 MiB by default.
MAX_LIST_BYTES = 3 * 2**20
VALUE = re.compile(r'"[^"]*"|[^\s"]+')
# Between terms, not within quotes: an even number of those follows.
AND = re.compile(r'\sAND\s(?=[^"]*(?:"[^"]*"[^"]*)*$)')


class OperationWriter:
    """Writes jobs as Operations."""

    def __init__(self, kinds: Iterable[ScoreJobKind | StudyJobKind]) -> None:
        self.kinds: dict[str, Any] = {kind.name: kind for kind in kinds}
        self._last: tuple[Job, pb.Operation] | None = None

    def write(self, job: Job) -> pb.Operation:
        """Write the Operation message of a job; a listed one has no response.

        Once for all who wait for it, who are given one message and must not change it.
        """
        if (last := self._last) is not None and last[0] is job:
            return last[1]
        kind = self.kinds[job.kind]
        operation = pb.Operation(name=f"{PREFIX}{job.job_id}", done=job.state.done)
        metadata = kind.metadata(job.spec, life(job)).to_message()
        operation.metadata.Pack(metadata, deterministic=True)
        if job.state is JobState.SUCCEEDED and job.result is not None:
            answer = kind.answer(job.spec, job.result).to_message()
            operation.response.Pack(answer, deterministic=True)
        elif job.state is JobState.CANCELLED:
            operation.error.CopyFrom(plain_status("CANCELLED", "the job was cancelled"))
        elif job.failure is not None:
            failure = job.failure
            info = error_details_pb2.ErrorInfo(reason=failure.reason, domain=DOMAIN)
            operation.error.CopyFrom(plain_status(failure.code, failure.message, info))
        self._last = job, operation
        return operation


def life(job: Job) -> dict[str, Any]:
    """Return the fields of ``acpc.contract.JobLife``: state, progress, attempts and times."""
    times: dict[str, Any] = {}
    if job.started is not None:
        times["start_time"] = moment(job.started)
    if job.ended is not None:
        # A clock that was set back in between does not make a job end before it was submitted.
        started = max(job.created, job.started or job.ended)
        ended = max(started, job.ended)
        times["end_time"] = moment(job.ended)
        times["timing"] = Timing(started - job.created, ended - started, ended - job.created)
    return {
        "state": job.state,
        "create_time": moment(job.created),
        "progress": job.progress,
        "attempts": job.attempts,
        "caller": job.owner,
        "phase_seconds": job.phases,
        **times,
    }


@dataclass(frozen=True)
class OperationsServicer:
    """Get, list, cancel, wait for and delete jobs."""

    _jobs: JobService
    _writer: OperationWriter
    _followers: JobFollowers

    def GetOperation(self, request: pb.GetOperationRequest, call: Call) -> pb.Operation:
        """Return one operation."""
        job = self._jobs.get(read_name(request.name))
        return self._writer.write(job)

    def ListOperations(
        self, request: pb.ListOperationsRequest, call: Call
    ) -> pb.ListOperationsResponse:
        """List a page of operations, newest first, without their responses, which are large.

        See :func:`read_filter` for ``filter``.
        """
        if request.name not in ("", "operations"):
            raise InvalidArgument("name", f"{request.name!r}; operations live in 'operations'")
        page = read_page(request)
        wanted = read_filter(request.filter, self._writer.kinds)
        rows = self._jobs.list(page.start, len(page) + 1, wanted)
        answer, size = pb.ListOperationsResponse(), 0
        for count, job in enumerate(rows):
            written = self._writer.write(job)
            size += written.ByteSize()
            if count == len(page) or (count and size > MAX_LIST_BYTES):
                answer.next_page_token = str(page.start + count)
                break
            answer.operations.append(written)
        return answer

    def CancelOperation(self, request: pb.CancelOperationRequest, call: Call) -> empty_pb2.Empty:
        """Stop a job at its next chunk."""
        self._jobs.cancel(self._own(request.name, call))
        return empty_pb2.Empty()

    def DeleteOperation(self, request: pb.DeleteOperationRequest, call: Call) -> empty_pb2.Empty:
        """Delete a finished job."""
        self._jobs.delete(self._own(request.name, call))
        return empty_pb2.Empty()

    def _own(self, name: str, call: Call) -> str:
        """Return the id of a job that the caller may end; PermissionDenied for one of others."""
        job_id, owner = self._jobs.owner(read_name(name))
        require_owner(call.principal, owner, f"{PREFIX}{job_id}")
        return job_id

    async def WaitOperation(self, request: pb.WaitOperationRequest, call: Call) -> pb.Operation:
        """Return the operation once it is done, or as it is when the timeout passes."""
        seconds = WAIT_SECONDS
        if request.HasField("timeout"):
            seconds = request.timeout.seconds + request.timeout.nanos / 1e9
            if seconds < 0:
                raise InvalidArgument("timeout", f"{seconds} s is negative")
        if (remaining := call.remaining()) is not None:
            # Answer before the caller's own deadline rather than miss it.
            seconds = min(seconds, 0.9 * remaining)
        async with self._followers.follow(request.name, call) as changes:
            job = await changes.next()
            with suppress(TimeoutError):
                async with asyncio.timeout(min(seconds, WAIT_SECONDS)):
                    while job is not None and not job.state.done:
                        job = await changes.next()
        job = changes.job or await call.aside(self._jobs.get, read_name(request.name))
        return await call.aside(self._writer.write, job)


def read_filter(text: str, kinds: Collection[str]) -> JobFilter:
    """Read a filter of jobs: terms joined by ``AND``, each at most once.

    ``state=<state>``, ``kind=<kind>``, ``checkpoint=<name>``, ``created>=<RFC 3339 time>``; a
    value may stand in double quotes. InvalidArgument names the first bad term.
    """
    if len(text) > MAX_FILTER:
        raise InvalidArgument("filter", f"{len(text)} characters are over {MAX_FILTER}")
    states = {str(state): state for state in JobState if state}
    readers: Mapping[str, Callable[[str], Any]] = {
        "state": lambda value: states[value.lower()],
        "kind": {kind: kind for kind in kinds}.__getitem__,
        "checkpoint": str,
        "created>": _read_time,
    }
    given: dict[str, Any] = {}
    for term in AND.split(text.strip()) if text.strip() else ():
        name, _, value = term.partition("=")
        key, value = name.strip().replace(" >", ">"), value.strip()
        try:
            if key in given or not VALUE.fullmatch(value):
                raise ValueError(term)
            given[key] = readers[key](value.strip('"'))
        except (KeyError, ValueError):
            raise InvalidArgument(
                "filter",
                f"found {term!r}; join terms with AND, each at most once: state= one of "
                f"{', '.join(states)}; kind= one of {', '.join(kinds)}; checkpoint=NAME; "
                "created>= an RFC 3339 time such as 2026-01-31T08:00:00Z",
            ) from None
    labels = {name: given[name] for name in ("checkpoint",) if name in given}
    return JobFilter(given.get("state"), given.get("kind"), given.get("created>"), labels)


def _read_time(value: str) -> datetime:
    time = datetime.fromisoformat(value)
    if time.tzinfo is None:
        raise ValueError(value)
    return time
