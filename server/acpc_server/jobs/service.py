"""Submits, lists, cancels, watches and recovers jobs. A process runs one JobService at a time."""

import re
import time
import uuid
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeVar

import structlog
from acpc.contract import from_plain, to_plain
from sqlalchemy.exc import SQLAlchemyError

from acpc_server.errors import (
    AcpcError,
    AlreadyExists,
    FailedPrecondition,
    InvalidArgument,
    NotFound,
    ResourceExhausted,
    Unavailable,
    only_one,
    shortage,
)
from acpc_server.jobs.kind import Job, JobFilter, JobKind, JobSpec, JobState, Progress
from acpc_server.jobs.lease import Lease, LeaseTerms, StateFolder
from acpc_server.jobs.payloads import Payloads, require_small, taken_out
from acpc_server.jobs.record import RECORD_ERRORS, Record, Steps, first_line
from acpc_server.jobs.runner import JobRunner, register
from acpc_server.observe import Metrics

log = structlog.get_logger("acpc.jobs")
NAMESPACE = uuid.UUID("5f6f3c1e-7c1b-4d0f-9a57-0f2b8f6d4a10")
_ID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
LATEST = "latest"
_FEWEST = 6  # characters of an id's beginning
_BEGINNING = re.compile(rf"[0-9a-f-]{{{_FEWEST},35}}")
_MAX_CANDIDATES = 20
SECONDS_A_DAY = 86_400
T = TypeVar("T")
# When a caller should try again while the record cannot be reached.
RETRY_SECONDS = 2.0
# The same while the queue is full: about the time of a short job.
FULL_SECONDS = 10.0


@dataclass(frozen=True)
class JobOptions:
    """Where jobs are recorded, and how this server runs them."""

    database_url: str
    state_dir: Path
    concurrency: int = 1  # jobs that run here at a time
    max_queued: int = 10_000  # jobs that may wait for a host
    terms: LeaseTerms = field(default_factory=LeaseTerms)
    retention_days: float = 0.0  # how long finished jobs are kept; zero keeps all
    about: Mapping[str, str] = field(default_factory=dict)  # version and device, for operators


class JobService:
    """The jobs of a record, and this server's share in running them."""

    def __init__(
        self, kinds: Sequence[JobKind[Any]], metrics: Metrics, options: JobOptions
    ) -> None:
        self._kinds = {kind.name: kind for kind in kinds}
        self._kind_of = {kind.spec_type: kind for kind in kinds}
        for name in self._kinds:
            register(name)
        self._metrics = metrics
        self._options = options
        self._folder = StateFolder(options.state_dir)
        self._record = record = Record(options.database_url)
        self._payloads = Payloads(record)
        self._running = JobRunner(self._kinds, record, self._payloads, metrics)
        self._lease = lease = Lease(
            record=record,
            running=self._running,
            terms=options.terms,
            on_queued=metrics.set_queued,
            sweep=self._sweep,
        )
        metrics.record_away.set_function(lambda: bool(lease.away))

    def start(self) -> None:
        """Open the record, join its hosts, and queue again what the folder's last server left.

        FailedPrecondition: the record cannot be opened, or another running server has this one's
        state folder.
        """
        last = self._folder.claim()
        try:
            self._record.open()
            self._lease.enter(self._options.about)
            self._running.launch(self._options.concurrency)
            if last:
                self._lease.take_over(last)
            self._folder.keep(self._running.executor_id)
            log.info("jobs_open", executor_id=self._running.executor_id)
        except (*RECORD_ERRORS, ImportError, FailedPrecondition) as error:
            self._close()
            if isinstance(error, FailedPrecondition):
                raise
            raise FailedPrecondition(
                f"cannot open the job record ({first_line(error)}); see --jobs-url and --state-dir"
            ) from error
        self._lease.start()

    def drain(self) -> None:
        """Start no further job."""
        self._running.draining.set()

    def stop(self) -> None:
        """Withdraw running jobs and close the record; another host or the next start continues."""
        self._running.stop()
        self._close()

    def _close(self) -> None:
        self._lease.stop()
        self._running.close()
        self._lease.leave()
        self._record.close()
        self._folder.release()

    @contextmanager
    def _reached(self, *, writing: bool = False) -> Iterator[None]:
        """Reject calls that the record does not serve, and writes while it takes none."""
        if writing and self._lease.away:
            raise _away(self._lease.away)
        try:
            yield
        except (SQLAlchemyError, OSError) as error:  # the latter: no folder, or a read-only one
            if shortage(error):
                raise
            log.warning("job_database_away", cause=first_line(error))
            raise _away(first_line(error)) from error

    def submit(self, spec: JobSpec, request_id: str, owner: str = "") -> Job:
        """Queue a job of the kind its spec belongs to.

        The same ``request_id`` gives the same job, an empty one a new job every time. ``owner`` is
        the name of who submits it. AlreadyExists: the request id has another spec;
        ResourceExhausted: too many jobs wait.
        Unavailable, here and in every call below: the job record cannot be reached, or written.
        """
        job_id, kind = _job_id(request_id), self._kind_of[type(spec)]
        short, payloads = taken_out(spec)
        plain = to_plain(short)
        with self._reached():
            require_small(plain, self._payloads.fresh(payloads) if payloads else {})
        if not request_id or self._owner(job_id) is None:
            stamp, labels = kind.stamp(spec), kind.labels(spec)
            if payloads:
                labels["payloads"] = " ".join(payloads)
            # Counting and adding are one act, in this process and on the record.
            with self._reached(writing=True), self._record.alone():
                (waiting, _), limit = self._record.queued(), self._options.max_queued
                if waiting >= limit:
                    raise ResourceExhausted(
                        f"{waiting} jobs are queued and at most {limit} may be; wait until some "
                        "have run, or cancel some",
                        reason="TOO_MANY_JOBS",
                        retry_after=FULL_SECONDS,
                    )
                if payloads:
                    self._payloads.keep(payloads)
                self._record.enqueue(kind.name, job_id, plain, stamp, labels, owner)
            named = {"principal": owner} if owner else {}
            checkpoint = labels.get("checkpoint", "")
            log.info("job_submitted", job=job_id, kind=kind.name, checkpoint=checkpoint, **named)
        job = self.get(job_id)
        if job.spec != short:
            other = "another" if job.kind == kind.name else f"a {job.kind}"
            raise AlreadyExists(
                f"request_id {request_id!r} was used for {other} job, operations/{job_id}; "
                "use a new request_id"
            )
        return job

    def fill(self, value: T, field: str = "") -> T:
        """Return a record with everything in place that it names by digest.

        InvalidArgument, of ``field``: no job on record has it.
        """
        with self._reached():
            return self._payloads.fill(value, field)

    def find(self, name: str) -> str:
        """Return the id of the job of a name: ``latest``, its request id, or its id.

        Of the id, a beginning of at least 6 characters will do. NotFound, InvalidArgument, here and
        in every call below: there is no such job, or several ids begin so.
        """
        if is_id(name):
            return name
        alias, newest, found = _job_id(name), name == LATEST, list[str]()
        if self._owner(alias) is not None:
            return alias
        if newest or _BEGINNING.fullmatch(name):
            wanted, most = (
                JobFilter(begins="" if newest else name),
                1 if newest else _MAX_CANDIDATES,
            )
            with self._reached():
                found = self._record.page([*self._kinds], wanted, offset=0, limit=most)
        if only_one(name, [f"operations/{one}" for one in found], "operations", "name"):
            return found[0]
        if newest:
            raise NotFound("there is no operation yet")
        hint = f"; give at least {_FEWEST} characters of its id" if len(name) < _FEWEST else ""
        raise NotFound(f"no operation is named operations/{name}{hint}")

    def get(self, name: str) -> Job:
        """Return a job, with its result if it has one; see :meth:`find` for names.

        FailedPrecondition: a newer release accepted it, in a form that this one cannot read.
        """
        job_id = self.find(name)
        found = self._read([job_id], results=True)[job_id]
        if isinstance(found, AcpcError):
            raise found
        return found

    def owner(self, name: str) -> tuple[str, str]:
        """Return the id and the owner of a job, without reading what it was given or has found."""
        job_id = self.find(name)
        if (owner := self._owner(job_id)) is None:
            raise NotFound(f"no operation is named operations/{job_id}")
        return job_id, owner

    def _owner(self, job_id: str) -> str | None:
        with self._reached():
            return self._record.owner(job_id, [*self._kinds])

    def list(self, offset: int, limit: int, wanted: JobFilter | None = None) -> Sequence[Job]:
        """Return jobs, newest first, without results; those of a newer release are left out."""
        with self._reached():
            found = wanted or JobFilter()
            ids = self._record.page([*self._kinds], found, offset=offset, limit=limit)
        return [job for job in self._read(ids).values() if isinstance(job, Job)]

    def need(self, digest: str) -> bool:
        """Whether the spec of a job that has not ended names a digest."""
        with self._reached():
            return self._record.named(digest)

    def cancel(self, name: str) -> None:
        """Stop a job at its next chunk, on whatever host it runs; no effect once it has ended."""
        job_id = self.find(name)
        if self.get(job_id).state.done:
            return
        with self._reached(writing=True):
            self._running.withdraw([job_id])  # at its next chunk, not at its next step
            self._record.client.cancel_workflow(job_id)
        self._metrics.jobs.labels("cancelled").inc()
        log.info("job_cancelled", job=job_id)

    def delete(self, name: str) -> None:
        """Forget a finished job; FailedPrecondition while it is not done."""
        job = self.get(name)
        if not job.state.done:
            raise FailedPrecondition(
                f"operations/{job.job_id} is not done; cancel it first", reason="OPERATION_RUNNING"
            )
        with self._reached(writing=True):
            self._delete([job.job_id])

    def _sweep(self) -> bool:
        """Delete some jobs whose retention time is over; whether there were any."""
        if not self._options.retention_days:
            return False
        try:
            days = self._options.retention_days
            expired = self._record.ended(SECONDS_A_DAY * days, [*self._kinds])
            if expired:
                self._delete(expired)
                log.info("jobs_deleted", jobs=len(expired))
        except Exception as error:  # noqa: BLE001 - a lease that ended would be worse
            log.warning("retention_sweep_failed", cause=first_line(error))
            return False
        return bool(expired)

    def _delete(self, job_ids: Collection[str]) -> None:
        self._record.client.delete_workflows([*job_ids])
        with self._record.alone():
            self._payloads.forget(self._record.payloads)

    def look(self, job_ids: Collection[str]) -> dict[str, Job | AcpcError]:
        """Return jobs by their ids, or why one cannot be read; done ones with their results."""
        return self._read(job_ids, results=True)

    def _read(
        self, job_ids: Collection[str], *, results: bool = False
    ) -> dict[str, Job | AcpcError]:
        """Return jobs by their ids, or why one cannot be read."""
        with self._reached():
            rows = self._record.rows(job_ids, results=results) if job_ids else {}
            done = JobState.SUCCEEDED
            begun = [x for x, row in rows.items() if row.attempts and row.state is not done]
            recorded = self._record.steps(begun)
        found: dict[str, Job | AcpcError] = {}
        for job_id in job_ids:
            row = rows.get(job_id)
            if row is None or row.kind not in self._kinds:
                found[job_id] = NotFound(f"no operation is named operations/{job_id}")
                continue
            kind, run = self._kinds[row.kind], self._running.runs.get(job_id)
            try:
                spec, _ = taken_out(from_plain(kind.spec_type, row.recorded))
            except InvalidArgument:
                found[job_id] = FailedPrecondition(
                    f"operations/{job_id} was submitted to a newer release; ask a server of that "
                    "release",
                    reason="NEWER_RELEASE",
                )
                continue
            steps, phases = recorded[job_id], row.phases
            if run is not None:
                steps, phases = steps._replace(phase=run.phase), phases or run.phases()
            progress = _progress(row, steps, kind.count_steps(spec))
            found[job_id] = replace(row, phases=phases, spec=spec, progress=progress)
        return found


def _progress(row: Job, steps: Steps, total: int) -> Progress:
    if row.state is JobState.SUCCEEDED:
        return Progress.at("done", total, total)
    if row.state is not JobState.RUNNING:
        phase = "waiting" if row.state is JobState.QUEUED else str(row.state)
        return Progress.at(phase, steps.taken, total)
    rate = None
    if steps.fresh and row.started:
        rate = steps.fresh / max(time.time() - row.started, 1e-3)
    return Progress.at(steps.phase, steps.taken, total, rate)


def _away(why: str) -> Unavailable:
    return Unavailable(
        f"the job record cannot be used at the moment ({why}); jobs go on once it can be",
        reason="JOB_RECORD_AWAY",
        retry_after=RETRY_SECONDS,
    )


def is_id(name: str) -> bool:
    """Whether a name of a job is its whole id, which no record needs to be asked for."""
    return _ID.fullmatch(name) is not None


def _job_id(request_id: str) -> str:
    return str(uuid.uuid5(NAMESPACE, request_id) if request_id else uuid.uuid4())
