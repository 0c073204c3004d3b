"""Jobs as google.longrunning.Operations, and the filter of their lists."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Mapping
from datetime import datetime
from typing import Any

from acpc.contract import JobState, Timing, moment
from google.longrunning import operations_pb2 as pb
from google.rpc import error_details_pb2

from acpc_server.errors import InvalidArgument
from acpc_server.jobs import Job, JobFilter
from acpc_server.rpc.call import DOMAIN, plain_status
from acpc_server.rpc.request import PREFIX
from acpc_server.scoring import ScoreJobKind
from acpc_server.studies import StudyJobKind

MAX_FILTER = 1000
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
