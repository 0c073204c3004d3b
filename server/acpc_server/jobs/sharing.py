"""Offers parts of a running job to the other hosts of its record.

The host that runs a job measures its parts from the first on, and offers others from the last
down: a few tasks of consecutive parts wait in the queue at a time, behind every job of their
tenant, so that a host takes one only when it has a place for a job and no job to run. What a task
has measured are its steps on record; once it has ended the job's host has the record make them
steps of the job, which are replayed when it gets there, and a task that nobody has begun by then it
takes back. So the record of a job is the same whoever measured, and whoever takes the job or one of
its tasks over goes on with the first part that has no answer.

A part that fails elsewhere is measured again by the job's host, whose answer counts: a host that
lacks a file costs time and no job. A host whose arithmetic is another ends its task at once. After
either, the job's host offers nothing more of the phase.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace

import structlog

from acpc_server.jobs import durable, tables
from acpc_server.jobs.kind import JobState, Json, Owner
from acpc_server.scheduling import RequestContext

log = structlog.get_logger("acpc.jobs")
# A phase of fewer parts stays in one piece: what another host would save is less than a takeover.
SHARED_PARTS = 20
# Tasks that wait for every other host: one to take at once, and one more until the next look.
WAITING_TASKS = 2
# Tasks to which the parts that are left would come for every host, so that all end together.
TASKS_PER_HOST = 4
# Pause between two looks at the tasks, at least; and while a part is waited for.
LOOK_SECONDS = 0.25
WAIT_SECONDS = 0.1


@dataclass(frozen=True)
class Task:
    """Consecutive parts of a job, as they wait in the queue.

    Attributes:
        job: Id of the job.
        kind: Name of its kind.
        spec: Its spec, as recorded.
        arithmetic: What rounds the numbers of the job's host, see :class:`JobKind`.
        phase: What is being done, for display.
        given: Number of the job's step that answered what the parts are given.
        first: Number of the job's step for the first of them.
        parts: Descriptions for :meth:`JobKind.part`.
    """

    job: str
    kind: str
    spec: Json
    arithmetic: str
    phase: str
    given: int
    first: int
    parts: Sequence[Json]


@dataclass
class _Open:
    """A task on record: parts [start, stop) of a phase."""

    task_id: str
    start: int
    stop: int
    state: JobState = JobState.QUEUED


@dataclass(frozen=True)
class Offers:
    """What the tasks of one job have in common.

    Attributes:
        others: How many other hosts the record has now.
    """

    job: str
    kind: str
    spec: Json
    arithmetic: str
    stamp: str
    owner: Owner
    others: Callable[[], int]

    def of(self, phase: str, given: int, first: int, parts: Sequence[Json]) -> SharedParts | None:
        """The parts of one phase; None when they are too few to be shared."""
        if len(parts) < SHARED_PARTS:
            return None
        alike = self.job, self.kind, self.spec, self.arithmetic
        return SharedParts(self, Task(*alike, phase, given, first, parts))


class SharedParts:
    """The parts of one phase, and the tasks that some of them are offered in.

    Attributes:
        elsewhere: Parts that other hosts have measured since this run began.
    """

    def __init__(self, offers: Offers, whole: Task) -> None:
        self.elsewhere = 0
        self._offers = offers
        self._whole = whole
        self._tasks: list[_Open] = []
        self._known: set[int] | None = None  # parts on record as steps of the job; not read yet
        self._end = len(whole.parts)  # parts from here on are known or in tasks
        self._trusted = True
        self._looked = 0.0

    def ahead(self, done: int) -> int:
        """Parts on record beyond the first ``done``."""
        return sum(index >= done for index in self._known or ())

    def ready(self, index: int, context: RequestContext) -> None:
        """Returns once a part is on record, or is to be measured here as no other host is at it.

        Raises:
            Withdrawn: The job's run ends.
        """
        known = self._begun()
        while index not in known:
            self._look(index, known)
            task = self._task_of(index)
            if task is None:
                return
            if task.state is JobState.QUEUED:  # nobody has begun it: it is ours again
                self._forget(task)
                self._end = task.stop
            elif index not in known:
                time.sleep(WAIT_SECONDS)
            if context.cancelled:
                raise durable.Withdrawn

    def close(self) -> None:
        """Remove the tasks that are left."""
        for task in [*self._tasks]:
            self._forget(task)

    def _begun(self) -> set[int]:
        """The parts on record; at first, with the tasks that an earlier run has left."""
        if self._known is None:
            steps = tables.steps(self._offers.job)
            known = self._known = {step - self._whole.first for step in steps}
            self._tasks = self._adopted()
            here = next(index for index in range(self._end + 1) if index not in known)
            taken = [task.start for task in self._tasks]
            self._end = min([self._end, *taken, *(index for index in known if index > here)])
        return self._known

    def _look(self, index: int, known: set[int]) -> None:
        """See how far the tasks are, and offer further ones while few wait."""
        now, at = time.monotonic(), self._task_of(index)
        if now - self._looked < LOOK_SECONDS and at is None:
            return
        self._looked = now
        states = tables.states([task.task_id for task in self._tasks]) if self._tasks else {}
        for task in [*self._tasks]:
            task.state = states.get(task.task_id, JobState.CANCELLED)
            if not (task.state.done or task is at):
                continue
            taken = tables.adopt(self._offers.job, task.task_id, self._whole.first + task.start)
            known.update(step - self._whole.first for step in taken)
            self.elsewhere += len(taken)
            if task.state.done:
                self._trusted &= known.issuperset(range(task.start, task.stop))
                self._forget(task)
        self._offer(index)

    def _offer(self, index: int) -> None:
        others = self._offers.others()
        room = WAITING_TASKS * others - sum(t.state is JobState.QUEUED for t in self._tasks)
        while self._trusted and room > 0 and self._end - index > 1:
            size = max(1, (self._end - index) // (TASKS_PER_HOST * (others + 1)))
            start, stop = self._end - size, self._end
            last_first = len(self._whole.parts) - start
            task, offers = self._task(start, stop), self._offers
            durable.offer(self._task_id(start), last_first, task, offers.stamp, offers.owner)
            log.debug("job_parts_offered", first=self._whole.first + start, parts=size)
            self._tasks.append(_Open(self._task_id(start), start, stop))
            self._end, room = start, room - 1

    def _adopted(self) -> list[_Open]:
        """Tasks that an earlier run of the job has offered."""
        index_of = {self._task_id(index): index for index in range(len(self._whole.parts))}
        found = durable.offered([*index_of])
        kept: list[_Open] = []
        for task_id, known in found.items():
            start = index_of[task_id]
            stop = start + len(known["task"]["parts"])
            if known == {"task": self._task(start, stop), "stamp": self._offers.stamp}:
                kept.append(_Open(task_id, start, stop))
        if strange := found.keys() - {task.task_id for task in kept}:
            durable.withdraw(strange)  # of an earlier job with the same request id
        return kept

    def _task_id(self, start: int) -> str:
        return _task_id(self._offers.job, self._whole.first + start)

    def _task(self, start: int, stop: int) -> Json:
        """A task as it is on record."""
        first, parts = self._whole.first + start, self._whole.parts[start:stop]
        task: Json = json.loads(json.dumps(asdict(replace(self._whole, first=first, parts=parts))))
        return task

    def _task_of(self, index: int) -> _Open | None:
        return next((t for t in self._tasks if t.start <= index < t.stop), None)

    def _forget(self, task: _Open) -> None:
        durable.withdraw([task.task_id])
        self._tasks.remove(task)


def task_ids(job_id: str, steps: int) -> list[str]:
    """The ids of all tasks that a job of so many steps may have offered."""
    return (
        [_task_id(job_id, first) for first in range(1, steps + 1)] if steps > SHARED_PARTS else []
    )


def _task_id(job_id: str, first: int) -> str:
    return f"{job_id}:{first}"
