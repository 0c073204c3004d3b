"""Submission, listing, cancelling and recovery of jobs, on DBOS.

DBOS keeps one row a job and one row a finished step in SQLite or PostgreSQL, and at start-up
resumes what was running. It is a process-wide singleton, so a process has one JobService.
"""

from __future__ import annotations

import logging
import threading
import time
import uuid
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from typing import Any

import structlog
from dbos import DBOS, DBOSConfig, DBOSPortableJSONSerializer, SetWorkflowID
from dbos import WorkflowStatus as Row
from pydantic import BaseModel
from sqlalchemy.exc import SQLAlchemyError

from acpc_server.diagnostics import JobKind, Json
from acpc_server.errors import AlreadyExists, FailedPrecondition, NotFound, Unavailable
from acpc_server.jobs.record import Job, JobFailure, JobState, Progress
from acpc_server.jobs.work import JobRun
from acpc_server.observe import Metrics

log = structlog.get_logger("acpc.jobs")
QUEUE = "acpc-score"
# Workflows of this version resume after an upgrade; raise it when the steps of a job change.
WORKFLOW_VERSION = "1"
NAMESPACE = uuid.UUID("5f6f3c1e-7c1b-4d0f-9a57-0f2b8f6d4a10")
POLL_SECONDS = 0.1
# A withdrawn job leaves at its next chunk; reading anchors takes longest.
LEAVE_SECONDS = 10.0
# Jobs that may lie between the end of their run and its entry in the record.
UNRECORDED = 256
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


@cache
def _workflow(kind: str) -> Callable[[Json, str], Json]:
    """The durable body of the jobs of one kind; DBOS knows it by the kind's name."""

    @DBOS.workflow(name=kind, max_recovery_attempts=100)
    def run_job(plan: Json, stamp: str) -> Json:
        if _service is None:
            raise RuntimeError("no job service is started in this process")
        return _service.run(kind, DBOS.workflow_id or "", plan, stamp)

    return run_job


class JobService:
    """The jobs of this server.

    Args:
        kinds: What jobs there are; each has a plan type of its own.
        metrics: Series for job counts.
        database_url: ``sqlite:///path`` or ``postgresql://...``.
        executor_id: Name under which this server resumes its jobs after a restart.
        concurrency: Jobs measured at the same time.
    """

    def __init__(
        self,
        kinds: Sequence[JobKind[Any]],
        metrics: Metrics,
        *,
        database_url: str,
        executor_id: str,
        concurrency: int = 1,
    ) -> None:
        self._kinds = {kind.name: kind for kind in kinds}
        self._kind_of = {kind.plan_type: kind for kind in kinds}
        for name in self._kinds:
            _workflow(name)
        self._metrics = metrics
        self._running: dict[str, JobRun] = {}
        self._ended: deque[str] = deque(maxlen=UNRECORDED)
        self._changed = threading.Condition()  # guards both, and the counts of ended jobs
        self._draining = threading.Event()
        self._closed = threading.Event()
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
        """Open the record and resume unfinished jobs.

        Raises:
            FailedPrecondition: The database cannot be opened.
        """
        global _service  # noqa: PLW0603  DBOS calls the workflow by name, in any thread
        _service = self
        try:
            self._open()
        except (SQLAlchemyError, ImportError) as error:
            DBOS.destroy()
            cause = str(getattr(error, "orig", None) or error).partition("\n")[0]
            raise FailedPrecondition(
                f"cannot open the job record ({cause}); see --jobs-url and --state-dir"
            ) from error
        DBOS.register_queue(
            QUEUE,
            worker_concurrency=self._concurrency,
            polling_interval_sec=POLL_SECONDS,
            on_conflict="always_update",
        )
        self._metrics.jobs.labels("queued").set_function(self._queued)

    def _open(self) -> None:
        DBOS(config=self._config)
        # DBOS prints to a handler of its own; its lines belong into the server's log.
        library = logging.getLogger("dbos")
        library.handlers.clear()
        library.propagate = True
        DBOS.launch()

    def _queued(self) -> float:
        if self._closed.is_set():
            return 0.0
        rows = DBOS.list_workflows(status="ENQUEUED", load_input=False, load_output=False)
        return float(len(rows))

    def drain(self) -> None:
        """End every wait and watch, so that they do not hold up the server's stop."""
        self._draining.set()

    def stop(self) -> None:
        """Withdraw running jobs and close the record; they resume at the next start."""
        self.drain()
        with self._changed:
            for job in self._running.values():
                job.ticket.cancel()
            self._changed.wait_for(lambda: not self._running, LEAVE_SECONDS)
        DBOS.destroy()
        self._closed.set()

    def submit(self, plan: BaseModel, request_id: str) -> Job:
        """Queue a job of the kind the plan belongs to; the same request id gives the same job.

        Raises:
            AlreadyExists: The request id belongs to a job with another plan.
        """
        job_id = str(uuid.uuid5(NAMESPACE, request_id) if request_id else uuid.uuid4())
        kind = self._kind_of[type(plan)]
        with SetWorkflowID(job_id):
            DBOS.enqueue_workflow(
                QUEUE, _workflow(kind.name), plan.model_dump(mode="json"), kind.stamp(plan)
            )
        job = self.get(job_id)
        if job.plan != plan:
            raise AlreadyExists(
                f"request_id {request_id!r} was used for another job, operations/{job_id}; "
                "use a new request_id"
            )
        log.info("job_submitted", job=job_id, kind=kind.name)
        return job

    def run(self, kind_name: str, job_id: str, plan: Json, stamp: str) -> Json:
        """Body of the workflow; called by DBOS."""
        with structlog.contextvars.bound_contextvars(job=job_id, kind=kind_name):
            log.info("job_started")
            kind = self._kinds[kind_name]
            job = JobRun(kind, kind.plan_type.model_validate(plan), stamp)
            with self._changed:
                self._running[job_id] = job
                self._count("running", 1)
                if self._draining.is_set():
                    job.ticket.cancel()
            end = "withdrawn"
            try:
                outcome = job.run()
                end = "succeeded" if "result" in outcome else "failed"
                return outcome
            except Exception:
                end = "failed"
                raise
            finally:
                self._leave(job_id, job, end)
                log.info("job_ended", end=end)
                if end == "withdrawn" and self._draining.is_set():
                    self._closed.wait()  # hold the queue's slot, so that no further job starts

    def _leave(self, job_id: str, job: JobRun, end: str) -> None:
        with self._changed:
            if self._running.get(job_id) is job:  # not its successor of the same request id
                del self._running[job_id]
            self._count("running", -1)
            if end != "withdrawn" and not job.ticket.cancelled:
                self._ended.append(job_id)
                self._count(end, 1)
            self._changed.notify_all()

    def _count(self, state: str, change: int) -> None:
        self._metrics.jobs.labels(state).inc(change)

    def get(self, job_id: str) -> Job:
        """The job, or NotFound."""
        row = DBOS.get_workflow_status(job_id)
        if row is None or row.name not in self._kinds:
            raise NotFound(f"no operation is named operations/{job_id}")
        return self._job(row)

    def list(self, offset: int, limit: int, state: JobState | None) -> list[Job]:
        """Jobs, newest first."""
        statuses = [name for name, value in STATES.items() if value is state] or None
        rows = DBOS.list_workflows(
            status=statuses, limit=limit, offset=offset, sort_desc=True, name=list(self._kinds)
        )
        return [self._job(row) for row in rows]

    def cancel(self, job_id: str) -> None:
        """Stop a job at its next chunk; nothing happens to one that is done."""
        with self._changed:
            if self.get(job_id).state.done or job_id in self._ended:
                return
            # The ticket first: a run that finds itself cancelled only in the record is reported
            # as an error by DBOS.
            running = self._running.get(job_id)
            if running is not None:
                running.ticket.cancel()
            DBOS.cancel_workflow(job_id)
            self._count("cancelled", 1)
        log.info("job_cancelled", job=job_id)

    def delete(self, job_id: str) -> None:
        """Forget a finished job; FailedPrecondition while it is not done."""
        if not self.get(job_id).state.done:
            raise FailedPrecondition(
                f"operations/{job_id} is not done; cancel it first", reason="OPERATION_RUNNING"
            )
        with self._changed:
            DBOS.delete_workflow(job_id)
            if job_id in self._ended:  # its request id may come again
                self._ended.remove(job_id)

    def wait(self, job_id: str, seconds: float, wanted: Callable[[], bool]) -> Job:
        """The job once it is done, after ``seconds``, or when nobody wants it any more."""
        give_up = time.monotonic() + seconds
        job = self.get(job_id)
        while not job.state.done and wanted() and (left := give_up - time.monotonic()) > 0:
            if self._draining.wait(min(left, POLL_SECONDS)):
                break
            job = self.get(job_id)
        return job

    def watch(self, job_id: str, wanted: Callable[[], bool]) -> Iterator[Job]:
        """The job now, and again whenever it has moved, until done or no longer wanted.

        Raises:
            NotFound: No such job.
            Unavailable: The server stops; the job goes on once it is back.
        """
        last: tuple[JobState, Progress] | None = None
        while wanted():
            job = self.get(job_id)
            if (job.state, job.progress) != last:
                last = (job.state, job.progress)
                yield job
            if job.state.done:
                return
            if self._draining.wait(POLL_SECONDS):
                raise Unavailable("the server is draining; the job resumes when it is back")

    def _job(self, row: Row) -> Job:
        state = STATES[row.status]
        arguments: Any = row.input or {}
        kind = self._kinds[row.name]
        plan = kind.plan_type.model_validate(arguments["args"][0])
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
            kind=kind.name,
            plan=plan,
            state=state,
            created=(row.created_at or 0) / 1000,
            started=None if row.dequeued_at is None else row.dequeued_at / 1000,
            ended=None if row.completed_at is None else row.completed_at / 1000,
            attempts=row.recovery_attempts or 0,
            progress=self._progress(row.workflow_id, state, kind.count_steps(plan)),
            result=output.get("result"),
            failure=None if failure is None else JobFailure(**failure),
        )

    def _progress(self, job_id: str, state: JobState, total: int) -> Progress:
        running = self._running.get(job_id)
        if running is not None:
            return running.progress
        if state is JobState.SUCCEEDED:
            return Progress("done", total, total, 0.0)
        recorded = DBOS.list_workflow_steps(job_id, load_output=False)
        phase = "waiting" if state is JobState.QUEUED else state.value
        return Progress(phase, len(recorded), total)
