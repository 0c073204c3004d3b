"""Runs jobs in this process: takes them from the queue, and resumes them at launch.

DBOS is a process-wide singleton, so a process runs the jobs of one service at a time.
"""

import logging
import socket
import threading
import time
import uuid
from collections.abc import Callable, Collection, Mapping
from dataclasses import asdict, dataclass, field
from functools import cache, partial
from typing import Any, ClassVar

import structlog
from acpc.contract import from_plain
from dbos import DBOS, DBOSConfig, DBOSPortableJSONSerializer, PortableWorkflowError

from acpc_server.errors import InvalidArgument
from acpc_server.jobs.kind import JobKind, Json
from acpc_server.jobs.payloads import Payloads
from acpc_server.jobs.record import APPLICATION, QUEUE, WORKFLOW_VERSION, Record, noted
from acpc_server.jobs.run import End, JobRun
from acpc_server.observe import Metrics

log = structlog.get_logger("acpc.jobs")
# A job that takes its server down with it every time must not do so for ever.
MAX_STARTS = 50
# Pause between two looks at the queue: each costs 4 ms of processor time on an idle server too, and
# more in PostgreSQL, which several hosts ask.
QUEUE_SECONDS = 0.5
POSTGRES_QUEUE_SECONDS = 1.5
# A withdrawn job leaves at its next chunk; reading anchors takes longest.
LEAVE_SECONDS = 10.0
# A host whose jobs fail because of it takes the next one after a pause, which doubles each time.
FIRST_PAUSE_SECONDS = 1.0
LONGEST_PAUSE_SECONDS = 60.0


class _Unrecorded(BaseException):
    """Leaves a job without an outcome: DBOS records what a job returns, and every Exception.

    All but its own errors of a job that was cancelled or lost, after which the thread waits, for as
    long as the process lives, for what another host records.
    """


@cache
def register(kind: str) -> Callable[..., Json | None]:
    """Register the durable body of one kind's jobs under its name, before launch."""

    @DBOS.workflow(name=kind, max_recovery_attempts=MAX_STARTS)
    def run_job(spec: Json, stamp: str, *owner: str) -> Json | None:
        if JobRunner.latest is None:
            raise RuntimeError("no job service is started in this process")
        job_id, caller = DBOS.workflow_id or "", owner[-1] if owner else ""
        end = JobRunner.latest.run(kind, job_id, spec, stamp, caller)
        if (failed := end.failure) is not None:
            raise PortableWorkflowError(failed.message, "JobFailed", failed.code, asdict(failed))
        if end.state == "withdrawn":
            raise _Unrecorded
        return end.result

    return run_job


@dataclass(eq=False)
class JobRunner:
    """Runs the jobs of a record in this process, and counts how they end."""

    latest: ClassVar["JobRunner | None"] = None  # DBOS calls the workflow by name, in any thread
    _kinds: Mapping[str, JobKind[Any]]
    _record: Record
    _payloads: Payloads
    _metrics: Metrics
    # The holder of the jobs that run here.
    executor_id: str = field(
        default_factory=lambda: f"{socket.gethostname()}-{uuid.uuid4().hex[:8]}"
    )
    runs: dict[str, JobRun] = field(default_factory=dict)  # by the ids of their jobs
    _shortages: dict[str, int] = field(default_factory=dict)
    # Guards both, and the counts of ended jobs.
    _changed: threading.Condition = field(default_factory=threading.Condition)
    _launched: bool = False
    draining: threading.Event = field(default_factory=threading.Event)
    _closed: threading.Event = field(default_factory=threading.Event)
    _pause: float = FIRST_PAUSE_SECONDS

    def launch(self, concurrency: int) -> None:
        """Resume what this executor left unfinished, and take jobs from the queue.

        Raises one of ``RECORD_ERRORS``, or ImportError, when the record cannot be opened.
        """
        JobRunner.latest, self._launched = self, True
        config = DBOSConfig(
            name=APPLICATION,
            system_database_url=self._record.url.render_as_string(hide_password=False),
            application_version=WORKFLOW_VERSION,
            executor_id=self.executor_id,
            serializer=DBOSPortableJSONSerializer(),
            log_level="WARNING",
            # Messages between workflows, which jobs do not send: by default it wakes 100 times.
            notification_coalesce_sec=0.5,
        )
        DBOS(config=config)
        _log_as_server()
        DBOS.launch()
        DBOS.register_queue(
            QUEUE,
            worker_concurrency=concurrency,
            polling_interval_sec=POSTGRES_QUEUE_SECONDS if self._record.postgres else QUEUE_SECONDS,
            on_conflict="always_update",
        )

    def close(self) -> None:
        """Stop taking jobs, drop every connection, and free the threads that hold the slots."""
        if self._launched:
            self._launched = False
            DBOS.destroy()
        self._closed.set()

    def run(self, kind_name: str, job_id: str, recorded: Json, stamp: str, owner: str) -> End:
        """Run a job to its end, in the calling thread.

        It has the ``recorded`` spec, and ``stamp`` and ``owner`` of when it was accepted.
        """
        kind = self._kinds[kind_name]
        named = {"principal": owner} if owner else {}
        with structlog.contextvars.bound_contextvars(job=job_id, kind=kind.name, **named), noted():
            try:
                spec = self._payloads.fill(from_plain(kind.spec_type, recorded))
            except InvalidArgument:
                # Written by a newer release; the lease queues it for a host that can read it.
                log.warning("job_unreadable")
                return End("withdrawn")
            steps, waited = self._record.begun(job_id)
            if waited is not None:
                self._metrics.first_step.observe(waited)
            held = partial(self._holds, job_id)
            run = JobRun(kind, spec, owner, steps, self._metrics, held)
            checkpoint = kind.labels(spec).get("checkpoint", "")
            with structlog.contextvars.bound_contextvars(checkpoint=checkpoint):
                log.info("job_started")
                return self._hold(job_id, run, stamp)
        return End("withdrawn")

    def _holds(self, job_id: str) -> bool:
        with noted():
            return job_id in self._record.held(self.executor_id)
        return False

    def _hold(self, job_id: str, run: JobRun, stamp: str) -> End:
        metrics, kind, started = self._metrics, run.kind.name, time.monotonic()
        with self._changed:
            self.runs[job_id] = run
            run.shortages = self._shortages.get(job_id, 0)
            metrics.jobs.labels("running").inc()
            if self.draining.is_set():
                run.context.cancel()
        end = run.run(stamp)
        metrics.job_seconds.labels(kind, end.state).observe(time.monotonic() - started)
        phases = run.phases()
        for phase, seconds in phases.items():
            metrics.job_phases.labels(kind, phase).inc(seconds)
        if end.state != "withdrawn":
            with noted():  # DBOS waits until the outcome can be written
                self._record.keep_phases(job_id, phases)
        if end.failure is not None:
            metrics.job_failures.labels(kind, end.failure.code).inc()
        self._leave(job_id, run, end)
        log.info("job_ended", end=end.state)
        if end.set_aside:  # queued again, and its slot is kept, so that others are spared
            log.warning("job_set_aside", cause=end.set_aside)
            with noted():  # else the lease queues it again later
                self._record.requeue(job_id, self.executor_id)
            with self._changed:
                pause, self._pause = self._pause, min(2 * self._pause, LONGEST_PAUSE_SECONDS)
            self.draining.wait(pause)
        if end.state == "withdrawn" and self.draining.is_set():
            self._closed.wait()  # keeps the queue's slot, so that no further job starts
        return end

    def _leave(self, job_id: str, run: JobRun, end: End) -> None:
        with self._changed:
            if self.runs.get(job_id) is run:  # and not a successor with the same request id
                del self.runs[job_id]
            self._metrics.jobs.labels("running").dec()
            if end.short:
                self._shortages[job_id] = run.shortages + 1
            elif end.state != "withdrawn" or run.context.cancelled:
                self._shortages.pop(job_id, None)
            if end.state != "withdrawn" and not run.context.cancelled:
                self._pause = FIRST_PAUSE_SECONDS
                self._metrics.jobs.labels(end.state).inc()
            self._changed.notify_all()

    def ids(self) -> set[str]:
        """Return the jobs that run here now."""
        with self._changed:
            return set(self.runs)

    def withdraw(self, job_ids: Collection[str]) -> None:
        """End runs at their next chunk, without a mark in the record."""
        with self._changed:
            for job_id in self.runs.keys() & set(job_ids):
                self.runs[job_id].context.cancel()

    def stop(self) -> None:
        """Withdraw every run and wait until they have left; no further job starts."""
        self.draining.set()
        self.withdraw(self.ids())
        with self._changed:
            self._changed.wait_for(lambda: not self.runs, LEAVE_SECONDS)


def _log_as_server() -> None:
    """Send DBOS's lines to the server's log; without those of jobs that fail."""

    def is_fault(line: logging.LogRecord) -> bool:
        return not (line.exc_info and isinstance(line.exc_info[1], PortableWorkflowError))

    library = logging.getLogger("dbos")
    library.handlers.clear()
    library.propagate = True
    library.addFilter(is_fault)
