"""Reads and writes jobs and their finished steps on record, in SQLite or PostgreSQL.

DBOS keeps one row a job and one row a finished step. Jobs are queued, read, cancelled and deleted
through ``DBOSClient``, created so that its calls raise while the record is away and do not wait for
it. What it has no call for, such as counts, and pages by label on SQLite, is asked in SQL of the
system tables that DBOS documents, which are only read.

This file, ``run`` and ``runner`` are those that call DBOS.
"""

import fcntl
import logging
import sqlite3
import sys
import threading
import time
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

import sqlalchemy as sa
import structlog
from dbos import DBOSClient, DBOSPortableJSONSerializer, EnqueueOptions, WorkflowStatus
from dbos import error as dbos_error
from sqlalchemy.exc import OperationalError, SQLAlchemyError

from acpc_server.errors import FailedPrecondition
from acpc_server.jobs.kind import Job, JobFailure, JobFilter, JobState, Json

log = structlog.get_logger("acpc.jobs")
APPLICATION = "acpc"
# Workflows of this version resume after an upgrade; raise it when the steps of a job change.
WORKFLOW_VERSION = "2"
QUEUE = "acpc-score"  # its jobs run in the order of their submission
# DBOS's names of the states of a job.
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
RECORD_ERRORS = (SQLAlchemyError, dbos_error.DBOSException)
"""What calls of the record and of the runner raise when the record cannot be used."""
TIMEOUT_SECONDS = 5
# Keys of the advisory locks under which tables are made, and jobs are counted and one is added.
SCHEMA_LOCK = 0x61637063
SUBMIT_LOCK = 0x61637064
# A host that is cut off notices within seconds; with TCP alone it would take 15 minutes.
POSTGRES_CONNECTION = {
    "connect_timeout": f"{TIMEOUT_SECONDS}",
    "keepalives": "1",
    "keepalives_idle": "5",
    "keepalives_interval": "2",
    "keepalives_count": "3",
    "tcp_user_timeout": "10000",
    # It ends a transaction whose host has stopped in the middle of it, and frees its locks.
    "options": "-c idle_in_transaction_session_timeout=60s",
}
# Jobs deleted at a time, so that no heartbeat is late.
BATCH = 20


class Steps(NamedTuple):
    """Finished steps of a job on record, how many of them its last run took, the last's phase."""

    taken: int = 0
    fresh: int = 0
    phase: str = "waiting"


def connection_url(url: str) -> sa.URL:
    """Parse a record's URL, with limits on how long PostgreSQL is awaited unless it sets them."""
    parsed = sa.make_url(url)
    if parsed.get_backend_name() != "postgresql":
        return parsed
    query = POSTGRES_CONNECTION | dict(parsed.query)
    return parsed.set(drivername="postgresql+psycopg", query=query)


class Record:
    """The job record at ``sqlite:///path`` or ``postgresql://...``.

    ``engine`` connects to it, for a table beside DBOS's own too, and ``client`` is DBOS's.
    """

    def __init__(self, url: str) -> None:
        self.url = connection_url(url)
        self.postgres = self.url.get_backend_name() == "postgresql"
        schema = "dbos" if self.postgres else None

        def table(name: str, columns: str, *typed: sa.ColumnClause[Any]) -> sa.TableClause:
            return sa.table(name, *map(sa.column, columns.split()), *typed, schema=schema)

        self._jobs = table(
            "workflow_status",
            "workflow_uuid name status queue_name inputs created_at started_at_epoch_ms",
            sa.column("attributes", sa.JSON),
        )
        # Literals: SQLite uses the partial indexes of DBOS only for a status that it can read.
        states: sa.ColumnElement[Any] = sa.literal_column("('ENQUEUED', 'PENDING')")
        self._in_flight = [self._jobs.c.queue_name == QUEUE, self._jobs.c.status.op("IN")(states)]
        self._steps = table(
            "operation_outputs", "workflow_uuid function_name function_id completed_at_epoch_ms"
        )
        self._inputs = table("workflow_input", "workflow_uuid inputs")
        self.own_tables = sa.MetaData(schema="acpc" if self.postgres else None)
        self._alone = threading.Lock()
        options: dict[str, Any] = {"connect_args": {"timeout": TIMEOUT_SECONDS}}
        if self.postgres:  # each query is a transaction, in one trip
            options = {"isolation_level": "AUTOCOMMIT", "pool_size": 2, "pool_pre_ping": True}
        self._file = 0  # its number, once opened
        self.engine = sa.create_engine(self.url, pool_timeout=TIMEOUT_SECONDS, **options)
        logging.getLogger("dbos").setLevel(logging.WARNING)  # before it logs how it connects
        self.client = DBOSClient(
            system_database_url=self.url.render_as_string(hide_password=False),
            serializer=DBOSPortableJSONSerializer(),
            application_name=APPLICATION,
            lazy=True,
            retry_connection_errors=False,
        )

    def open(self) -> None:
        """Connect, and make the tables beside DBOS's own, which it makes at its launch.

        FailedPrecondition: SQLite lacks the clock by which DBOS dates jobs from Python 3.12 on.
        """
        if not self.postgres:
            self._open_file()
        with self.engine.connect() as connection:
            if self.postgres:
                connection.execution_options(isolation_level="READ COMMITTED")
                # Hosts may start together, and IF NOT EXISTS alone does not keep them apart.
                connection.execute(sa.select(sa.func.pg_advisory_xact_lock(SCHEMA_LOCK)))
                connection.execute(sa.schema.CreateSchema("acpc", if_not_exists=True))
            self.own_tables.create_all(connection)
            connection.commit()

    def _open_file(self) -> None:
        with self.engine.connect() as connection:
            if sys.version_info >= (3, 12) and sqlite3.sqlite_version_info < (3, 42):
                raise FailedPrecondition(
                    f"with Python 3.12 or newer, a job record in SQLite needs SQLite 3.42, found "
                    f"{sqlite3.sqlite_version}; update it, or use PostgreSQL: --jobs-url"
                )
            # Readers and the writer do not wait for each other then, and a commit syncs once. The
            # file remembers it. It stays as it is where another process has it in the old mode.
            with suppress(OperationalError):
                connection.execution_options(isolation_level="AUTOCOMMIT")
                connection.exec_driver_sql("PRAGMA journal_mode = WAL")
            self._file = Path(str(self.url.database)).stat().st_ino

    def close(self) -> None:
        """Drop every connection."""
        self.client.destroy()
        self.engine.dispose()

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Keep every other thread and host that asks for the same out meanwhile.

        One that stops in the middle is not awaited for longer than seconds on PostgreSQL.
        """
        if not self.postgres:
            if self._file not in (0, Path(str(self.url.database)).stat().st_ino):
                raise FileNotFoundError("the job record was deleted, and its jobs would be lost")
            with self._alone, open(f"{self.url.database}.submit", "a") as file:  # noqa: PTH123
                fcntl.flock(file, fcntl.LOCK_EX)
                yield
            return
        with self._alone, self.engine.connect() as connection:
            connection.execution_options(isolation_level="READ COMMITTED")
            for limit in ("lock_timeout", "idle_in_transaction_session_timeout"):
                connection.exec_driver_sql(f"SET LOCAL {limit} = '{TIMEOUT_SECONDS}s'")
            connection.execute(sa.select(sa.func.pg_advisory_xact_lock(SUBMIT_LOCK)))
            yield

    def enqueue(
        self, kind: str, job_id: str, spec: Json, stamp: str, labels: dict[str, str], owner: str
    ) -> None:
        """Queue a job; one that has this id already is left as it is, whatever its kind."""
        options: EnqueueOptions = {
            "workflow_name": kind,
            "workflow_id": job_id,
            "queue_name": QUEUE,
            "app_version": WORKFLOW_VERSION,
            "attributes": {**labels, "caller": owner},
        }
        with suppress(dbos_error.DBOSConflictingWorkflowError):
            # The empty one was the tenant; hosts of an earlier release read it.
            self.client.enqueue(options, spec, stamp, "", owner)

    def payloads(self) -> set[str]:
        """Return the digests of the payloads of all jobs."""
        listed = self._jobs.c.attributes["payloads"].as_string()
        found = self.ask(sa.select(listed).where(listed.is_not(None)).distinct())
        return {digest for (digests,) in found for digest in digests.split()}

    def owner(self, job_id: str, kinds: Collection[str]) -> str | None:
        """Return who submitted a job of some kinds; None without one."""
        jobs = self._jobs.c
        caller = jobs.attributes["caller"].as_string()
        found = self.ask(
            sa.select(caller).where(jobs.workflow_uuid == job_id, jobs.name.in_(kinds))
        )
        return (found[0][0] or "") if found else None

    def rows(self, job_ids: Collection[str], *, results: bool = False) -> dict[str, Job]:
        """Return jobs by their ids; the ``results`` of those that succeeded only where wanted."""
        found = self.client.list_workflows(workflow_ids=list(job_ids), load_output=results)
        failed = [status.workflow_id for status in found if status.status == "ERROR"]
        if failed and not results:  # a failure is small, and says more than that there was one
            found += self.client.list_workflows(workflow_ids=failed)
        return {status.workflow_id: _row(status) for status in found}

    def _listed(self, **wanted: Any) -> list[WorkflowStatus]:  # noqa: ANN401 - as DBOS's
        return self.client.list_workflows(load_input=False, load_output=False, **wanted)

    def ask(self, query: sa.Select[Any]) -> list[Any]:
        """Return the rows that a query finds."""
        with self.engine.begin() as connection:
            return list(connection.execute(query).all())

    def begun(self, job_id: str) -> tuple[int, float | None]:
        """Return how many steps a job has on record; the seconds it waited for its first start."""
        (status,) = self._listed(workflow_ids=[job_id])
        first = (status.recovery_attempts or 0) <= 1
        waited = _seconds_since(status.created_at) if first else None
        return self.steps([job_id])[job_id].taken, waited

    def ended(self, seconds_ago: float, kinds: list[str]) -> list[str]:
        """Return ids of a few jobs that ended so long ago, by the clock that dates jobs."""
        clocks = sa.func.strftime("%s", "now"), sa.func.extract("epoch", sa.func.now())
        now = float(self.ask(sa.select(clocks[self.postgres]))[0][0])
        before = datetime.fromtimestamp(now - seconds_ago, UTC).isoformat()
        found = self._listed(status=ENDED, name=kinds, completed_before=before, limit=BATCH)
        return [status.workflow_id for status in found]

    def held(self, executor_id: str | None = None) -> dict[str, str]:
        """Return ids of the jobs that a host, or any, has taken up, with the host's executor id."""
        found = self._listed(status="PENDING", queue_name=QUEUE, executor_id=executor_id)
        return {status.workflow_id: status.executor_id or "" for status in found}

    def requeue(self, job_id: str, executor_id: str) -> bool:
        """Queue a job again, its starts counted, if that host holds it; whether it did.

        The one private call of DBOS. It is a single statement, so hosts that notice together that
        another is dead do not disturb each other, and a job that was cancelled meanwhile stays so.
        The public ``resume_workflow`` asks neither, and forgets how often a job was started, of
        which one that takes every host down with it has only so many.
        """
        system = self.client._sys_db  # noqa: SLF001
        return system.reenqueue_for_recovery(job_id, [executor_id], QUEUE)

    def resume(self, job_id: str) -> None:
        """Queue a job again that a host holds and does not run; its starts are forgotten."""
        for status in self._listed(workflow_ids=[job_id], status="PENDING"):
            self.client.resume_workflow(status.workflow_id, queue_name=QUEUE)

    def keep_phases(self, job_id: str, phases: Mapping[str, float]) -> None:
        """Record where the time of a job's last run went, beside its result, which holds none."""
        rounded = {name: round(seconds, 3) for name, seconds in phases.items()}
        self.client.update_workflow_attributes(job_id, {"phases": rounded}, merge=True)

    def queued(self) -> tuple[int, float]:
        """Return how many jobs wait for a host, and for how many seconds the oldest."""
        jobs = self._jobs.c
        waits = jobs.status == sa.literal_column("'ENQUEUED'")
        columns: list[Any] = [sa.func.count(), sa.func.min(jobs.created_at)]
        query = sa.select(*columns)
        ((waiting, oldest),) = self.ask(query.where(waits, *self._in_flight))
        return waiting, _seconds_since(oldest) if waiting else 0.0

    def named(self, text: str) -> bool:
        """Tell whether a job that has not ended has a text in its spec."""
        jobs, inputs = self._jobs.c, self._inputs.c
        joined = self._jobs.outerjoin(self._inputs, jobs.workflow_uuid == inputs.workflow_uuid)
        spec = sa.func.coalesce(inputs.inputs, jobs.inputs)  # where older releases of DBOS keep it
        query = sa.select(jobs.workflow_uuid).select_from(joined).where(*self._in_flight)
        return bool(self.ask(query.where(spec.contains(text, autoescape=True)).limit(1)))

    def page(
        self, kinds: Collection[str], wanted: JobFilter, *, offset: int, limit: int
    ) -> list[str]:
        """Return ids of jobs that pass a filter, newest first.

        They are of ``kinds`` unless the filter names one.
        """
        jobs = self._jobs.c
        named = kinds if wanted.kind is None else [wanted.kind]
        query = sa.select(jobs.workflow_uuid).where(jobs.name.in_(named))
        if wanted.state is not None:
            statuses = [status for status, state in STATES.items() if state is wanted.state]
            query = query.where(jobs.status.in_(statuses))
        if wanted.created_since is not None:
            query = query.where(jobs.created_at >= wanted.created_since.timestamp() * 1000)
        if wanted.begins:
            query = query.where(jobs.workflow_uuid.startswith(wanted.begins, autoescape=True))
        for label, value in wanted.labels.items():
            query = query.where(jobs.attributes[label].as_string() == value)
        # Jobs of one moment need an order too, so that pages do not overlap: on SQLite, where DBOS
        # records whole seconds, the order of their rows.
        tie = jobs.workflow_uuid if self.postgres else sa.literal_column("rowid").desc()
        query = query.order_by(jobs.created_at.desc(), tie)
        return [row[0] for row in self.ask(query.offset(offset).limit(limit))]

    def steps(self, job_ids: Collection[str]) -> Mapping[str, Steps]:
        """Return what jobs have on record by now; of one that is not asked for, nothing."""
        found: dict[str, Steps] = defaultdict(Steps)
        if not job_ids:
            return found
        job, phase, number, ended = self._steps.c
        jobs = self._jobs.c
        fresh = sa.func.sum(sa.case((ended >= jobs.started_at_epoch_ms, 1), else_=0))
        query = sa.select(job, phase, sa.func.count(), fresh).where(job.in_(job_ids))
        query = query.join(self._jobs, job == jobs.workflow_uuid).group_by(job, phase)
        for job_id, name, count, new in self.ask(query.order_by(sa.func.max(number))):
            known = found[job_id]
            found[job_id] = Steps(known.taken + count, known.fresh + int(new), name)
        return found


def _row(status: WorkflowStatus) -> Job:
    state = STATES[status.status]
    arguments: Any = status.input or {}
    output: Any = status.output
    recorded, _, *owner = arguments.get("args", [{}, ""])
    return Job(
        job_id=status.workflow_id,
        owner=owner[-1] if owner else "",  # behind the tenant of an earlier release
        kind=status.name,
        recorded=recorded,
        state=state,
        created=(status.created_at or 0) / 1000,
        started=None if status.dequeued_at is None else status.dequeued_at / 1000,
        ended=None if status.completed_at is None else status.completed_at / 1000,
        attempts=status.recovery_attempts or 0,
        result=output or None,
        failure=_failure(status) if state is JobState.FAILED else None,
        phases=(status.attributes or {}).get("phases", {}),
    )


def _failure(status: WorkflowStatus) -> JobFailure:
    data = getattr(status.error, "data", None)
    if data is not None:
        return JobFailure(**data)
    if status.status == "MAX_RECOVERY_ATTEMPTS_EXCEEDED":
        return JobFailure(
            "ABORTED",
            "TOO_MANY_STARTS",
            f"given up after {status.recovery_attempts} starts, each of which its server did not "
            "survive or could not bring to an end",
        )
    return JobFailure("INTERNAL", "BUG", "the job failed; the server's log says why")


def _seconds_since(moment: int | None) -> float:
    """Return the age of a moment in milliseconds; another host's clock may be ahead."""
    return max(0.0, time.time() - (moment or 0) / 1000)


@contextmanager
def noted() -> Iterator[None]:
    """Go on, with a line in the log, where the record cannot be used."""
    try:
        yield
    except RECORD_ERRORS as error:
        log.warning("job_database_away", cause=first_line(error))


def first_line(error: Exception) -> str:
    """Return what went wrong, without SQLAlchemy's statement and advice."""
    told = str(getattr(error, "orig", None) or error).partition("\n")[0]
    return told or type(error).__name__
