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

import json
import math
import threading
import time
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime

import structlog
from sqlalchemy.exc import SQLAlchemyError

from acpc_server.errors import FailedPrecondition
from acpc_server.jobs.hosts import Host, Hosts
from acpc_server.jobs.record import RECORD_ERRORS, first_line, no_room
from acpc_server.jobs.runs import JobRunner

log = structlog.get_logger("acpc.jobs")
# How often a host that has jobs checks that they are still its own, and reports their progress.
TICK_SECONDS = 1.0
# Queued jobs are counted at every heartbeat, but for no more than this share of the time, and at
# least once a minute: each host counts the whole queue.
COUNTING_SHARE = 0.002
COUNTING_SECONDS = 60.0
ENTRIES = 3
SWEEP_SECONDS = 600.0
NOTHING: Mapping[str, str] = {}


@dataclass(frozen=True)
class LeaseTerms:
    """The same on every host of a record."""

    heartbeat: float = 5.0  # seconds between two beats
    lease: float = 20.0  # seconds without a beat after which a host is declared dead

    @property
    def beats(self) -> int:
        """Missed beats after which a host is declared dead."""
        return math.ceil(self.lease / self.heartbeat)


class Sightings:
    """Counts how often in a row a value was seen unchanged."""

    def __init__(self) -> None:
        self._seen: dict[str, tuple[object, int]] = {}

    def count(self, now: Mapping[str, object]) -> dict[str, int]:
        """Return the repeats of each value; one that changed or is new has none."""
        before = self._seen
        self._seen = {}
        for name, value in now.items():
            stood = name in before and before[name][0] == value
            self._seen[name] = (value, before[name][1] + 1 if stood else 0)
        return {name: repeats for name, (_, repeats) in self._seen.items()}


class Lease:
    """This host's name among the hosts, and its watch over the others.

    Args:
        hosts: Those of the record.
        running: This host's runs.
        terms: Heartbeat and lease.
        on_queued: Called with how many jobs are queued, and the age of the oldest.
        on_evicted: Called when another process has this host's name: this one must stop.
        sweep: Called every ten minutes, and again at once while it returns True.
    """

    def __init__(
        self,
        hosts: Hosts,
        running: JobRunner,
        *,
        terms: LeaseTerms,
        on_queued: Callable[[int, float], None] = lambda *_: None,
        on_evicted: Callable[[], None] = lambda: None,
        sweep: Callable[[], bool] = lambda: False,
    ) -> None:
        self._record = hosts.record
        self._hosts = hosts
        self._running = running
        self._terms = terms
        self._on_queued = on_queued
        self._on_evicted = on_evicted
        self._sweep = sweep
        self._host = Host("", "", "")
        self._entered = False
        self._others = Sightings()
        self._strays = Sightings()
        self._reported = ""
        self.away = self.full = False  # whether the record could not be reached, or written
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._keep, name="acpc-lease", daemon=True)

    def acquire(self, executor_id: str, folder: str, about: Mapping[str, str] = NOTHING) -> None:
        """Take this host's name, and record facts about it, or raise FailedPrecondition.

        A name whose holder stopped in an orderly way, or had the same state folder, is free at
        once; any other when its holder misses its beats for the length of the lease.
        """
        since = datetime.now(UTC).isoformat(timespec="seconds")
        facts = json.dumps({"since": since, **about})
        self._host = Host(executor_id, uuid.uuid4().hex, folder, about=facts)
        for _ in range(ENTRIES):  # another host may remove the row of one that left meanwhile
            found = self._hosts.read().get(executor_id)
            taken = found is not None and found.session and found.folder != folder
            if taken and self._beats(executor_id, found):
                break
            if self._hosts.enter(self._host, found):
                self._entered = True
                return
        raise FailedPrecondition(
            f"another running server has the executor id {executor_id!r}; give each its own "
            "--executor-id, or none and its own --state-dir",
            reason="EXECUTOR_ID_TAKEN",
        )

    def _beats(self, name: str, found: Host | None) -> bool:
        """Whether the holder of a name beats within the length of the lease."""
        log.info("executor_id_in_question", executor_id=name, seconds=self._terms.lease)
        for _ in range(self._terms.beats):
            time.sleep(self._terms.heartbeat)
            if self._hosts.read().get(name) != found:
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
        self._on_queued(0, 0.0)

    def leave(self) -> None:
        """Give the name up, so that other hosts take over this one's jobs without waiting."""
        if not self._entered:
            return
        try:
            self._hosts.leave(self._host)
        except SQLAlchemyError as error:
            log.warning("job_database_away", cause=first_line(error))

    def _keep(self) -> None:
        due = count_due = sweep_due = time.monotonic()
        while not self._stop.wait(min(TICK_SECONDS, self._terms.heartbeat)):
            looked = time.monotonic()
            try:
                if self.away or looked >= count_due:
                    self._on_queued(*self._record.queued())
                    took = time.monotonic() - looked
                    pause = max(self._terms.heartbeat, min(took / COUNTING_SHARE, COUNTING_SECONDS))
                    self.away, count_due = False, looked + pause
                self._look_after_own()
                if looked >= due and self._beat():
                    self.full, due = False, looked + self._terms.heartbeat
                    self._look_after_others()
                if looked >= sweep_due and not self._sweep():
                    sweep_due = looked + SWEEP_SECONDS
            except (*RECORD_ERRORS, OSError) as error:
                self.full = no_room(error)
                self.away = isinstance(error, SQLAlchemyError) and not self.full
                event = "job_record_full" if self.full else "job_database_away"
                log.warning(event, cause=first_line(error))
            except Exception:  # a server that runs jobs without beating is worse than none
                log.exception("lease_failed")
                self._on_evicted()
                return

    def _look_after_own(self) -> None:
        """Withdraw runs whose job was cancelled or taken over, and report on the others."""
        if ours := self._running.ids():
            self._running.withdraw(ours - self._record.held(self._host.executor_id).keys())
        if self._running.report() != self._reported:
            self._beat()

    def _beat(self) -> bool:
        self._reported = self._running.report()
        if self._hosts.beat(self._host, self._reported):
            return True
        found = self._hosts.read().get(self._host.executor_id)
        if found is None:  # declared dead and forgotten
            log.warning("lease_lost", executor_id=self._host.executor_id)
            return self._hosts.enter(replace(self._host, running=self._reported), None)
        log.error("executor_id_lost", executor_id=self._host.executor_id)
        self._stop.set()
        self._on_evicted()
        return False

    def _look_after_others(self) -> None:
        """Queue again the jobs that dead hosts hold, and those this host holds but does not run."""
        hosts, held, mine = self._hosts.read(), self._record.held(), self._host.executor_id
        others = {*hosts, *held.values()} - {mine}
        marks = {
            name: (hosts[name].session, hosts[name].beat) if name in hosts else None
            for name in others
        }
        for name, repeats in self._others.count(marks).items():
            host = hosts.get(name)
            if (host is not None and not host.session) or self._due(repeats):
                jobs = [job for job, holder in held.items() if holder == name]
                taken = sum(self._record.requeue(job, name) for job in jobs)
                log.warning("host_gone", executor_id=name, jobs=taken)
                if host is not None:
                    self._hosts.forget(host)
        ours = self._running.ids()
        idle = {job: mine for job, holder in held.items() if holder == mine and job not in ours}
        for job, repeats in self._strays.count(idle).items():
            if self._due(repeats) and not self._running.draining.is_set():
                log.warning("job_requeued", job=job)
                self._record.resume(job)

    def _due(self, repeats: int) -> bool:
        return repeats > 0 and repeats % self._terms.beats == 0
