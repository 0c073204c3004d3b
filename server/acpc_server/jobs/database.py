"""Queries of the job record beside DBOS: our table of hosts, and counts and ids from DBOS's tables.

DBOS's own calls load whole rows, wait without limit for a database that is away, and cannot filter
by attribute on SQLite. What every host asks every second, and which jobs a list shows, is asked
here instead, on connections that fail at once. DBOS's tables are only read.
"""

from __future__ import annotations

import time
from collections.abc import Collection
from contextlib import AbstractContextManager, suppress
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any

import sqlalchemy as sa
from acpc import tracing
from sqlalchemy.exc import IntegrityError, OperationalError

from acpc_server.jobs.kind import JobFilter, JobState, Owner

QUEUE = "acpc-score"
"""The queue of the tenant "": jobs run in the order of their submission."""
TENANT_QUEUE = "acpc-tenants"
"""The other tenants' queue, in which each has a partition of its own, named as it is."""
TASK = "measure_parts"
"""The name, in place of a kind's, of parts of a job that wait in its queue, after all jobs."""
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
TIMEOUT_SECONDS = 5
# A host that is cut off notices within seconds; with TCP alone it would take 15 minutes.
POSTGRES_CONNECTION = {
    "connect_timeout": TIMEOUT_SECONDS,
    "keepalives": 1,
    "keepalives_idle": 5,
    "keepalives_interval": 2,
    "keepalives_count": 3,
    "tcp_user_timeout": 10_000,
}
# What SQLite calls a disk, a quota or a limit of its own that leaves no room.
NO_ROOM = ("SQLITE_FULL", "SQLITE_IOERR_WRITE")
# Key of the advisory lock under which the table is made.
SCHEMA_LOCK = 0x61637063


@dataclass(frozen=True)
class Host:
    """One server that shares the job record.

    Attributes:
        executor_id: Its name among them.
        session: The process that has the name now; empty after an orderly stop.
        folder: Identity of the process's state folder.
        beat: Grows for as long as the process lives.
        running: Progress of its jobs, JSON.
    """

    executor_id: str
    session: str
    folder: str
    beat: int = 0
    running: str = "{}"


class JobDatabase:
    """Reads and writes the table of hosts, and counts jobs and steps.

    Every method raises SQLAlchemyError when the database cannot be reached.

    Args:
        url: ``sqlite:///path`` or ``postgresql://...``.
    """

    def __init__(self, url: str) -> None:
        self._url = sa.make_url(url)
        self._postgres = self._url.get_backend_name() == "postgresql"
        # DBOS keeps its tables in the schema "dbos"; ours are in "acpc".
        self._hosts = sa.Table(
            "acpc_hosts",
            sa.MetaData(schema="acpc" if self._postgres else None),
            sa.Column("executor_id", sa.Text, primary_key=True),
            sa.Column("session", sa.Text, nullable=False),
            sa.Column("folder", sa.Text, nullable=False),
            sa.Column("beat", sa.BigInteger, nullable=False),
            sa.Column("running", sa.Text, nullable=False),
        )
        dbos = "dbos" if self._postgres else None
        columns = ("workflow_uuid", "name", "status", "executor_id", "created_at")
        queue = ("queue_name", "queue_partition_key", "recovery_attempts")
        self._jobs = sa.table(
            "workflow_status",
            *map(sa.column, columns + queue),
            sa.column("attributes", sa.JSON),
            schema=dbos,
        )
        self._steps = sa.table("operation_outputs", sa.column("workflow_uuid"), schema=dbos)
        self._engine: sa.Engine | None = None

    def _connect(self) -> sa.Engine:
        if not self._postgres:
            return sa.create_engine(self._url, connect_args={"timeout": TIMEOUT_SECONDS})
        return sa.create_engine(
            self._url.set(drivername="postgresql+psycopg"),
            connect_args=POSTGRES_CONNECTION,
            pool_size=2,
            pool_timeout=TIMEOUT_SECONDS,
            pool_pre_ping=True,
            isolation_level="AUTOCOMMIT",  # each query is a transaction, without two trips for it
        )

    def open(self) -> None:
        """Connect, and make the table of hosts when there is none."""
        self._engine = self._connect()
        if not self._postgres:
            self._log_ahead(self._engine)
        with self._engine.connect() as connection:
            if self._postgres:
                connection.execution_options(isolation_level="READ COMMITTED")
                # Hosts may start together, and IF NOT EXISTS alone does not keep them apart.
                connection.execute(sa.select(sa.func.pg_advisory_xact_lock(SCHEMA_LOCK)))
                connection.execute(sa.schema.CreateSchema("acpc", if_not_exists=True))
            self._hosts.metadata.create_all(connection)
            connection.commit()

    @staticmethod
    def _log_ahead(engine: sa.Engine) -> None:
        # Readers and the writer do not wait for each other then, and a commit syncs once. The file
        # remembers it. It stays as it is where another process has it open in the old mode.
        with engine.connect() as connection, suppress(OperationalError):
            connection.execution_options(isolation_level="AUTOCOMMIT")
            connection.exec_driver_sql("PRAGMA journal_mode = WAL")

    def close(self) -> None:
        """Drop every connection."""
        if self._engine is not None:
            self._engine.dispose()

    def _begin(self) -> AbstractContextManager[sa.Connection]:
        if self._engine is None:
            raise RuntimeError("the job database is not open")
        return self._engine.begin()

    def hosts(self) -> dict[str, Host]:
        """Every host on record, by its executor id."""
        with self._begin() as connection:
            rows = connection.execute(sa.select(self._hosts)).mappings()
            return {row["executor_id"]: Host(**row) for row in rows}

    def enter(self, host: Host, found: Host | None) -> bool:
        """Replace the row ``found`` by a host; False when the row has changed since."""
        with self._begin() as connection:
            if found is not None:
                return self._changed(connection, self._is(found), asdict(host))
            try:
                connection.execute(sa.insert(self._hosts).values(asdict(host)))
            except IntegrityError:
                connection.rollback()
                return False
            return True

    def beat(self, host: Host, running: str) -> bool:
        """Show that the host lives; False when its row is gone, or another process's."""
        values = {"beat": self._hosts.c.beat + 1, "running": running}
        with self._begin() as connection:
            return self._changed(connection, self._held_by(host), values)

    def leave(self, host: Host) -> bool:
        """Mark the host as stopped in an orderly way: its jobs are free at once."""
        left: dict[str, object] = {"session": "", "running": "{}"}
        with self._begin() as connection:
            return self._changed(connection, self._held_by(host), left)

    def forget(self, host: Host) -> None:
        """Remove a host that has not moved since it was read."""
        with self._begin() as connection:
            connection.execute(sa.delete(self._hosts).where(self._is(host)))

    def _held_by(self, host: Host) -> sa.ColumnElement[bool]:
        row = self._hosts.c
        return (row.executor_id == host.executor_id) & (row.session == host.session)

    def _is(self, host: Host) -> sa.ColumnElement[bool]:
        return self._held_by(host) & (self._hosts.c.beat == host.beat)

    def _changed(
        self,
        connection: sa.Connection,
        where: sa.ColumnElement[bool],
        values: dict[str, object],
    ) -> bool:
        return connection.execute(sa.update(self._hosts).where(where).values(values)).rowcount == 1

    def queued(self) -> dict[str, int]:
        """Jobs that wait for a host, of every tenant that has any; none where only tasks wait."""
        with self._begin() as connection:
            found = connection.execute(self._queued)
            return {name or "": waiting for name, waiting, with_tasks in found if with_tasks}

    @cached_property
    def _queued(self) -> sa.CompoundSelect[Any]:
        """Asked every second, so built once."""
        jobs, count = self._jobs.c, sa.func.count()
        counts = count.filter(jobs.name != TASK), count
        tenant = jobs.queue_partition_key
        own = sa.select(sa.null().label("tenant"), *counts).where(*self._at("ENQUEUED", QUEUE))
        others = sa.select(tenant, *counts).where(*self._at("ENQUEUED", TENANT_QUEUE))
        return sa.union_all(own, others.where(tenant.is_not(None)).group_by(tenant))

    def oldest_wait(self) -> float:
        """Seconds since the submission of the oldest job that waits for a host; 0 without any."""
        waiting = self._waiting(QUEUE, TENANT_QUEUE)
        query = sa.select(sa.func.min(self._jobs.c.created_at)).where(*waiting)
        with self._begin() as connection:
            created = connection.execute(query).scalar_one()
        return 0.0 if created is None else _seconds_since(created)

    def origin(self, job_id: str) -> tuple[float | None, str]:
        """Seconds since a job's submission, None when it was started before; and its trace."""
        jobs = self._jobs.c
        columns = jobs.created_at, jobs.recovery_attempts, jobs.attributes
        query = sa.select(*columns).where(jobs.workflow_uuid == job_id)
        with self._begin() as connection:
            created, starts, attributes = connection.execute(query).one()
        trace = (attributes or {}).get(tracing.HEADER, "")
        return None if starts > 1 else _seconds_since(created), trace

    def queued_of(self, owner: Owner) -> int:
        """Jobs of one caller that wait for a host."""
        jobs = self._jobs.c
        queue = TENANT_QUEUE if owner.tenant else QUEUE
        query = sa.select(sa.func.count()).where(
            *self._waiting(queue),
            self._is_of(owner.tenant),
            jobs.attributes["caller"].as_string() == owner.caller,
        )
        with self._begin() as connection:
            return int(connection.execute(query).scalar_one())

    def _is_of(self, tenant: str) -> sa.ColumnElement[bool]:
        key = self._jobs.c.queue_partition_key
        return key == tenant if tenant else key.is_(None)

    def _waiting(self, *queues: str) -> list[sa.ColumnElement[bool]]:
        return [*self._at("ENQUEUED", *queues), self._jobs.c.name != TASK]

    def _at(self, status: str, *queues: str) -> list[sa.ColumnElement[bool]]:
        # Literals: SQLite uses the partial indexes of DBOS only for a status that it can read.
        jobs = self._jobs.c
        in_flight = jobs.status.in_(
            [sa.literal_column("'ENQUEUED'"), sa.literal_column("'PENDING'")]
        )
        return [
            jobs.queue_name.in_(queues),
            jobs.status == sa.literal_column(f"'{status}'"),
            in_flight,
        ]

    def page(
        self,
        kinds: Collection[str],
        wanted: JobFilter,
        tenant: str | None,
        *,
        offset: int,
        limit: int,
    ) -> list[str]:
        """Ids of the jobs that pass a filter, of ``kinds`` unless it names one, newest first.

        Those of one tenant, or of all when it is None.
        """
        jobs = self._jobs.c
        named = kinds if wanted.kind is None else [wanted.kind]
        query = sa.select(jobs.workflow_uuid).where(jobs.name.in_(named))
        if tenant is not None:
            query = query.where(self._is_of(tenant))
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
        tie = jobs.workflow_uuid if self._postgres else sa.literal_column("rowid").desc()
        query = query.order_by(jobs.created_at.desc(), tie)
        with self._begin() as connection:
            return list(connection.execute(query.offset(offset).limit(limit)).scalars())

    def now(self) -> float:
        """Seconds since 1970 by the clock that dates jobs, which is the same for every host."""
        clocks = sa.func.strftime("%s", "now"), sa.func.extract("epoch", sa.func.now())
        with self._begin() as connection:
            return float(connection.execute(sa.select(clocks[self._postgres])).scalar_one())

    def held(self) -> dict[str, str]:
        """Ids of the jobs and tasks that a host has taken up, with the host's executor id."""
        jobs = self._jobs.c
        query = sa.select(jobs.workflow_uuid, jobs.executor_id).where(
            *self._at("PENDING", QUEUE, TENANT_QUEUE)
        )
        with self._begin() as connection:
            return {job: executor or "" for job, executor in connection.execute(query)}

    def steps(self, job_ids: Collection[str]) -> dict[str, int]:
        """Steps on record of each job that has any."""
        if not job_ids:
            return {}
        job = self._steps.c.workflow_uuid
        query = sa.select(job, sa.func.count()).where(job.in_(job_ids)).group_by(job)
        with self._begin() as connection:
            return {job_id: count for job_id, count in connection.execute(query)}


def no_room(error: Exception) -> bool:
    """Whether the record could not be written because its disk is full; it can be read then."""
    cause = getattr(error, "orig", None)
    disk_full = getattr(cause, "sqlstate", None) == "53100"
    return disk_full or getattr(cause, "sqlite_errorname", None) in NO_ROOM


def first_line(error: Exception) -> str:
    """What went wrong, without SQLAlchemy's statement and advice."""
    return str(getattr(error, "orig", None) or error).partition("\n")[0]


def _seconds_since(moment: int) -> float:
    """From a moment in milliseconds; another host's clock may be ahead."""
    return max(0.0, time.time() - moment / 1000)
