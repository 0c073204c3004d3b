"""Submission, listing, cancelling and recovery of jobs, on DBOS.

DBOS keeps one row a job and one row a finished step in SQLite or PostgreSQL, and at start-up
resumes what was running. It is a process-wide singleton, so a process has one JobService.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Iterator
from typing import Any

from dbos import DBOS, DBOSConfig, DBOSPortableJSONSerializer, SetWorkflowID
from dbos import WorkflowStatus as Row

from acpc_server.diagnostics import CheckpointScoring, ScorePlan
from acpc_server.errors import AlreadyExists, FailedPrecondition, NotFound
from acpc_server.jobs.record import Job, JobFailure, JobState, Progress
from acpc_server.jobs.work import Json, ScoreJob
from acpc_server.observe import Metrics

QUEUE = "acpc-score"
# Workflows of this version resume after an upgrade; raise it when the steps of a job change.
WORKFLOW_VERSION = "1"
NAMESPACE = uuid.UUID("5f6f3c1e-7c1b-4d0f-9a57-0f2b8f6d4a10")
POLL_SECONDS = 0.1
STATES = {
    "ENQUEUED": JobState.QUEUED,
    "DELAYED": JobState.QUEUED,
    "PENDING": JobState.RUNNING,
    "SUCCESS": JobState.SUCCEEDED,
    "ERROR": JobState.FAILED,
    "MAX_RECOVERY_ATTEMPTS_EXCEEDED": JobState.FAILED,
    "CANCELLED": JobState.CANCELLED,
}
_service: JobService | None = None


@DBOS.workflow(name="score_checkpoint", max_recovery_attempts=100)
def score_workflow(plan: Json) -> Json:
    """The durable body of a job; runs in the process whose service is started."""
    if _service is None:
        raise RuntimeError("no job service is started in this process")
    return _service.run(DBOS.workflow_id or "", ScorePlan.model_validate(plan))


class JobService:
    """The jobs of this server.

    Args:
        scoring: Does the measuring.
        metrics: Series for job counts.
        database_url: ``sqlite:///path`` or ``postgresql://...``.
        executor_id: Name under which this server resumes its jobs after a restart.
        concurrency: Jobs measured at the same time.
    """

    def __init__(
        self,
        scoring: CheckpointScoring,
        metrics: Metrics,
        *,
        database_url: str,
        executor_id: str,
        concurrency: int = 1,
    ) -> None:
        self._scoring = scoring
        self._metrics = metrics
        self._running: dict[str, ScoreJob] = {}
        self._concurrency = concurrency
        self._config = DBOSConfig(
            name="acpc",
            system_database_url=database_url,
            application_version=WORKFLOW_VERSION,
            executor_id=executor_id,
            serializer=DBOSPortableJSONSerializer(),
            log_level="WARNING",
        )

    def start(self) -> None:
        """Open the record and resume unfinished jobs."""
        global _service  # noqa: PLW0603  DBOS calls the workflow by name, in any thread
        _service = self
        DBOS(config=self._config)
        DBOS.launch()
        DBOS.register_queue(
            QUEUE,
            worker_concurrency=self._concurrency,
            polling_interval_sec=POLL_SECONDS,
            on_conflict="always_update",
        )
        self._metrics.jobs.labels("queued").set_function(self._queued)

    def _queued(self) -> float:
        rows = DBOS.list_workflows(status="ENQUEUED", load_input=False, load_output=False)
        return float(len(rows))

    def stop(self) -> None:
        """Close the record. Running jobs stay in it and resume at the next start."""
        DBOS.destroy()

    def submit(self, plan: ScorePlan, request_id: str) -> Job:
        """Queue a job; the same request id gives the same job.

        Raises:
            AlreadyExists: The request id belongs to a job with another plan.
        """
        job_id = str(uuid.uuid5(NAMESPACE, request_id) if request_id else uuid.uuid4())
        with SetWorkflowID(job_id):
            DBOS.enqueue_workflow(QUEUE, score_workflow, plan.model_dump(mode="json"))
        job = self.get(job_id)
        if job.plan != plan:
            raise AlreadyExists(
                f"request_id {request_id!r} was used for another job, operations/{job_id}; "
                "use a new request_id"
            )
        return job

    def run(self, job_id: str, plan: ScorePlan) -> Json:
        """Body of the workflow; called by DBOS."""
        job = ScoreJob(plan, self._scoring)
        self._running[job_id] = job
        self._count("running", 1)
        state = "failed"
        try:
            outcome = job.run()
            state = "succeeded" if "result" in outcome else "failed"
            return outcome
        finally:
            del self._running[job_id]
            self._count("running", -1)
            self._count("cancelled" if job.ticket.cancelled else state, 1)

    def _count(self, state: str, change: int) -> None:
        self._metrics.jobs.labels(state).inc(change)

    def get(self, job_id: str) -> Job:
        """The job, or NotFound."""
        row = DBOS.get_workflow_status(job_id)
        if row is None:
            raise NotFound(f"no operation is named operations/{job_id}")
        return self._job(row)

    def list(self, offset: int, limit: int, state: JobState | None) -> list[Job]:
        """Jobs, newest first."""
        statuses = [name for name, value in STATES.items() if value is state] or None
        rows = DBOS.list_workflows(
            status=statuses, limit=limit, offset=offset, sort_desc=True, name="score_checkpoint"
        )
        return [self._job(row) for row in rows]

    def cancel(self, job_id: str) -> None:
        """Stop a job at its next chunk; nothing happens to one that is done."""
        if self.get(job_id).state.done:
            return
        DBOS.cancel_workflow(job_id)
        running = self._running.get(job_id)
        if running is not None:
            running.ticket.cancel()

    def delete(self, job_id: str) -> None:
        """Forget a finished job; FailedPrecondition while it is not done."""
        if not self.get(job_id).state.done:
            raise FailedPrecondition(
                f"operations/{job_id} is not done; cancel it first", reason="OPERATION_RUNNING"
            )
        DBOS.delete_workflow(job_id)

    def wait(self, job_id: str, seconds: float, wanted: Callable[[], bool]) -> Job:
        """The job once it is done, after ``seconds``, or when nobody wants it any more."""
        give_up = time.monotonic() + seconds
        while not (job := self.get(job_id)).state.done:
            if time.monotonic() >= give_up or not wanted():
                break
            time.sleep(POLL_SECONDS)
        return job

    def watch(self, job_id: str, wanted: Callable[[], bool]) -> Iterator[Job]:
        """The job now, and again whenever it has moved, until done or no longer wanted."""
        last: tuple[JobState, Progress] | None = None
        while wanted():
            job = self.get(job_id)
            if (job.state, job.progress) != last:
                last = (job.state, job.progress)
                yield job
            if job.state.done:
                return
            time.sleep(POLL_SECONDS)

    def _job(self, row: Row) -> Job:
        state = STATES[row.status]
        arguments: Any = row.input or {}
        plan = ScorePlan.model_validate(arguments["args"][0])
        output: Json = row.output or {}
        failure = output.get("failure")
        if failure is not None:
            state = JobState.FAILED
        elif state is JobState.FAILED:
            failure = {
                "code": "INTERNAL",
                "reason": "BUG",
                "message": "the job failed; the server's log says why",
            }
        return Job(
            job_id=row.workflow_id,
            plan=plan,
            state=state,
            created=(row.created_at or 0) / 1000,
            started=None if row.dequeued_at is None else row.dequeued_at / 1000,
            ended=None if row.completed_at is None else row.completed_at / 1000,
            attempts=row.recovery_attempts or 0,
            progress=self._progress(row.workflow_id, state, plan),
            result=output.get("result"),
            failure=None if failure is None else JobFailure(**failure),
        )

    def _progress(self, job_id: str, state: JobState, plan: ScorePlan) -> Progress:
        running = self._running.get(job_id)
        if running is not None:
            return running.progress
        fresh = ScoreJob(plan, self._scoring).progress
        if state is JobState.SUCCEEDED:
            return Progress("done", fresh.total, fresh.total, 0.0)
        return fresh if state is JobState.QUEUED else Progress(state.value, 0, fresh.total)
