"""The durable run of a job: what its steps leave in the record.

A step that has finished is never run again: after a crash the workflow replays the recorded
results and goes on with the first step that has none. Steps record plain JSON. A step that is
refused records the refusal, so that a replay ends the same way. A step that is withdrawn, because
the job was cancelled or the server stops, records nothing.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import structlog
from dbos import DBOS
from pydantic import BaseModel

from acpc_server.diagnostics import JobKind, Json
from acpc_server.engine import Priority, Ticket
from acpc_server.errors import AcpcError, Cancelled, Unavailable
from acpc_server.jobs.record import JobFailure, Progress

log = structlog.get_logger("acpc.jobs")


class Refused(BaseException):
    """A step ended in a refusal; carries its record.

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
        ticket: The job's claim on the device; cancelling it withdraws the run at its next chunk.
        progress: How far the run has come.
    """

    def __init__(self, kind: JobKind[Any], plan: BaseModel, stamp: str) -> None:
        self.ticket = Ticket(Priority.JOB)
        self._kind = kind
        self._plan = plan
        self._stamp = stamp
        self._total = kind.count_steps(plan)
        self.progress = Progress("waiting", 0, self._total)
        self._fresh_seconds = 0.0
        self._fresh_steps = 0

    def run(self) -> Json:
        """Every step in order; returns ``{"result": ...}`` or ``{"failure": ...}``.

        Raises:
            Withdrawn: The ticket was cancelled; what was measured so far is on record.
        """
        try:
            return {"result": _value(_outcome(self._follow))}
        except Refused as refused:
            return {"failure": refused.failure}

    def _follow(self) -> Json:
        return self._kind.run(self._plan, self._stamp, self._step, self.ticket)

    def _step(self, phase: str, work: Callable[[], Json]) -> Json:
        if self.ticket.cancelled:
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

        value = _value(DBOS.run_step({"name": phase}, measured))
        self._advance(phase, 1)
        return value

    def _advance(self, phase: str, steps: int) -> None:
        done = self.progress.completed + steps
        left = None
        if self._fresh_steps:
            left = (self._total - done) * self._fresh_seconds / self._fresh_steps
        self.progress = Progress(phase, done, self._total, left)


def _outcome(work: Callable[[], Json]) -> Json:
    try:
        return {"value": work()}
    except (Cancelled, Unavailable):  # the ticket was cancelled, or the engine is closed
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
