"""Rows of the record as jobs."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from dbos import DBOS
from dbos import WorkflowStatus as Row
from pydantic import ValidationError

from acpc_server.errors import FailedPrecondition, NotFound
from acpc_server.jobs.database import JobDatabase
from acpc_server.jobs.kind import JobKind
from acpc_server.jobs.record import Job, JobFailure, JobFilter, JobState, Progress
from acpc_server.jobs.running import RunningJobs

STATES = {
    "ENQUEUED": JobState.QUEUED,
    "DELAYED": JobState.QUEUED,
    "PENDING": JobState.RUNNING,
    "SUCCESS": JobState.SUCCEEDED,
    "ERROR": JobState.FAILED,
    "MAX_RECOVERY_ATTEMPTS_EXCEEDED": JobState.FAILED,
    "CANCELLED": JobState.CANCELLED,
}
ENDED = [status for status, state in STATES.items() if state.done]
# Hosts tell how far their jobs are about once a second.
REPORT_SECONDS = 1.0


class JobReader:
    """Reads jobs of every kind.

    Args:
        kinds: By their names.
        running: The jobs of this host, whose progress is known without asking.
        database: Where the other hosts say how far theirs are.
    """

    def __init__(
        self, kinds: Mapping[str, JobKind[Any]], running: RunningJobs, database: JobDatabase
    ) -> None:
        self._kinds = kinds
        self._running = running
        self._database = database
        self._lock = threading.Lock()
        self._reports: dict[str, Progress] = {}
        self._reported = -REPORT_SECONDS

    def get(self, job_id: str) -> Job:
        """The job, with its result if it has one.

        Raises:
            NotFound: There is no such job.
            FailedPrecondition: A newer release accepted it, in a form that this one cannot read.
        """
        row = DBOS.get_workflow_status(job_id)
        if row is None or row.name not in self._kinds:
            raise NotFound(f"no operation is named operations/{job_id}")
        for job in self._jobs([row]):
            return job
        raise FailedPrecondition(
            f"operations/{job_id} was submitted to a newer release; ask a server of that release",
            reason="NEWER_RELEASE",
        )

    def page(self, offset: int, limit: int, wanted: JobFilter) -> list[Job]:
        """Jobs without their results, newest first; those of a newer release are left out."""
        statuses = [status for status, state in STATES.items() if state is wanted.state]
        ids = self._database.page(
            offset=offset,
            limit=limit,
            kinds=list(self._kinds) if wanted.kind is None else [wanted.kind],
            statuses=statuses,
            checkpoint=wanted.checkpoint,
            created_since=wanted.created_since,
        )
        if not ids:
            return []
        rows = {
            row.workflow_id: row for row in DBOS.list_workflows(workflow_ids=ids, load_output=False)
        }
        failed = [job_id for job_id, row in rows.items() if row.status == "ERROR"]
        if failed:  # a failure is small, and tells more than that there was one
            rows |= {row.workflow_id: row for row in DBOS.list_workflows(workflow_ids=failed)}
        return self._jobs([rows[job_id] for job_id in ids if job_id in rows])

    def _jobs(self, rows: Sequence[Row]) -> list[Job]:
        asked = [row.workflow_id for row in rows if self._must_count(row)]
        recorded = self._database.steps(asked) if asked else {}
        jobs = (self._job(row, recorded.get(row.workflow_id, 0)) for row in rows)
        return [job for job in jobs if job is not None]

    def _must_count(self, row: Row) -> bool:
        started = bool(row.recovery_attempts)
        here = self._running.progress(row.workflow_id) is not None
        return started and not here and row.status != "SUCCESS"

    def _job(self, row: Row, recorded: int) -> Job | None:
        kind, state = self._kinds[row.name], STATES[row.status]
        arguments: Any = row.input or {}
        try:
            plan = kind.plan_type.model_validate(arguments["args"][0])
        except ValidationError:
            return None
        output: Any = row.output or {}
        total = kind.count_steps(plan)
        return Job(
            job_id=row.workflow_id,
            kind=kind.name,
            plan=plan,
            state=state,
            created=(row.created_at or 0) / 1000,
            started=None if row.dequeued_at is None else row.dequeued_at / 1000,
            ended=None if row.completed_at is None else row.completed_at / 1000,
            attempts=row.recovery_attempts or 0,
            progress=self._progress(row.workflow_id, state, recorded, total),
            result=output or None,
            failure=_failure(row) if state is JobState.FAILED else None,
        )

    def _progress(self, job_id: str, state: JobState, recorded: int, total: int) -> Progress:
        if state is JobState.SUCCEEDED:
            return Progress("done", total, total)
        if state is JobState.RUNNING:
            live = self._running.progress(job_id) or self._elsewhere().get(job_id)
            if live is not None:  # another host's report may be older than the record
                return replace(live, completed=max(live.completed, recorded))
        phase = "waiting" if state is JobState.QUEUED else state.value
        return Progress(phase, recorded, total)

    def _elsewhere(self) -> dict[str, Progress]:
        """Progress of the jobs of every host, at most a second after it was told."""
        with self._lock:
            if time.monotonic() - self._reported >= REPORT_SECONDS:
                self._reports = {
                    job_id: Progress(**progress)
                    for host in self._database.hosts().values()
                    for job_id, progress in json.loads(host.running).items()
                }
                self._reported = time.monotonic()
            return self._reports


def _failure(row: Row) -> JobFailure:
    data = getattr(row.error, "data", None)
    if data is not None:
        return JobFailure(**data)
    if row.status == "MAX_RECOVERY_ATTEMPTS_EXCEEDED":
        return JobFailure(
            "ABORTED",
            "TOO_MANY_STARTS",
            f"given up after {row.recovery_attempts} starts, none of which its server outlived",
        )
    return JobFailure("INTERNAL", "BUG", "the job failed; the server's log says why")
