"""Runs one job step by step, and decides what each step leaves in the record.

A step that has finished is never run again: after a crash the workflow replays the recorded
results and continues with the first step that has none. Steps record plain JSON. A step that fails
records the failure, so that a replay ends the same way. A step that is withdrawn, because the job
was cancelled or taken over, the server stops or the database is away, records nothing.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import structlog

from acpc_server.errors import AcpcError, Cancelled, Unavailable
from acpc_server.jobs import durable
from acpc_server.jobs.durable import Withdrawn
from acpc_server.jobs.kind import JobKind, JobSpec, Json
from acpc_server.jobs.record import JobFailure, Progress
from acpc_server.scheduling import Priority, RequestContext

log = structlog.get_logger("acpc.jobs")


class StepFailed(BaseException):
    """A step failed.

    Not an Exception: it passes through the kind's code to the end of the run.
    """

    def __init__(self, failure: Json) -> None:
        super().__init__(failure["message"])
        self.failure = JobFailure(**failure)


class JobRun:
    """One run of one job in this process.

    Attributes:
        context: The job's priority and times; cancelling it withdraws the run at its next chunk.
        progress: How far the run has come.
    """

    def __init__(self, kind: JobKind[Any], spec: JobSpec, stamp: str) -> None:
        self.context = RequestContext(Priority.JOB)
        self._kind = kind
        self._spec = spec
        self._stamp = stamp
        self._total = kind.count_steps(spec)
        self.progress = Progress.at("waiting", 0, self._total)
        self._fresh_seconds = 0.0
        self._fresh_steps = 0

    def run(self) -> Json:
        """Every step in order; returns the result, or ends as :func:`durable.fail` does.

        Raises:
            Withdrawn: The context was cancelled, or the job is no longer this run's; what was
                measured so far is on record.
        """
        try:
            return _value(
                _outcome(lambda: self._kind.run(self._spec, self._stamp, self._step, self.context))
            )
        except StepFailed as failed:
            durable.fail(failed.failure)

    def _step(self, phase: str, work: Callable[[], Json]) -> Json:
        if self.context.cancelled:
            raise Withdrawn
        self._advance(phase, 0)

        def measured() -> Json:
            step = self.progress.completed + 1
            log.info("job_step", step=step, steps=self._total, phase=phase)
            started = time.monotonic()
            outcome = _outcome(work)
            self._fresh_seconds += time.monotonic() - started
            self._fresh_steps += 1
            return outcome

        value = _value(durable.step(phase, measured))
        self._advance(phase, 1)
        return value

    def _advance(self, phase: str, steps: int) -> None:
        done = self.progress.completed + steps
        rate = None
        if self._fresh_steps:
            rate = self._fresh_steps / max(self._fresh_seconds, 1e-9)
        self.progress = Progress.at(phase, done, self._total, rate)


def _outcome(work: Callable[[], Json]) -> Json:
    try:
        return {"value": work()}
    except (Cancelled, Unavailable):  # the context was cancelled, or the engine was closed
        raise Withdrawn from None
    except AcpcError as error:
        return {"failure": JobFailure.of(error).to_json()}
    except Exception:
        log.exception("job_step_failed")
        bug = JobFailure("INTERNAL", "BUG", "a step of the job failed; the server's log says why")
        return {"failure": bug.to_json()}


def _value(outcome: Json) -> Json:
    if "failure" in outcome:
        raise StepFailed(outcome["failure"])
    value: Json = outcome["value"]
    return value
