"""The durable workflow of a job: which steps it has, and what each leaves in the record.

A step that has finished is never run again: after a crash the workflow replays the recorded
results and goes on with the first step that has none. Steps record plain JSON. A step that is
refused records the refusal, so that a replay ends the same way. A step that is withdrawn, because
the job was cancelled or the server stops, records nothing.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from typing import Any

import structlog
from dbos import DBOS

from acpc_server.diagnostics import CheckpointScoring, Role, ScorePlan
from acpc_server.engine import Priority, Ticket
from acpc_server.errors import AcpcError, Cancelled, Unavailable
from acpc_server.jobs.record import JobFailure, Progress

Json = dict[str, Any]
log = structlog.get_logger("acpc.jobs")


class Refused(Exception):
    """A step ended in a refusal; carries its record."""

    def __init__(self, failure: Json) -> None:
        super().__init__(failure["message"])
        self.failure = failure


class Withdrawn(BaseException):
    """The run stops here and leaves no mark in the record.

    Not an Exception: DBOS records those as the outcome of the step and of the job.
    """


def count_steps(plan: ScorePlan) -> int:
    """Steps of a job: one to open, one per shard, one summary per checkpoint."""
    return 1 + len(plan.roles()) * (len(plan.shards()) + 1)


class ScoreJob:
    """One run of one job in this process.

    Attributes:
        ticket: The job's claim on the device; cancelling it withdraws the run at its next chunk.
        progress: How far the run has come.
    """

    def __init__(self, plan: ScorePlan, stamp: str, scoring: CheckpointScoring) -> None:
        self.plan = plan
        self.ticket = Ticket(Priority.JOB)
        self._stamp = stamp
        self._scoring = scoring
        self._total = count_steps(plan)
        self.progress = Progress("waiting", 0, self._total)
        self._fresh_seconds = 0.0
        self._fresh_steps = 0

    def run(self) -> Json:
        """Every step in order; returns ``{"result": ...}`` or ``{"failure": ...}``.

        Raises:
            Withdrawn: The ticket was cancelled; what was measured so far is on record.
        """
        try:
            opened = self._step(
                "reading anchors", lambda: self._scoring.open(self.plan, self._stamp)
            )
            scores = {role: self._measure(role, opened) for role in self.plan.roles()}
            return {"result": _value(_outcome(lambda: self._conclude(opened, scores)))}
        except Refused as refused:
            return {"failure": refused.failure}

    def _measure(self, role: Role, opened: Json) -> Json:
        shards = [
            self._step(f"measuring the {role}", partial(self._shard, opened, role, start, stop))
            for start, stop in self.plan.shards()
        ]
        return self._step(
            f"separating states of the {role}",
            lambda: self._scoring.summarise(self.plan, opened, role, shards, self.ticket),
        )

    def _shard(self, opened: Json, role: Role, start: int, stop: int) -> Json:
        return self._scoring.shard(self.plan, opened, role, start, stop, self.ticket)

    def _conclude(self, opened: Json, scores: dict[Role, Json]) -> Json:
        return self._scoring.conclude(self.plan, opened, scores)

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
