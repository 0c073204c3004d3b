"""Submits, lists, cancels, watches and recovers jobs. A process runs one JobService at a time."""

import json
import re
import uuid
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import structlog
from acpc.contract import to_plain
from sqlalchemy.exc import SQLAlchemyError

from acpc_server.errors import (
    AlreadyExists,
    FailedPrecondition,
    InvalidArgument,
    NotFound,
    ResourceExhausted,
    Unavailable,
    shortage,
)
from acpc_server.jobs import runner
from acpc_server.jobs.hosts import Hosts, StateFolder
from acpc_server.jobs.kind import Job, JobFilter, JobKind, JobSpec, Json
from acpc_server.jobs.lease import Lease, LeaseTerms, Retention
from acpc_server.jobs.payloads import MAX_BYTES, Payloads, taken_out
from acpc_server.jobs.reading import Changed, JobFollowers, JobReader
from acpc_server.jobs.record import RECORD_ERRORS, Record, first_line, no_room
from acpc_server.jobs.runs import RunningJobs, about
from acpc_server.observe import Metrics

log = structlog.get_logger("acpc.jobs")
NAMESPACE = uuid.UUID("5f6f3c1e-7c1b-4d0f-9a57-0f2b8f6d4a10")
_ID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
# Of a request on record, as JSON.
MAX_SPEC_BYTES = 2**20
T = TypeVar("T")
# When a caller should try again while the record cannot be reached.
RETRY_SECONDS = 2.0
# The same while the queue or the record's disk is full: about the time of a short job.
FULL_SECONDS = 10.0


@dataclass(frozen=True)
class JobOptions:
    """Where jobs are recorded, and how this server runs them."""

    database_url: str
    state_dir: Path
    executor_id: str = ""  # its name among the record's servers; empty: its state folder's name
    concurrency: int = 1  # jobs that run here at a time
    max_queued: int = 10_000  # jobs that may wait for a host
    terms: LeaseTerms = field(default_factory=LeaseTerms)
    retention_days: float = 0.0  # how long finished jobs are kept; zero keeps all
    about: Mapping[str, str] = field(default_factory=dict)  # version and device, for operators


class JobService:
    """The jobs of a record, and this server's share in running them.

    ``on_evicted`` is called when another process has this server's name: this one must stop.
    """

    def __init__(
        self,
        kinds: Sequence[JobKind[Any]],
        metrics: Metrics,
        options: JobOptions,
        on_evicted: Callable[[], None] = lambda: None,
    ) -> None:
        self._kinds = {kind.name: kind for kind in kinds}
        self._kind_of = {kind.spec_type: kind for kind in kinds}
        for name in self._kinds:
            runner.workflow(name)
        self._options = options
        self._folder = StateFolder(options.state_dir)
        self._executor_id = ""
        self._record = record = Record(options.database_url)
        self._hosts = hosts = Hosts(record)
        self._payloads = Payloads(record)
        self._running = running = RunningJobs(metrics, self._release, self._payloads.fill)
        self._metrics = metrics
        self._reader = JobReader(self._kinds, running, hosts)
        self._followers = JobFollowers(self._look)
        self._retention = Retention(record, self._kinds, options.retention_days, self._delete)
        self._lease = lease = Lease(
            hosts, running, terms=options.terms, on_queued=metrics.set_queued, on_evicted=on_evicted
        )
        metrics.record_away.set_function(lambda: lease.away or lease.full)

    def start(self) -> None:
        """Open the record, join its hosts, and resume unfinished jobs.

        FailedPrecondition: the record cannot be opened, or another running server has this one's
        state folder or name.
        """
        folder = self._folder.claim()
        try:
            options = self._options
            self._executor_id = executor_id = options.executor_id or folder
            self._record.open()
            self._hosts.create()
            # Before the launch, which at once resumes whatever the name has left unfinished.
            self._lease.acquire(executor_id, folder, options.about)
            runner.launch(self._record, executor_id, options.concurrency, self._run)
            log.info("jobs_open", executor_id=executor_id)
        except (*RECORD_ERRORS, ImportError) as error:
            self._close()
            raise FailedPrecondition(
                f"cannot open the job record ({first_line(error)}); see --jobs-url and --state-dir"
            ) from error
        except FailedPrecondition:
            self._close()
            raise
        self._lease.start()
        self._retention.start()

    def drain(self) -> None:
        """End every wait and watch, so that they do not hold up the server's stop."""
        self._running.draining.set()
        self._followers.close()

    def stop(self) -> None:
        """Withdraw running jobs and close the record; another host or the next start continues."""
        self._followers.close()
        self._running.stop()
        self._retention.stop()
        self._close()
        self._running.close()

    def _close(self) -> None:
        self._lease.stop()
        runner.close()
        self._lease.leave()
        self._record.close()
        self._folder.release()

    @contextmanager
    def _reached(self) -> Iterator[None]:
        """Reject calls while the record is away."""
        away = Unavailable(
            "the job record cannot be reached at the moment; jobs go on once it can be",
            reason="JOB_RECORD_AWAY",
            retry_after=RETRY_SECONDS,
        )
        if self._lease.away:
            raise away
        try:
            yield
        except (SQLAlchemyError, OSError) as error:  # the latter: no folder, or a read-only one
            if shortage(error):
                raise
            if no_room(error):
                raise ResourceExhausted(
                    f"the job record cannot be written ({first_line(error)}); jobs go on once "
                    "there is room on its disk",
                    reason="JOB_RECORD_FULL",
                    retry_after=FULL_SECONDS,
                ) from error
            log.warning("job_database_away", cause=first_line(error))
            raise away from error

    def submit(self, spec: JobSpec, request_id: str, owner: str = "") -> Job:
        """Queue a job of the kind its spec belongs to.

        The same ``request_id`` gives the same job, an empty one a new job every time. ``owner`` is
        the name of who submits it. AlreadyExists: the request id has another spec;
        ResourceExhausted: too many jobs wait.
        Unavailable, here and in every call below: the job record cannot be reached.
        """
        job_id, kind = _job_id(request_id), self._kind_of[type(spec)]
        short, payloads = taken_out(spec)
        plain = to_plain(short)
        _require_small(plain, payloads)
        job = self._find(job_id) if request_id else None
        if job is None:
            stamp, labels = kind.stamp(spec), kind.labels(spec)
            if payloads:
                labels["payloads"] = " ".join(payloads)
            # Counting and adding are one act, in this process and on the record.
            with self._reached(), self._record.alone():
                self._require_room()
                if payloads:
                    self._payloads.keep(payloads)
                self._record.enqueue(kind.name, job_id, plain, stamp, labels, owner)
            log.info("job_submitted", **about(kind, spec, job_id, owner))
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

    def _find(self, job_id: str) -> Job | None:
        try:
            return self.get(job_id)
        except NotFound:
            return None

    def _require_room(self) -> None:
        (waiting, _), limit = self._record.queued(), self._options.max_queued
        if waiting >= limit:
            raise ResourceExhausted(
                f"{waiting} jobs are queued and at most {limit} may be; wait until some have run, "
                "or cancel some",
                reason="TOO_MANY_JOBS",
                retry_after=FULL_SECONDS,
            )

    def _run(self, kind: str, job_id: str, spec: Json, stamp: str, owner: str) -> Json:
        try:
            waited = self._record.waited(job_id)
        except SQLAlchemyError:  # it is not worth a job
            waited = None
        if waited is not None:
            self._metrics.first_step.observe(waited)
        return self._running.run(self._kinds[kind], job_id, spec, stamp, owner)

    def _release(self, job_id: str) -> None:
        self._record.requeue(job_id, self._executor_id)

    def find(self, name: str) -> str:
        """Return the id of the job of a name: ``latest``, its request id, or its id.

        Of the id, a beginning of at least 6 characters will do. NotFound, InvalidArgument, here and
        in every call below: there is no such job, or several ids begin so.
        """
        if _ID.fullmatch(name):
            return name
        with self._reached():
            return self._reader.find(name, _job_id(name))

    def get(self, name: str) -> Job:
        """Return a job; see :meth:`find` for names."""
        job_id = self.find(name)
        with self._reached():
            return self._reader.get(job_id)

    def owner(self, name: str) -> tuple[str, str]:
        """Return the id and the owner of a job, without reading what it was given or has found."""
        job_id = self.find(name)
        with self._reached():
            owner = self._record.owner(job_id, list(self._kinds))
        if owner is None:
            raise NotFound(f"no operation is named operations/{job_id}")
        return job_id, owner

    def list(self, offset: int, limit: int, wanted: JobFilter | None = None) -> list[Job]:
        """Return jobs, newest first, without results."""
        with self._reached():
            return self._reader.page(offset, limit, wanted or JobFilter())

    def need(self, digest: str) -> bool:
        """Whether the spec of a job that has not ended names a digest."""
        with self._reached():
            return self._record.named(digest)

    def cancel(self, name: str) -> None:
        """Stop a job at its next chunk, on whatever host it runs; no effect once it has ended."""
        job_id = self.find(name)
        with self._reached():
            cancelled = self._running.cancel(
                job_id,
                done=lambda: self.get(job_id).state.done,
                cancel=lambda: self._record.cancel(job_id),
            )
        if cancelled:
            log.info("job_cancelled", job=job_id)

    def delete(self, name: str) -> None:
        """Forget a finished job; FailedPrecondition while it is not done."""
        job = self.get(name)
        job_id = job.job_id
        if not job.state.done:
            raise FailedPrecondition(
                f"operations/{job_id} is not done; cancel it first", reason="OPERATION_RUNNING"
            )
        with self._reached():
            self._delete([job_id])
        self._running.forget(job_id)  # its request id may be used again

    def _delete(self, job_ids: Collection[str]) -> None:
        self._record.delete(job_ids)
        with self._record.alone():
            self._payloads.forget(self._record.payloads)

    def follow(self, name: str, changed: Changed) -> Callable[[], None]:
        """Call ``changed`` at each change of a job until it is done."""
        return self._followers.follow(self.get(name), changed)

    def _look(self, job_ids: Collection[str]) -> dict[str, Job]:
        with self._reached():
            found = self._reader.several(job_ids)
            for job_id, job in [*found.items()]:
                if job.state.done:
                    del found[job_id]
                    with suppress(NotFound):  # deleted since: an error is of all who follow any job
                        found[job_id] = self._reader.get(job_id)
            return found


def _require_small(plain: Json, payloads: Mapping[str, bytes]) -> None:
    large = sum(map(len, payloads.values()))
    if large > MAX_BYTES:
        raise InvalidArgument(
            "", f"the plates of this job hold {large} bytes, over {MAX_BYTES}; submit fewer at once"
        )
    size = len(json.dumps(plain))
    if size > MAX_SPEC_BYTES:
        raise InvalidArgument(
            "", f"this request takes {size} bytes on record, over {MAX_SPEC_BYTES}"
        )


def _job_id(request_id: str) -> str:
    return str(uuid.uuid5(NAMESPACE, request_id) if request_id else uuid.uuid4())
