"""The durable workflow of a job: which steps it has, and what each leaves in the record.

A step that has finished is never run again: after a crash the workflow replays the recorded
results and goes on with the first step that has none. Steps record plain JSON. A step that is
refused records the refusal, so that a replay ends the same way.
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
from acpc_server.errors import AcpcError
from acpc_server.jobs.record import JobFailure, Progress

Json = dict[str, Any]
log = structlog.get_logger("acpc.jobs")


class Refused(Exception):
    """A step ended in a refusal; carries its record."""

    def __init__(self, failure: Json) -> None:
        super().__init__(failure["message"])
        self.failure = failure


class ScoreJob:
    """One run of one job in this process.

    Attributes:
        ticket: The job's claim on the device; cancelling it stops the job at the next chunk.
        progress: How far the run has come.
    """

    def __init__(self, plan: ScorePlan, scoring: CheckpointScoring) -> None:
        self.plan = plan
        self.ticket = Ticket(Priority.JOB)
        self._scoring = scoring
        # One step to open, one per shard, one summary per checkpoint.
        self._total = 1 + len(plan.roles()) * (len(plan.shards()) + 1)
        self.progress = Progress("waiting", 0, self._total)
        self._fresh_seconds = 0.0
        self._fresh_steps = 0

    def run(self) -> Json:
        """Every step in order; returns ``{"result": ...}`` or ``{"failure": ...}``."""
        try:
            opened = self._step("reading anchors", lambda: self._scoring.open(self.plan))
            scores = {role: self._measure(role, opened) for role in self.plan.roles()}
            return {"result": self._scoring.conclude(self.plan, opened, scores)}
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

    def _step(self, phase: str, work: Callable[[], Json]) -> Json:
        self._advance(phase, 0)
        ran = False

        def recorded() -> Json:
            nonlocal ran
            ran = True
            return _outcome(work)

        started = time.monotonic()
        outcome: Json = DBOS.run_step({"name": phase}, recorded)
        if ran:
            self._fresh_seconds += time.monotonic() - started
            self._fresh_steps += 1
        if "failure" in outcome:
            raise Refused(outcome["failure"])
        self._advance(phase, 1)
        value: Json = outcome["value"]
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
    except AcpcError as error:  # a cancelled job is already closed in the record
        return {"failure": JobFailure.of(error).to_json()}
    except Exception:
        log.exception("job_step_failed")
        bug = JobFailure("INTERNAL", "BUG", "a step of the job failed; the server's log says why")
        return {"failure": bug.to_json()}
