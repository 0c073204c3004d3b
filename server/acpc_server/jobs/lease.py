"""Heartbeats of the hosts that share a job record, and takeover of a dead host's jobs.

DBOS resumes a host's jobs when that host starts again; it does not notice that a host is gone. So
every host beats in a table of ours, and a host that sees another's beat unchanged for the length of
the lease has DBOS queue that host's jobs again. Beats are counted, not dated: hosts' clocks may
differ, and while the database is away nobody counts, so no host is declared dead for that.

A host that was declared dead by mistake, because it was paused or cut off, does no harm. Whenever
a host takes up a job, DBOS writes a new owner's token into the job's row, and checks it in the
transaction that records a step or the outcome: a run that has lost its job records nothing and
withdraws. The table only decides how soon work moves.
"""

from __future__ import annotations

import math
import threading
import time
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import structlog
from sqlalchemy.exc import SQLAlchemyError

from acpc_server.errors import FailedPrecondition
from acpc_server.jobs import durable
from acpc_server.jobs.database import Host, JobDatabase, first_line, no_room
from acpc_server.jobs.running import RunningJobs

log = structlog.get_logger("acpc.jobs")
# How often a host checks that its jobs are still its own, and reports their progress.
TICK_SECONDS = 1.0


@dataclass(frozen=True)
class LeaseTerms:
    """The same on every host of a record.

    Attributes:
        heartbeat: Seconds between two beats.
        lease: Seconds without a beat after which a host is declared dead.
    """

    heartbeat: float = 5.0
    lease: float = 20.0

    @property
    def beats(self) -> int:
        """Missed beats after which a host is declared dead."""
        return math.ceil(self.lease / self.heartbeat)


class Sightings:
    """Counts how often in a row a value was seen unchanged."""

    def __init__(self) -> None:
        self._seen: dict[str, tuple[object, int]] = {}

    def count(self, now: Mapping[str, object]) -> dict[str, int]:
        """Repeats of each value; one that changed or is new has none."""
        before = self._seen
        self._seen = {}
        for name, value in now.items():
            stood = name in before and before[name][0] == value
            self._seen[name] = (value, before[name][1] + 1 if stood else 0)
        return {name: repeats for name, (_, repeats) in self._seen.items()}


class Lease:
    """This host's name among the hosts, and its watch over the others.

    Args:
        on_queued: Called every second with the queued jobs by tenant, and the age of the oldest.
        on_evicted: Called when another process has this host's name: this one must stop.

    Attributes:
        away: Whether the database could not be reached lately.
        looked: When it last looked, by the monotonic clock.
    """

    def __init__(
        self,
        database: JobDatabase,
        running: RunningJobs,
        *,
        terms: LeaseTerms,
        on_queued: Callable[[Mapping[str, int], float], None],
        on_evicted: Callable[[], None],
    ) -> None:
        self._database = database
        self._running = running
        self._terms = terms
        self._on_queued = on_queued
        self._on_evicted = on_evicted
        self._host = Host("", "", "")
        self._entered = False
        self._others = Sightings()
        self._strays = Sightings()
        self._told = ""
        self.away = False
        self.looked = math.inf
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._keep, name="acpc-lease", daemon=True)

    def acquire(self, executor_id: str, folder: str) -> None:
        """Take this host's name.

        A name whose holder stopped in an orderly way, or had the same state folder, is free at
        once; any other when its holder misses its beats for the length of the lease.

        Raises:
            FailedPrecondition: Another running server has the name.
        """
        self._host = Host(executor_id, uuid.uuid4().hex, folder)
        found = self._database.hosts().get(executor_id)
        free = found is None or not found.session or found.folder == folder
        free = free or not self._beats(executor_id, found)
        self._entered = free and self._database.enter(self._host, found)
        if not self._entered:
            raise FailedPrecondition(
                f"another running server has the executor id {executor_id!r}; give each its own "
                "--executor-id, or none and its own --state-dir",
                reason="EXECUTOR_ID_TAKEN",
            )

    def _beats(self, executor_id: str, found: Host | None) -> bool:
        """Whether the holder of a name beats within the length of the lease."""
        log.info("executor_id_in_question", executor_id=executor_id, seconds=self._terms.lease)
        for _ in range(self._terms.beats):
            time.sleep(self._terms.heartbeat)
            if self._database.hosts().get(executor_id) != found:
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
        self._on_queued({}, 0.0)

    def leave(self) -> None:
        """Give the name up, so that other hosts take over this one's jobs without waiting."""
        if not self._entered:
            return
        try:
            self._database.leave(self._host)
        except SQLAlchemyError as error:
            log.warning("job_database_away", cause=first_line(error))

    def _keep(self) -> None:
        due = time.monotonic()
        while not self._stop.wait(min(TICK_SECONDS, self._terms.heartbeat)):
            self.looked = time.monotonic()
            try:
                self._look_after_own()
                self.away = False
                if time.monotonic() >= due and self._beat():
                    due = time.monotonic() + self._terms.heartbeat
                    self._look_after_others()
            except durable.RECORD_ERRORS as error:
                full = no_room(error)
                self.away = isinstance(error, SQLAlchemyError) and not full
                if full:
                    log.warning("job_record_full", cause=first_line(error))
                else:
                    log.warning("job_database_away", cause=first_line(error))
            except Exception:  # a server that runs jobs without beating is worse than none
                log.exception("lease_failed")
                self._on_evicted()
                return

    def _look_after_own(self) -> None:
        """Withdraw runs whose job was cancelled or taken over, and report on the others."""
        waiting = self._database.queued()
        if waiting:
            durable.wake()
        self._on_queued(waiting, self._database.oldest_wait() if waiting else 0.0)
        ours = self._running.ids()
        if ours:
            held = self._database.held()
            mine = self._host.executor_id
            self._running.withdraw([job for job in ours if held.get(job) != mine])
        if self._running.report() != self._told:
            self._beat()

    def _beat(self) -> bool:
        self._told = self._running.report()
        if self._database.beat(self._host, self._told):
            return True
        found = self._database.hosts().get(self._host.executor_id)
        if found is None:  # declared dead and forgotten
            log.warning("lease_lost", executor_id=self._host.executor_id)
            return self._database.enter(replace(self._host, running=self._told), None)
        log.error("executor_id_lost", executor_id=self._host.executor_id)
        self._stop.set()
        self._on_evicted()
        return False

    def _look_after_others(self) -> None:
        """Queue again the jobs that dead hosts hold, and those this host holds but does not run."""
        hosts, held = self._database.hosts(), self._database.held()
        others = {*hosts, *held.values()} - {self._host.executor_id}
        marks = {
            name: (hosts[name].session, hosts[name].beat) if name in hosts else None
            for name in others
        }
        alive = 0
        for name, repeats in self._others.count(marks).items():
            host = hosts.get(name)
            left = host is not None and not host.session
            alive += not left and repeats < self._terms.beats and host is not None
            if left or self._due(repeats):
                log.warning("host_gone", executor_id=name, jobs=durable.take_over(name))
                if host is not None:
                    self._database.forget(host)
        self._running.other_hosts = alive
        ours = self._running.ids()
        idle = {
            job: holder
            for job, holder in held.items()
            if holder == self._host.executor_id and job not in ours
        }
        for job, repeats in self._strays.count(idle).items():
            if self._due(repeats) and not self._running.draining.is_set():
                log.warning("job_requeued", job=job)
                durable.requeue(job)

    def _due(self, repeats: int) -> bool:
        return repeats > 0 and repeats % self._terms.beats == 0
