"""Watches in the background: heartbeats, and takeover of a dead host's jobs.

DBOS resumes a host's jobs when that host starts again; it does not notice that a host is gone. So
every host beats in a table of ours, and a host that sees another's beat unchanged for the length of
the lease queues that host's jobs again. Beats are counted, not dated: hosts' clocks may differ, and
while the record is away nobody counts, so no host is declared dead for that.

A host that was declared dead by mistake, because it was paused or cut off, does no harm. Whenever
a host takes up a job, DBOS writes a new owner's token into the job's row, and checks it in the
transaction that records a step or the outcome: a run that has lost its job records nothing and
withdraws. The table only decides how soon work moves.
"""

import fcntl
import json
import math
import os
import socket
import threading
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path

import sqlalchemy as sa
import structlog
from sqlalchemy.exc import IntegrityError, SQLAlchemyError

from acpc_server.errors import FailedPrecondition
from acpc_server.jobs.record import RECORD_ERRORS, Record, first_line, no_room, noted
from acpc_server.jobs.runner import JobRunner

log = structlog.get_logger("acpc.jobs")
# How often a host that has jobs checks that they are still its own.
TICK_SECONDS = 1.0
# Queued jobs are counted at every heartbeat, but for no more than this share of the time, and at
# least once a minute: each host counts the whole queue.
COUNTING_SHARE = 0.002
COUNTING_SECONDS = 60.0
ENTRIES = 3
SWEEP_SECONDS = 600.0


class StateFolder:
    """The folder of one running server, and the name that goes with it.

    The name is made when the folder is first used and stays in it, so that a server that starts
    again on its folder, under whatever host name, is recognised.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._lock: int | None = None

    def claim(self) -> str:
        """Lock the folder for this process; return its name ``<first host name>-<8 digits>``.

        FailedPrecondition: another process has it, or it cannot be written.
        """
        path, file = self._path, self._path / "name"
        wrong, reason = f"another server runs on the state folder {path}; give each its own", ""
        try:
            self._lock = os.open(path / "lock", os.O_RDWR | os.O_CREAT, 0o600)
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if not file.exists() or not file.read_text().strip():  # as a power cut may leave it
                written = file.with_suffix(".new")
                written.write_text(f"{socket.gethostname()}-{uuid.uuid4().hex[:8]}\n")
                written.replace(file)
            return file.read_text().strip()
        except OSError as error:
            self.release()
            reason = "STATE_FOLDER_TAKEN"
            if not isinstance(error, BlockingIOError):
                wrong = f"cannot use the state folder {path} ({error.strerror}); choose another"
                reason = ""
            raise FailedPrecondition(f"{wrong} --state-dir", reason=reason) from error

    def release(self) -> None:
        """Let another process have the folder."""
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None


@dataclass(frozen=True)
class Host:
    """One server that shares the job record."""

    executor_id: str  # its name among them
    session: str  # the process that has the name now; empty after an orderly stop
    folder: str  # identity of the process's state folder
    beat: int = 0  # grows for as long as the process lives
    running: str = "{}"  # progress of its jobs, of release 0.1.0
    about: str = "{}"  # since when, version and device, JSON


class Hosts:
    """The table of the hosts of a record, beside DBOS's own."""

    def __init__(self, record: Record) -> None:
        self.record = record
        self._hosts = sa.Table(
            "acpc_hosts",
            record.own_tables,
            sa.Column("executor_id", sa.Text, primary_key=True),
            sa.Column("session", sa.Text, nullable=False),
            sa.Column("folder", sa.Text, nullable=False),
            sa.Column("beat", sa.BigInteger, nullable=False),
            sa.Column("running", sa.Text, nullable=False),
            sa.Column("about", sa.Text, nullable=False, server_default="{}"),
        )

    def read(self) -> dict[str, Host]:
        """Return every host on record, by its executor id."""
        with self.record.engine.begin() as connection:
            rows = connection.execute(sa.select(self._hosts)).mappings()
            return {row["executor_id"]: Host(**row) for row in rows}

    def enter(self, host: Host, found: Host | None) -> bool:
        """Replace the row ``found`` by a host; False when the row has changed since."""
        if found is not None:
            return self.change(found, self._hosts.c.beat == found.beat, **asdict(host))
        try:
            with self.record.engine.begin() as connection:
                connection.execute(sa.insert(self._hosts).values(asdict(host)))
        except IntegrityError:
            return False
        return True

    def change(self, host: Host, *more: sa.ColumnElement[bool], **values: object) -> bool:
        """Change the row of a host; False when it is gone, or another process's."""
        query = sa.update(self._hosts).where(*self._held_by(host), *more).values(values)
        with self.record.engine.begin() as connection:
            return connection.execute(query).rowcount == 1

    def forget(self, host: Host) -> None:
        """Remove a host that has not moved since it was read."""
        unmoved = self._hosts.c.beat == host.beat
        with self.record.engine.begin() as connection:
            connection.execute(sa.delete(self._hosts).where(*self._held_by(host), unmoved))

    def _held_by(self, host: Host) -> Sequence[sa.ColumnElement[bool]]:
        row = self._hosts.c
        return row.executor_id == host.executor_id, row.session == host.session


@dataclass(frozen=True)
class LeaseTerms:
    """The same on every host of a record."""

    heartbeat: float = 5.0  # seconds between two beats
    lease: float = 20.0  # seconds without a beat after which a host is declared dead

    @property
    def beats(self) -> int:
        """Missed beats after which a host is declared dead."""
        return math.ceil(self.lease / self.heartbeat)


@dataclass(eq=False, kw_only=True)
class Lease:
    """This host's name among the hosts of a record, and its watch over the others."""

    hosts: Hosts
    running: JobRunner
    terms: LeaseTerms
    on_queued: Callable[[int, float], None]  # how many jobs are queued, and the oldest one's age
    on_evicted: Callable[[], None]  # another process has this host's name: this one must stop
    sweep: Callable[[], bool]  # every ten minutes, and again at once while it returns True
    away: bool = False  # whether the record could not be reached
    full: bool = False  # or written
    _host: Host = Host("", "", "")
    _entered: bool = False
    # What was seen of hosts and jobs, and how often in a row unchanged.
    _seen: dict[str, tuple[object, int]] = field(default_factory=dict)
    _stop: threading.Event = field(default_factory=threading.Event)

    def __post_init__(self) -> None:
        self._record = self.hosts.record
        self._thread = threading.Thread(target=self._keep, name="acpc-lease", daemon=True)

    def acquire(self, executor_id: str, folder: str, about: Mapping[str, str]) -> None:
        """Take this host's name, and record facts about it, or raise FailedPrecondition.

        A name whose holder stopped in an orderly way, or had the same state folder, is free at
        once; any other when its holder misses its beats for the length of the lease.
        """
        since = datetime.now(UTC).isoformat(timespec="seconds")
        facts = json.dumps({"since": since, **about})
        self._host = Host(executor_id, uuid.uuid4().hex, folder, about=facts)
        for _ in range(ENTRIES):  # another host may remove the row of one that left meanwhile
            found = self.hosts.read().get(executor_id)
            taken = found is not None and found.session and found.folder != folder
            if taken and self._beats(executor_id, found):
                break
            if self.hosts.enter(self._host, found):
                self._entered = True
                return
        raise FailedPrecondition(
            f"another running server has the executor id {executor_id!r}; give each its own "
            "--executor-id, or none and its own --state-dir",
            reason="EXECUTOR_ID_TAKEN",
        )

    def _beats(self, name: str, found: Host | None) -> bool:
        """Whether the holder of a name beats within the length of the lease."""
        log.info("executor_id_in_question", executor_id=name, seconds=self.terms.lease)
        for _ in range(self.terms.beats):
            time.sleep(self.terms.heartbeat)
            if self.hosts.read().get(name) != found:
                return True
        return False

    def start(self) -> None:
        """Begin to beat and to watch."""
        self._thread.start()

    def stop(self) -> None:
        """End the watch."""
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join()
        self.on_queued(0, 0.0)

    def leave(self) -> None:
        """Give the name up, so that other hosts take over this one's jobs without waiting."""
        if self._entered:
            with noted():
                self.hosts.change(self._host, session="")

    def _keep(self) -> None:
        due = count_due = sweep_due = time.monotonic()
        while not self._stop.wait(min(TICK_SECONDS, self.terms.heartbeat)):
            looked = time.monotonic()
            try:
                if self.away or looked >= count_due:
                    self.on_queued(*self._record.queued())
                    took = time.monotonic() - looked
                    pause = max(self.terms.heartbeat, min(took / COUNTING_SHARE, COUNTING_SECONDS))
                    self.away, count_due = False, looked + pause
                if ours := self.running.ids():  # withdraw those cancelled or taken over
                    self.running.withdraw(ours - self._record.held(self._host.executor_id).keys())
                if looked >= due and self._beat():
                    self.full, due = False, looked + self.terms.heartbeat
                    self._look_after_others()
                if looked >= sweep_due and not self.sweep():
                    sweep_due = looked + SWEEP_SECONDS
            except RECORD_ERRORS as error:
                self.full = no_room(error)
                self.away = isinstance(error, SQLAlchemyError) and not self.full
                event = "job_record_full" if self.full else "job_database_away"
                log.warning(event, cause=first_line(error))
            except Exception:  # a server that runs jobs without beating is worse than none
                log.exception("lease_failed")
                self.on_evicted()
                return

    def _beat(self) -> bool:
        if self.hosts.change(self._host, beat=self._host.beat + 1):
            self._host = replace(self._host, beat=self._host.beat + 1)
            return True
        found = self.hosts.read().get(self._host.executor_id)
        if found is None:  # declared dead and forgotten
            log.warning("lease_lost", executor_id=self._host.executor_id)
            return self.hosts.enter(self._host, None)
        log.error("executor_id_lost", executor_id=self._host.executor_id)
        self._stop.set()
        self.on_evicted()
        return False

    def _look_after_others(self) -> None:
        """Queue again the jobs that dead hosts hold, and those this host holds but does not run."""
        hosts, held, mine = self.hosts.read(), self._record.held(), self._host.executor_id
        others = {*hosts, *held.values()} - {mine}
        marks: dict[str, object] = {
            name: (hosts[name].session, hosts[name].beat) if name in hosts else None
            for name in others
        }
        ours = self.running.ids()
        marks |= {job: mine for job, holder in held.items() if holder == mine and job not in ours}
        still = self._unmoved(marks)
        for name in others:
            host = hosts.get(name)
            if name in still or (host is not None and not host.session):
                jobs = [job for job, holder in held.items() if holder == name]
                taken = sum(self._record.requeue(job, name) for job in jobs)
                log.warning("host_gone", executor_id=name, jobs=taken)
                if host is not None:
                    self.hosts.forget(host)
        for job in still - others:
            if not self.running.draining.is_set():
                log.warning("job_requeued", job=job)
                self._record.resume(job)

    def _unmoved(self, marks: Mapping[str, object]) -> set[str]:
        """Return what has not changed for the length of the lease, or for twice it, and so on."""
        before, self._seen = self._seen, {}
        for name, mark in marks.items():
            known, repeats = before.get(name, (None, 0))
            same = name in before and known == mark
            self._seen[name] = mark, repeats + 1 if same else 0
        beats = self.terms.beats
        return {name for name, (_, count) in self._seen.items() if count and not count % beats}
