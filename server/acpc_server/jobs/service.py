"""Submission, listing, cancelling and recovery of jobs, on DBOS.

DBOS keeps one row a job and one row a finished step in SQLite or PostgreSQL, and at start-up
resumes what was running; :mod:`~acpc_server.jobs.lease` adds what several hosts on one record
need. DBOS is a process-wide singleton, so a process has one JobService.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import structlog
from dbos import DBOS, SetWorkflowAttributes, SetWorkflowID
from dbos import error as dbos_error
from sqlalchemy.exc import SQLAlchemyError

from acpc_server.errors import AlreadyExists, FailedPrecondition, Unavailable
from acpc_server.jobs import process
from acpc_server.jobs.database import JobDatabase, first_line
from acpc_server.jobs.kind import JobKind, Json
from acpc_server.jobs.lease import Lease, LeaseTerms
from acpc_server.jobs.plan import JobPlan
from acpc_server.jobs.reader import JobReader
from acpc_server.jobs.record import Job, JobFilter, JobState, Progress
from acpc_server.jobs.retention import Retention
from acpc_server.jobs.running import RunningJobs
from acpc_server.jobs.state_folder import StateFolder
from acpc_server.observe import Metrics

log = structlog.get_logger("acpc.jobs")
NAMESPACE = uuid.UUID("5f6f3c1e-7c1b-4d0f-9a57-0f2b8f6d4a10")
# When to ask again for a record that cannot be reached.
RETRY_SECONDS = 2.0
# Between two looks at a job: at first, at most, and as a share of the time waited so far.
FIRST_LOOK_SECONDS = 0.1
LOOK_SECONDS = 1.0
LOOK_SHARE = 0.05


class JobService:
    """The jobs of a record, and this server's share in running them.

    Args:
        kinds: What jobs there are; each has a plan type of its own.
        metrics: Series for job counts.
        database_url: ``sqlite:///path`` or ``postgresql://...``.
        state_dir: Folder of this server alone; exists.
        executor_id: This server's name among those that share the record; empty: the name of its
            state folder.
        concurrency: Jobs measured at the same time.
        terms: When a host counts as dead.
        retention_days: How long finished jobs are kept; zero keeps all.
        on_evicted: Called when another process has this server's name: this one must stop.
    """

    def __init__(
        self,
        kinds: Sequence[JobKind[Any]],
        metrics: Metrics,
        *,
        database_url: str,
        state_dir: Path,
        executor_id: str = "",
        concurrency: int = 1,
        terms: LeaseTerms | None = None,
        retention_days: float = 0.0,
        on_evicted: Callable[[], None] = lambda: None,
    ) -> None:
        self._kinds = {kind.name: kind for kind in kinds}
        self._kind_of = {kind.plan_type: kind for kind in kinds}
        for name in self._kinds:
            process.workflow(name)
        self._url = database_url
        self._executor_id = executor_id
        self._concurrency = concurrency
        self._folder = StateFolder(state_dir)
        self._database = JobDatabase(database_url, process.QUEUE)
        self._running = RunningJobs(metrics)
        self._reader = JobReader(self._kinds, self._running, self._database)
        self._retention = Retention(list(self._kinds), retention_days)
        self._lease = Lease(
            self._database,
            self._running,
            queue=process.QUEUE,
            terms=terms or LeaseTerms(),
            on_queued=metrics.jobs.labels("queued").set,
            on_evicted=on_evicted,
        )

    def start(self) -> None:
        """Open the record, take a place among its hosts, and resume unfinished jobs.

        Raises:
            FailedPrecondition: The database cannot be opened, or another running server has this
                one's state folder or name.
        """
        folder = self._folder.claim()
        try:
            self._open(self._executor_id or folder, folder)
        except (SQLAlchemyError, dbos_error.DBOSException, ImportError) as error:
            self._close()
            raise FailedPrecondition(
                f"cannot open the job record ({first_line(error)}); see --jobs-url and --state-dir"
            ) from error
        except FailedPrecondition:
            self._close()
            raise
        self._lease.start()
        self._retention.start()

    def _open(self, executor_id: str, folder: str) -> None:
        self._database.open()
        # Before DBOS, which resumes at once whatever the name has left unfinished.
        self._lease.acquire(executor_id, folder)
        process.launch(self._url, executor_id, self._concurrency, self.run)
        log.info("jobs_open", executor_id=executor_id)

    def drain(self) -> None:
        """End every wait and watch, so that they do not hold up the server's stop."""
        self._running.draining.set()

    def stop(self) -> None:
        """Withdraw running jobs and close the record; another host, or the next start, goes on."""
        self._running.stop()
        self._retention.stop()
        self._close()
        self._running.close()

    def _close(self) -> None:
        self._lease.stop()
        DBOS.destroy()
        self._lease.leave()
        self._database.close()
        self._folder.release()

    @contextmanager
    def _record(self) -> Iterator[None]:
        """Refuse while the database is away; DBOS would hold the caller until it is back."""
        away = Unavailable(
            "the job record cannot be reached at the moment; jobs go on when it can",
            reason="JOB_RECORD_AWAY",
            retry_after=RETRY_SECONDS,
        )
        if self._lease.away:
            raise away
        try:
            yield
        except SQLAlchemyError as error:
            log.warning("job_database_away", cause=first_line(error))
            raise away from error

    def submit(self, plan: JobPlan, request_id: str) -> Job:
        """Queue a job of the kind the plan belongs to; the same request id gives the same job.

        Raises:
            AlreadyExists: The request id belongs to a job with another plan.
            Unavailable: The job record cannot be reached, here and in every call below.
        """
        job_id = str(uuid.uuid5(NAMESPACE, request_id) if request_id else uuid.uuid4())
        kind = self._kind_of[type(plan)]
        body, stamp = process.workflow(kind.name), kind.stamp(plan)
        attributes = {"checkpoint": plan.checkpoint.name}
        with self._record(), SetWorkflowID(job_id), SetWorkflowAttributes(attributes):
            DBOS.enqueue_workflow(process.QUEUE, body, plan.model_dump(mode="json"), stamp)
        job = self.get(job_id)
        if job.plan != plan:
            raise AlreadyExists(
                f"request_id {request_id!r} was used for another job, operations/{job_id}; "
                "use a new request_id"
            )
        log.info("job_submitted", job=job_id, kind=kind.name)
        return job

    def run(self, kind: str, job_id: str, plan: Json, stamp: str) -> Json:
        """Body of the workflow; called by DBOS."""
        return self._running.run(self._kinds[kind], job_id, plan, stamp)

    def get(self, job_id: str) -> Job:
        """The job, or NotFound."""
        with self._record():
            return self._reader.get(job_id)

    def list(self, offset: int, limit: int, wanted: JobFilter | None = None) -> list[Job]:
        """Jobs without their results, newest first."""
        with self._record():
            return self._reader.page(offset, limit, wanted or JobFilter())

    def cancel(self, job_id: str) -> None:
        """Stop a job at its next chunk, on whatever host it runs; nothing happens once it ended."""
        with self._record():
            cancelled = self._running.cancel(
                job_id,
                done=lambda: self.get(job_id).state.done,
                cancel=lambda: DBOS.cancel_workflow(job_id),
            )
        if cancelled:
            log.info("job_cancelled", job=job_id)

    def delete(self, job_id: str) -> None:
        """Forget a finished job; FailedPrecondition while it is not done."""
        if not self.get(job_id).state.done:
            raise FailedPrecondition(
                f"operations/{job_id} is not done; cancel it first", reason="OPERATION_RUNNING"
            )
        with self._record():
            DBOS.delete_workflow(job_id)
        self._running.forget(job_id)  # its request id may come again

    def wait(self, job_id: str, seconds: float, wanted: Callable[[], bool]) -> Job:
        """The job once it is done, after ``seconds``, or when nobody wants it any more."""
        since = time.monotonic()
        job = self.get(job_id)
        while not job.state.done and wanted():
            left = since + seconds - time.monotonic()
            if left <= 0 or self._pause(since, left):
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
        moved = time.monotonic()
        while wanted():
            job = self.get(job_id)
            if (job.state, job.progress) != last:
                last, moved = (job.state, job.progress), time.monotonic()
                yield job
            if job.state.done:
                return
            if self._pause(moved, LOOK_SECONDS):
                raise Unavailable("the server is draining; the job goes on elsewhere or later")

    def _pause(self, since: float, longest: float) -> bool:
        """Wait before the next look at a job; True when the server drains."""
        waited = time.monotonic() - since
        pause = min(max(FIRST_LOOK_SECONDS, LOOK_SHARE * waited), LOOK_SECONDS, longest)
        return self._running.draining.wait(pause)
