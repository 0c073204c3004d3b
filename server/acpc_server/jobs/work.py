"""The durable run of a job: what its steps leave in the record.

A step that has finished is never run again: after a crash the workflow replays the recorded
results and goes on with the first step that has none. Steps record plain JSON. A step that is
refused records the refusal, so that a replay ends the same way. A step that is withdrawn, because
the job was cancelled or taken over, the server stops or the database is away, records nothing.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import structlog
from dbos import DBOS, PortableWorkflowError
from dbos import error as dbos_error
from pydantic import BaseModel
from sqlalchemy.exc import SQLAlchemyError

from acpc_server.errors import AcpcError, Cancelled, Unavailable
from acpc_server.jobs.database import first_line
from acpc_server.jobs.kind import JobKind, Json
from acpc_server.jobs.record import JobFailure, Progress
from acpc_server.scheduling import Priority, RequestContext

log = structlog.get_logger("acpc.jobs")


class Refused(BaseException):
    """A step ended in a refusal.

    Not an Exception: it passes through the kind's code to the end of the run.
    """

    def __init__(self, failure: Json) -> None:
        super().__init__(failure["message"])
        self.failure = failure


class Withdrawn(BaseException):
    """The run stops here and leaves no mark in the record.

    Not an Exception: DBOS records those as the outcome of the step and of the job.
    """


class JobRun:
    """One run of one job in this process.

    Attributes:
        context: The job's priority and times; cancelling it withdraws the run at its next chunk.
        progress: How far the run has come.
    """

    def __init__(self, kind: JobKind[Any], plan: BaseModel, stamp: str) -> None:
        self.context = RequestContext(Priority.JOB)
        self._kind = kind
        self._plan = plan
        self._stamp = stamp
        self._total = kind.count_steps(plan)
        self.progress = Progress("waiting", 0, self._total)
        self._fresh_seconds = 0.0
        self._fresh_steps = 0

    def run(self) -> Json:
        """Every step in order; returns the result.

        Raises:
            PortableWorkflowError: The job failed; DBOS records it as the job's outcome.
            Withdrawn: The context was cancelled, or the job is no longer this run's; what was
                measured so far is on record.
        """
        try:
            return _value(_outcome(self._follow))
        except Refused as refused:
            failure = refused.failure
            raise PortableWorkflowError(
                failure["message"], "JobFailed", failure["code"], failure
            ) from None

    def _follow(self) -> Json:
        return self._kind.run(self._plan, self._stamp, self._step, self.context)

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

        try:
            value = _value(DBOS.run_step({"name": phase}, measured))
        except (dbos_error.DBOSWorkflowCancelledError, dbos_error.DBOSWorkflowConflictIDError):
            raise Withdrawn from None  # cancelled, or taken over, by another host
        except SQLAlchemyError as error:
            # What DBOS does not wait for, such as a standby that takes no writes. The lease sees
            # that nobody runs the job, and queues it again.
            log.warning("job_database_away", cause=first_line(error))
            raise Withdrawn from None
        self._advance(phase, 1)
        return value

    def _advance(self, phase: str, steps: int) -> None:
        done = self.progress.completed + steps
        rate = None
        if self._fresh_steps:
            rate = self._fresh_steps / max(self._fresh_seconds, 1e-9)
        self.progress = Progress(phase, done, self._total, rate)


def _outcome(work: Callable[[], Json]) -> Json:
    try:
        return {"value": work()}
    except (Cancelled, Unavailable):  # the context was cancelled, or the engine is closed
        raise Withdrawn from None
    except AcpcError as error:
        return {"failure": JobFailure.of(error).to_json()}
    except Exception:
        log.exception("job_step_failed")
        bug = JobFailure("INTERNAL", "BUG", "a step of the job failed; the server's log says why")
        return {"failure": bug.to_json()}


def _value(outcome: Json) -> Json:
    if "failure" in outcome:
        raise Refused(outcome["failure"])
    value: Json = outcome["value"]
    return value
