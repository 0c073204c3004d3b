"""Runs jobs in this process: their steps, and what each leaves in the record.

A step that has finished is never run again: after a crash the workflow replays the recorded
results and continues with the first step that has none. Steps record plain JSON. A step that fails
records the failure, so that a replay ends the same way. A run that is withdrawn, because the job
was cancelled or taken over, the server stops or the record is away, records nothing more. Nor does
one that fails because of this host: its device, or a want of memory, threads, files or disk. What
a step computed on the device is recorded once the device has shown that it still computes right.
"""

import threading
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any, TypeAlias

import structlog
from acpc.contract import from_plain

from acpc_server.errors import (
    AcpcError,
    Cancelled,
    HostShortage,
    InvalidArgument,
    ResourceExhausted,
    Unavailable,
    shortage,
)
from acpc_server.jobs.kind import JobFailure, JobKind, JobSpec, Json, Part, Progress
from acpc_server.jobs.payloads import Payloads
from acpc_server.jobs.record import RECORD_ERRORS, Record, first_line
from acpc_server.jobs.runner import record_step
from acpc_server.observe import Metrics
from acpc_server.scheduling import Priority, RequestContext

log = structlog.get_logger("acpc.jobs")
# A withdrawn job leaves at its next chunk; reading anchors takes longest.
LEAVE_SECONDS = 10.0
# A host whose jobs fail because of it takes the next one after a pause, which doubles each time.
FIRST_PAUSE_SECONDS = 1.0
LONGEST_PAUSE_SECONDS = 60.0
# How often a job may find its host short of memory: what is still short then is the job's own size.
SHORTAGES = 3

Verify: TypeAlias = Callable[[RequestContext], None]
"""Raises what is wrong with the device; called where a step has used it."""


@dataclass(frozen=True)
class End:
    """How a run ended.

    A withdrawn one leaves no mark in the record. It was ``set_aside`` when this host failed it, and
    another one may do better: for want of memory where it was ``short``.
    """

    state: str  # succeeded, failed or withdrawn
    result: Json | None = None
    failure: JobFailure | None = None
    set_aside: str = ""
    short: bool = False


WITHDRAWN = End("withdrawn")


class _Stop(Exception):
    """Ends a run from within one of its steps."""

    def __init__(self, end: End) -> None:
        super().__init__(end)
        self.end = end


class JobRun:
    """One run of one job in this process, of which ``recorded`` steps are on record."""

    def __init__(
        self,
        kind: JobKind[Any],
        spec: JobSpec,
        owner: str,
        recorded: int,
        metrics: Metrics,
        verify: Verify,
        held: Callable[[], bool],
    ) -> None:
        self.context = RequestContext(Priority.JOB, caller=owner)
        self.kind = kind
        self.fields = {"checkpoint": kind.labels(spec).get("checkpoint", "")}  # of log lines
        self.shortages = 0  # earlier runs here that ended for want of memory
        self._spec = spec
        self._recorded = recorded
        self._shards = metrics.job_shards.labels(kind.name)
        self._verify = verify
        self._held = held  # whether this host still holds the job
        self._total = kind.count_steps(spec)
        self._done = self._fresh_steps = 0
        self._fresh_seconds = 0.0
        self.progress = Progress.at("waiting", 0, self._total)

    def run(self, stamp: str) -> End:
        """Take every step in order."""
        try:
            result = self.kind.run(self._spec, stamp, self, self.context)
        except _Stop as stop:
            return stop.end
        except Exception as error:  # noqa: BLE001
            return self._end_of(error)
        return End("succeeded", result)

    def __call__(self, phase: str, work: Callable[[], Json]) -> Json:
        """See :class:`~acpc_server.jobs.Step`."""
        if self.context.cancelled:
            raise _Stop(WITHDRAWN)
        self._show(phase)
        fresh = self._done >= self._recorded
        outcome = self._measured(phase, work) if fresh else {}
        with self.context.phase("record"):
            found = record_step(phase, outcome)
        if found is None:
            raise _Stop(WITHDRAWN)
        outcome, ours = found
        if fresh and not ours and not self._held():  # another host measured it meanwhile
            raise _Stop(WITHDRAWN)
        if "failure" in outcome:
            raise _Stop(End("failed", failure=JobFailure(**outcome["failure"])))
        self._done += 1
        self._show(phase)
        value: Json = outcome["value"]
        return value

    def each(
        self, phase: str, measure: Callable[[Part], Json], parts: Iterable[Part]
    ) -> Iterator[Json]:
        """See :class:`~acpc_server.jobs.Step`."""

        def shard(part: Part) -> Json:
            self._shards.inc()
            return measure(part)

        for part in parts:
            yield self(phase, partial(shard, part))

    def phases(self) -> dict[str, float]:
        """Return the seconds of this run by phase, with the ``other`` ones that are no phase's."""
        spent = {**self.context.phases, "other": self.context.other_seconds}
        # A wait is measured from a moment before its phase begins.
        return {name: max(0.0, seconds) for name, seconds in spent.items()}

    def _measured(self, phase: str, work: Callable[[], Json]) -> Json:
        log.info("job_step", step=self._done + 1, steps=self._total, phase=phase)
        started, computed = time.monotonic(), self.context.compute_seconds
        try:
            outcome = {"value": work()}
        except Exception as error:
            end = self._end_of(error)
            if end.failure is None:
                raise _Stop(end) from error
            outcome = {"failure": asdict(end.failure)}
        if self.context.compute_seconds > computed:
            try:
                self._verify(self.context)
            except AcpcError as error:
                short = isinstance(error, ResourceExhausted) and getattr(error, "of_memory", True)
                raise _Stop(self._host_failed(error, short=short)) from error
        self._fresh_seconds += time.monotonic() - started
        self._fresh_steps += 1
        return outcome

    def _end_of(self, error: Exception) -> End:
        """Tell whose fault an error is: the job's, which fails, or this host's."""
        if isinstance(error, Cancelled | Unavailable | HostShortage):
            # The engine was closed, or its device has failed.
            return self._host_failed(error, short=getattr(error, "of_memory", False))
        if isinstance(error, AcpcError):
            return _failed(error.code, error.reason, error.message)
        if (found := shortage(error)) is not None:
            return self._host_failed(error, short=found.of_memory)
        log.error("job_step_failed", exc_info=error)
        why = "a step of the job failed; the server's log says why"
        return _failed("INTERNAL", "BUG", why)

    def _host_failed(self, error: Exception, *, short: bool) -> End:
        """Set the job aside, unless it has too often been too large for this host.

        Set aside for ever, it would keep the jobs behind it from running.
        """
        if isinstance(error, Cancelled):
            return WITHDRAWN
        if short and self.shortages + 1 >= SHORTAGES:
            why = f"the host had too little memory for this job {SHORTAGES} times"
            return _failed("RESOURCE_EXHAUSTED", "JOB_TOO_LARGE", why)
        return End("withdrawn", set_aside=f"{type(error).__name__}: {error}", short=short)

    def _show(self, phase: str) -> None:
        fresh = self._fresh_steps
        rate = fresh / max(self._fresh_seconds, 1e-9) if fresh else None
        self.progress = Progress.at(phase, self._done, self._total, rate)


def _failed(code: str, reason: str, message: str) -> End:
    return End("failed", failure=JobFailure(code, reason, message))


class JobRunner:
    """Runs the jobs of a record in this process, and counts how they end."""

    def __init__(
        self,
        kinds: Mapping[str, JobKind[Any]],
        record: Record,
        payloads: Payloads,
        metrics: Metrics,
        verify: Verify,
    ) -> None:
        self._kinds = kinds
        self._record = record
        self._payloads = payloads
        self._metrics = metrics
        self._verify = verify
        self.executor_id = ""  # the holder of the jobs that run here
        self._runs: dict[str, JobRun] = {}
        self._shortages: dict[str, int] = {}
        self._changed = threading.Condition()  # guards both, and the counts of ended jobs
        self.draining = threading.Event()
        self._closed = threading.Event()
        self._pause = FIRST_PAUSE_SECONDS

    def run(
        self, kind_name: str, job_id: str, recorded: Json, stamp: str, owner: str
    ) -> Json | JobFailure | None:
        """Run a job to its end, in the calling thread; see :data:`runner.Runner`."""
        kind = self._kinds[kind_name]
        named = {"principal": owner} if owner else {}
        with structlog.contextvars.bound_contextvars(job=job_id, kind=kind.name, **named):
            try:
                spec = self._payloads.fill(from_plain(kind.spec_type, recorded))
                steps, waited = self._record.begun(job_id)
            except InvalidArgument:
                # Written by a newer release; the lease queues it for a host that can read it.
                log.warning("job_unreadable")
                return None
            except RECORD_ERRORS as error:
                log.warning("job_database_away", cause=first_line(error))
                return None
            if waited is not None:
                self._metrics.first_step.observe(waited)
            held = partial(self._holds, job_id)
            run = JobRun(kind, spec, owner, steps, self._metrics, self._verify, held)
            with structlog.contextvars.bound_contextvars(**run.fields):
                log.info("job_started")
                end = self._hold(job_id, run, stamp)
            return end.result if end.failure is None else end.failure

    def _holds(self, job_id: str) -> bool:
        try:
            return job_id in self._record.held(self.executor_id)
        except RECORD_ERRORS:
            return False

    def _hold(self, job_id: str, run: JobRun, stamp: str) -> End:
        metrics, kind, started = self._metrics, run.kind.name, time.monotonic()
        with self._changed:
            self._runs[job_id] = run
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
            self._keep_phases(job_id, phases)
        if end.failure is not None:
            metrics.job_failures.labels(kind, end.failure.code).inc()
        self._leave(job_id, run, end)
        log.info("job_ended", end=end.state)
        if end.set_aside:
            log.warning("job_set_aside", cause=end.set_aside)
            self._set_aside(job_id)
        if end.state == "withdrawn" and self.draining.is_set():
            self._closed.wait()  # keeps the queue's slot, so that no further job starts
        return end

    def _keep_phases(self, job_id: str, phases: Mapping[str, float]) -> None:
        try:
            self._record.keep_phases(job_id, phases)
        except RECORD_ERRORS as error:  # DBOS waits until the outcome can be written
            log.warning("job_database_away", cause=first_line(error))

    def _leave(self, job_id: str, run: JobRun, end: End) -> None:
        with self._changed:
            if self._runs.get(job_id) is run:  # and not a successor with the same request id
                del self._runs[job_id]
            self._metrics.jobs.labels("running").dec()
            if end.short:
                self._shortages[job_id] = run.shortages + 1
            elif end.state != "withdrawn" or run.context.cancelled:
                self._shortages.pop(job_id, None)
            if end.state != "withdrawn" and not run.context.cancelled:
                self._pause = FIRST_PAUSE_SECONDS
                self._metrics.jobs.labels(end.state).inc()
            self._changed.notify_all()

    def _set_aside(self, job_id: str) -> None:
        """Queue a job again that this host failed, and keep its slot, so that others are spared."""
        try:
            self._record.requeue(job_id, self.executor_id)
        except RECORD_ERRORS as error:  # the lease queues it again later
            log.warning("job_database_away", cause=first_line(error))
        with self._changed:
            pause, self._pause = self._pause, min(2 * self._pause, LONGEST_PAUSE_SECONDS)
        self.draining.wait(pause)

    def ids(self) -> set[str]:
        """Return the jobs that run here now."""
        with self._changed:
            return set(self._runs)

    def phases(self, job_id: str) -> Mapping[str, float]:
        """Return the seconds of a job so far by phase; none when it does not run here."""
        run = self._runs.get(job_id)
        return {} if run is None else run.phases()

    def progress(self, job_id: str) -> Progress | None:
        """Return how far a job has come; None when it does not run here."""
        run = self._runs.get(job_id)
        return None if run is None else run.progress

    def withdraw(self, job_ids: Collection[str]) -> None:
        """End runs at their next chunk, without a mark in the record."""
        with self._changed:
            for job_id in self._runs.keys() & set(job_ids):
                self._runs[job_id].context.cancel()

    def stop(self) -> None:
        """Withdraw every run and wait until they have left; no further job starts."""
        self.draining.set()
        self.withdraw(self.ids())
        with self._changed:
            self._changed.wait_for(lambda: not self._runs, LEAVE_SECONDS)

    def release(self) -> None:
        """Let the threads go that hold the queue's slots."""
        self._closed.set()
