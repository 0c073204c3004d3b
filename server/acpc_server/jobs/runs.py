"""Runs jobs in this process: their steps, and what each leaves in the record.

A step that has finished is never run again: after a crash the workflow replays the recorded
results and continues with the first step that has none. Steps record plain JSON. A step that fails
records the failure, so that a replay ends the same way. A step that is withdrawn, because the job
was cancelled or taken over, the server stops or the record is away, records nothing. Nor does one
that fails because of this host: its device, or a want of memory, threads, files or disk.
"""

import json
import math
import threading
import time
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import asdict
from functools import partial
from typing import Any

import structlog
from acpc.contract import from_plain

from acpc_server.errors import (
    AcpcError,
    Cancelled,
    HostShortage,
    InvalidArgument,
    Unavailable,
    shortage,
)
from acpc_server.jobs import runner
from acpc_server.jobs.kind import JobFailure, JobKind, JobSpec, Json, Part, Progress
from acpc_server.jobs.record import RECORD_ERRORS, first_line
from acpc_server.jobs.runner import Withdrawn
from acpc_server.observe import Metrics
from acpc_server.scheduling import Priority, RequestContext

log = structlog.get_logger("acpc.jobs")
# How long a job may lie between the end of its run and its entry in the record.
UNRECORDED_SECONDS = 10.0
# A withdrawn job leaves at its next chunk; reading anchors takes longest.
LEAVE_SECONDS = 10.0
# A host whose jobs fail because of it takes the next one after a pause, which doubles each time.
FIRST_PAUSE_SECONDS = 1.0
LONGEST_PAUSE_SECONDS = 60.0


# How often a job may find its host short of memory: what is still short then is the job's own size.
SHORTAGES = 3


class HostFailed(Withdrawn):
    """The run stops here because of this host; another one may do better."""

    def __init__(self, why: str, *, short: bool) -> None:
        super().__init__(why)
        self.short = short


class StepFailed(BaseException):
    """A step failed; not an Exception, so that it passes through the kind's code."""

    def __init__(self, failure: Json) -> None:
        super().__init__(failure["message"])
        self.failure = JobFailure(**failure)


class JobRun:
    """One run of one job in this process."""

    def __init__(self, kind: JobKind[Any], spec: JobSpec, owner: str, metrics: Metrics) -> None:
        self.context = RequestContext(Priority.JOB, caller=owner)
        self.kind = kind
        self._spec = spec
        self._shards = metrics.job_shards.labels(kind.name)
        self._total = kind.count_steps(spec)
        self._done = 0
        self.progress = Progress.at("waiting", 0, self._total)
        self._fresh_seconds = 0.0
        self._fresh_steps = 0
        self.failure: JobFailure | None = None  # once it has failed
        self.shortages = 0  # earlier runs here that ended for want of memory

    def run(self, stamp: str) -> Json:
        """Take every step in order; return the result, or end as :func:`runner.fail` does.

        Withdrawn: the context was cancelled, or the job is no longer this run's.
        """
        try:
            return _value(
                self._judged(partial(self.kind.run, self._spec, stamp, self, self.context))
            )
        except StepFailed as failed:
            self.failure = failed.failure
            runner.fail(failed.failure)

    def __call__(self, phase: str, work: Callable[[], Json]) -> Json:
        """See :class:`~acpc_server.jobs.Step`."""
        if self.context.cancelled:
            raise Withdrawn
        self._show(phase)
        value = _value(runner.step(phase, partial(self._measured, phase, work)))
        self._done += 1
        self._show(phase)
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

    def _measured(self, phase: str, work: Callable[[], Json]) -> Json:
        step = self._done + 1
        log.info("job_step", step=step, steps=self._total, phase=phase)
        started = time.monotonic()
        outcome = self._judged(work)
        self._fresh_seconds += time.monotonic() - started
        self._fresh_steps += 1
        return outcome

    def _judged(self, work: Callable[[], Json]) -> Json:
        """Return the outcome of work; that a job is too large for its host is a failure of its own.

        Set aside for ever, it would keep the jobs behind it from running.
        """
        try:
            return _outcome(work)
        except HostFailed as failed:
            if not failed.short or self.shortages + 1 < SHORTAGES:
                raise
            why = f"the host had too little memory for this job {SHORTAGES} times"
            return {"failure": asdict(JobFailure("RESOURCE_EXHAUSTED", "JOB_TOO_LARGE", why))}

    def _show(self, phase: str) -> None:
        fresh = self._fresh_steps
        rate = fresh / max(self._fresh_seconds, 1e-9) if fresh else None
        self.progress = Progress.at(phase, self._done, self._total, rate)


def about(kind: JobKind[Any], spec: JobSpec, job_id: str, owner: str) -> dict[str, str]:
    """Return the fields that every log line of a job has."""
    named = {"checkpoint": kind.labels(spec).get("checkpoint", "")}
    return {"job": job_id, "kind": kind.name, **named, **({"principal": owner} if owner else {})}


def _outcome(work: Callable[[], Json]) -> Json:
    try:
        return {"value": work()}
    except Cancelled:
        raise Withdrawn from None
    except (Unavailable, HostShortage) as error:  # the engine was closed, or its device has failed
        short = isinstance(error, HostShortage) and error.of_memory
        raise HostFailed(error.message, short=short) from error
    except AcpcError as error:
        return {"failure": asdict(JobFailure(error.code, error.reason, error.message))}
    except Exception as error:
        if (found := shortage(error)) is not None:
            raise HostFailed(repr(error), short=found.of_memory) from error
        log.exception("job_step_failed")
        bug = JobFailure("INTERNAL", "BUG", "a step of the job failed; the server's log says why")
        return {"failure": asdict(bug)}


def _value(outcome: Json) -> Json:
    if "failure" in outcome:
        raise StepFailed(outcome["failure"])
    value: Json = outcome["value"]
    return value


class RunningJobs:
    """Runs jobs, and counts how they end.

    ``release`` queues again a job that this host holds; ``fill`` returns a spec with what is kept
    beside it.
    """

    def __init__(
        self,
        metrics: Metrics,
        release: Callable[[str], object],
        fill: Callable[[JobSpec], JobSpec] = lambda spec: spec,
    ) -> None:
        self._metrics = metrics
        self._release = release
        self._fill = fill
        self._runs: dict[str, JobRun] = {}
        self._ended: dict[str, float] = {}
        self._shortages: dict[str, int] = {}
        self._changed = threading.Condition()  # guards both, and the counts of ended jobs
        self.draining = threading.Event()
        self._closed = threading.Event()
        self._pause = FIRST_PAUSE_SECONDS

    def run(self, kind: JobKind[Any], job_id: str, spec: Json, stamp: str, owner: str) -> Json:
        """Run a job to its end, in the calling thread."""
        with structlog.contextvars.bound_contextvars(job=job_id, kind=kind.name):
            read = self._readable(kind, spec)
            run = JobRun(kind, read, owner, self._metrics)
            with structlog.contextvars.bound_contextvars(**about(kind, read, job_id, owner)):
                log.info("job_started")
                return self._hold(job_id, run, stamp)

    def _readable(self, kind: JobKind[Any], spec: Json) -> JobSpec:
        try:
            read: JobSpec = from_plain(kind.spec_type, spec)
            return self._fill(read)
        except InvalidArgument:
            # Written by a newer release; the lease queues it again for a host that can read it.
            log.warning("job_unreadable")
        except RECORD_ERRORS as error:
            log.warning("job_database_away", cause=first_line(error))
        raise Withdrawn

    def _hold(self, job_id: str, run: JobRun, stamp: str) -> Json:
        jobs, kind = self._metrics.jobs, run.kind.name
        with self._changed:
            self._runs[job_id] = run
            run.shortages = self._shortages.get(job_id, 0)
            jobs.labels("running").inc()
            if self.draining.is_set():
                run.context.cancel()
        end, started, host_failed = "withdrawn", time.monotonic(), False
        try:
            result = run.run(stamp)
            end = "succeeded"
            return result
        except HostFailed as failed:
            host_failed = True
            if failed.short:
                self._shortages[job_id] = run.shortages + 1
            log.warning("job_set_aside", cause=str(failed))
            raise
        except Exception:
            end = "failed"
            code = run.failure.code if run.failure else "INTERNAL"
            self._metrics.job_failures.labels(kind, code).inc()
            raise
        finally:
            self._metrics.job_seconds.labels(kind, end).observe(time.monotonic() - started)
            self._leave(job_id, run, end)
            log.info("job_ended", end=end)
            if host_failed:
                self._set_aside(job_id)
            if end == "withdrawn" and self.draining.is_set():
                self._closed.wait()  # keeps the queue's slot, so that no further job starts

    def _set_aside(self, job_id: str) -> None:
        """Queue a job again that this host failed, and keep its slot, so that others are spared."""
        try:
            self._release(job_id)
        except RECORD_ERRORS as error:  # the lease queues it again later
            log.warning("job_database_away", cause=first_line(error))
        with self._changed:
            pause, self._pause = self._pause, min(2 * self._pause, LONGEST_PAUSE_SECONDS)
        self.draining.wait(pause)

    def _leave(self, job_id: str, run: JobRun, end: str) -> None:
        with self._changed:
            if self._runs.get(job_id) is run:  # and not a successor with the same request id
                del self._runs[job_id]
            self._metrics.jobs.labels("running").dec()
            if end != "withdrawn" or run.context.cancelled:
                self._shortages.pop(job_id, None)
            if end != "withdrawn" and not run.context.cancelled:
                now = time.monotonic()
                lately = {i: t for i, t in self._ended.items() if now - t < UNRECORDED_SECONDS}
                self._ended = {**lately, job_id: now}
                self._pause = FIRST_PAUSE_SECONDS
                self._metrics.jobs.labels(end).inc()
            self._changed.notify_all()

    def ids(self) -> set[str]:
        """Return the jobs that run here now."""
        with self._changed:
            return set(self._runs)

    def progress(self, job_id: str) -> Progress | None:
        """Return how far a job has come; None when it does not run here."""
        run = self._runs.get(job_id)
        return None if run is None else run.progress

    def report(self) -> str:
        """Return the progress of every job that runs here, as JSON."""
        with self._changed:
            report = {job_id: run.progress.to_dict() for job_id, run in self._runs.items()}
        for progress in report.values():
            del progress["seconds_left"]  # who reads it counts again
        return json.dumps(report, sort_keys=True)

    def withdraw(self, job_ids: Collection[str]) -> None:
        """End runs at their next chunk, without a mark in the record."""
        with self._changed:
            for job_id in self._runs.keys() & set(job_ids):
                self._runs[job_id].context.cancel()

    def cancel(self, job_id: str, done: Callable[[], bool], cancel: Callable[[], None]) -> bool:
        """Cancel a job, wherever it is; False when it has ended."""
        with self._changed:
            ended = self._ended.get(job_id, -math.inf)
            if done() or time.monotonic() - ended < UNRECORDED_SECONDS:
                return False
            # The context first: the run is to end at its next chunk, not at its next step.
            if job_id in self._runs:
                self._runs[job_id].context.cancel()
            cancel()
            self._metrics.jobs.labels("cancelled").inc()
            return True

    def forget(self, job_id: str) -> None:
        """Allow the id of an ended job to be used again."""
        with self._changed:
            self._ended.pop(job_id, None)

    def stop(self) -> None:
        """Withdraw every run and wait until they have left; no further job starts."""
        self.draining.set()
        with self._changed:
            for run in self._runs.values():
                run.context.cancel()
            self._changed.wait_for(lambda: not self._runs, LEAVE_SECONDS)

    def close(self) -> None:
        """Release the threads that hold the queue's slots."""
        self._closed.set()
