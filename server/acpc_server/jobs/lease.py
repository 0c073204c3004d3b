"""Watches in the background: heartbeats, and takeover of a dead host's jobs.

DBOS does not notice that a host is gone. So every host, which is one process, beats in a table of
ours under a name of its own, and a host that sees another's beat unchanged for the length of the
lease queues that host's jobs again. Beats are counted, not dated: hosts' clocks may differ, and
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
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

import sqlalchemy as sa
import structlog

from acpc_server.errors import FailedPrecondition
from acpc_server.jobs.record import RECORD_ERRORS, Record, first_line, noted
from acpc_server.jobs.runner import JobRunner

log = structlog.get_logger("acpc.jobs")
# How often a host that has jobs checks that they are still its own.
TICK_SECONDS = 1.0
# Queued jobs are counted at every heartbeat, but for no more than this share of the time, and at
# least once a minute: each host counts the whole queue.
COUNTING_SHARE = 0.002
COUNTING_SECONDS = 60.0
SWEEP_SECONDS = 600.0


class StateFolder:
    """The folder of one running server, which keeps the name of the last one that ran there.

    Whoever has locked the folder knows that the process of that name is dead.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._lock: int | None = None

    def claim(self) -> str:
        """Lock the folder for this process; return the last one's name, empty without one.

        FailedPrecondition: another process has it, or it cannot be written.
        """
        with self._usable():
            self._lock = os.open(self._path / "lock", os.O_RDWR | os.O_CREAT, 0o600)
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            file = self._path / "name"
            return file.read_text(errors="replace").strip() if file.exists() else ""

    def keep(self, name: str) -> None:
        """Keep this process's name for the next; FailedPrecondition: it cannot be written."""
        with self._usable():
            written = self._path / "name.new"
            written.write_text(f"{name}\n")
            written.replace(self._path / "name")

    def release(self) -> None:
        """Let another process have the folder."""
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    @contextmanager
    def _usable(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            self.release()
            if isinstance(error, BlockingIOError):
                raise FailedPrecondition(
                    f"another server runs on the state folder {self._path}; give each its own "
                    "--state-dir",
                    reason="STATE_FOLDER_TAKEN",
                ) from error
            why = f"cannot use the state folder {self._path} ({error.strerror})"
            raise FailedPrecondition(f"{why}; choose another --state-dir") from error


@dataclass(frozen=True)
class LeaseTerms:
    """The same on every host of a record."""

    heartbeat: float = 5.0  # seconds between two beats
    lease: float = 20.0  # seconds without a beat after which a host is declared dead


@dataclass(eq=False, kw_only=True)
class Lease:
    """This host's row among the hosts of a record, and its watch over the others."""

    record: Record
    running: JobRunner
    terms: LeaseTerms
    on_queued: Callable[[int, float], None]  # how many jobs are queued, and the oldest one's age
    sweep: Callable[[], bool]  # every ten minutes, and again at once while it returns True
    away: str = ""  # why the record could not be reached or written; empty: it could
    _about: str = ""  # this host, in its row; empty: it has none yet
    _beat: int = 0
    # What was seen of hosts and jobs, and how often in a row unchanged.
    _seen: dict[str, tuple[object, int]] = field(default_factory=dict)
    _stop: threading.Event = field(default_factory=threading.Event)

    def __post_init__(self) -> None:
        self._name = self.running.executor_id
        # A host of an earlier build empties its session when it leaves, and keeps its name.
        self._hosts = sa.Table(
            "acpc_hosts",
            self.record.own_tables,
            sa.Column("executor_id", sa.Text, primary_key=True),
            sa.Column("session", sa.Text, nullable=False),
            sa.Column("folder", sa.Text, nullable=False),
            sa.Column("beat", sa.BigInteger, nullable=False),
            sa.Column("running", sa.Text, nullable=False),
            sa.Column("about", sa.Text, nullable=False, server_default="{}"),
        )
        self._thread = threading.Thread(target=self._keep, name="acpc-lease", daemon=True)

    def enter(self, about: Mapping[str, str]) -> None:
        """Put this host on record, with facts about it for operators."""
        since = datetime.now(UTC).isoformat(timespec="seconds")
        self._about = json.dumps({"since": since, **about})
        self._enter_beat()

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
        """Queue this host's jobs again, which others take up without waiting."""
        if self._about:
            with noted():
                self.take_over(self._name)

    def take_over(self, name: str) -> int:
        """Queue the jobs of a host that is gone, and forget it; how many they were.

        One that lives enters itself again.
        """
        taken = sum(self.record.requeue(job, name) for job in self.record.held(name))
        with self.record.engine.begin() as connection:
            connection.execute(sa.delete(self._hosts).where(self._hosts.c.executor_id == name))
        return taken

    def _enter_beat(self) -> bool:
        """Write this host's beat, and its row where there is none; whether there was one."""
        row, name, beat = self._hosts.c, self._name, self._beat
        with self.record.engine.begin() as connection:
            beats = sa.update(self._hosts).where(row.executor_id == name).values(beat=beat)
            if connection.execute(beats).rowcount:
                return True
            # As an earlier build reads it: a process of this folder, whose name is free for it.
            host = {"executor_id": name, "session": name, "folder": name, "beat": beat}
            fresh = sa.insert(self._hosts).values(**host, running="{}", about=self._about)
            connection.execute(fresh)
            return False

    def _keep(self) -> None:
        due = count_due = sweep_due = time.monotonic()
        while not self._stop.wait(min(TICK_SECONDS, self.terms.heartbeat)):
            looked = time.monotonic()
            try:
                if self.away or looked >= count_due:
                    self.on_queued(*self.record.queued())
                    took = time.monotonic() - looked
                    pause = max(self.terms.heartbeat, min(took / COUNTING_SHARE, COUNTING_SECONDS))
                    count_due = looked + pause
                if ours := self.running.ids():  # withdraw those cancelled or taken over
                    self.running.withdraw(ours - self.record.held(self._name).keys())
                if self.away or looked >= due:
                    self._beat += 1
                    if not self._enter_beat():
                        log.warning("lease_lost", executor_id=self._name)  # declared dead
                    self.away, due = "", looked + self.terms.heartbeat
                    self._look_after_others()
                if looked >= sweep_due and not self.sweep():
                    sweep_due = looked + SWEEP_SECONDS
            except RECORD_ERRORS as error:
                self.away = first_line(error)
                log.warning("job_database_away", cause=self.away)
            except Exception as error:  # others take over the jobs of a host that does not beat
                self.away = first_line(error)
                log.exception("lease_failed")

    def _look_after_others(self) -> None:
        """Queue again the jobs that dead hosts hold, and those this host holds but does not run."""
        row = self._hosts.c
        known = self.record.ask(sa.select(row.executor_id, row.session, row.beat))
        # What moves while a host lives; None for one that has left.
        hosts = {name: (session, beat) if session else None for name, session, beat in known}
        held, ours = self.record.held(), self.running.ids()
        others = {*hosts, *held.values()} - {self._name}
        dropped = {job for job, name in held.items() if name == self._name and job not in ours}
        beats: dict[str, object] = {name: hosts.get(name) for name in others}
        still = self._unmoved({**beats, **dict.fromkeys(dropped, self._name)})
        for name in others:
            if name in still or (name in hosts and hosts[name] is None):
                log.warning("host_gone", executor_id=name, jobs=self.take_over(name))
        for job in still & dropped:
            if not self.running.draining.is_set():
                log.warning("job_requeued", job=job)
                self.record.resume(job)

    def _unmoved(self, marks: Mapping[str, object]) -> set[str]:
        """Return what has not changed for the length of the lease, or for twice it, and so on."""
        before, self._seen = self._seen, {}
        for name, mark in marks.items():
            known, repeats = before.get(name, (None, 0))
            same = name in before and known == mark
            self._seen[name] = mark, repeats + 1 if same else 0
        beats = math.ceil(self.terms.lease / self.terms.heartbeat)
        return {name for name, (_, count) in self._seen.items() if count and not count % beats}
