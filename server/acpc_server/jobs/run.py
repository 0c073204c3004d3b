"""One run of a job: its steps, and what each leaves in the record.

A step that has finished is never run again: after a crash the workflow replays the recorded
results and continues with the first step that has none. Steps record plain JSON. A step that fails
records the failure, so that a replay ends the same way. A run that is withdrawn, because the job
was cancelled or taken over, the server stops or the record is away, records nothing more. Nor does
one that fails because of this host: its device, or a want of memory, threads, files or disk.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any, NoReturn

import structlog
from dbos import DBOS
from dbos import error as dbos_error
from sqlalchemy.exc import SQLAlchemyError

from acpc_server.errors import AcpcError, Cancelled, HostShortage, Unavailable, shortage
from acpc_server.jobs.kind import JobFailure, JobKind, JobSpec, Json, Part
from acpc_server.jobs.record import first_line
from acpc_server.observe import Metrics
from acpc_server.scheduling import Priority, RequestContext

log = structlog.get_logger("acpc.jobs")
# How often a job may find its host short of memory: what is still short then is the job's own size.
SHORTAGES = 3


@dataclass(frozen=True)
class End:
    """How a run ended; a withdrawn one leaves no mark in the record.

    It was ``set_aside`` when this host failed it, and another one may do better: for want of memory
    where it was ``short``.
    """

    state: str  # succeeded, failed or withdrawn
    result: Json | None = None
    failure: JobFailure | None = None
    set_aside: str = ""
    short: bool = False


@dataclass(eq=False)
class JobRun:
    """One run of one job in this process."""

    kind: JobKind[Any]
    spec: JobSpec
    owner: str
    recorded: int  # its steps that are on record
    metrics: Metrics
    held: Callable[[], bool]  # whether this host still holds the job
    shortages: int = 0  # earlier runs here that ended for want of memory
    phase: str = "waiting"  # what it does now, for display
    _done: int = 0
    _end: End | None = None  # found by one of its steps

    def __post_init__(self) -> None:
        self.context = RequestContext(Priority.JOB, caller=self.owner)

    def run(self, stamp: str) -> End:
        """Take every step in order."""
        try:
            return End("succeeded", self.kind.run(self.spec, stamp, self, self.context))
        except Exception as error:  # noqa: BLE001
            return self._end or self._end_of(error)

    def _leave(self, end: End) -> NoReturn:
        """End the run from within a step; the kind of job lets the error pass."""
        self._end = end
        raise Cancelled("the run has ended")

    def __call__(self, phase: str, work: Callable[[], Json]) -> Json:
        """See :class:`~acpc_server.jobs.Step`."""
        if self.context.cancelled:
            self._leave(End("withdrawn"))
        self.phase = phase
        fresh = self._done >= self.recorded
        outcome = self._measured(phase, work) if fresh else {}
        with self.context.phase("record"):
            found = _record_step(phase, outcome)
        if found is None:
            self._leave(End("withdrawn"))
        outcome, ours = found
        if fresh and not ours and not self.held():  # another host measured it meanwhile
            self._leave(End("withdrawn"))
        if "failure" in outcome:
            self._leave(End("failed", failure=JobFailure(**outcome["failure"])))
        self._done += 1
        value: Json = outcome["value"]
        return value

    def each(
        self, phase: str, measure: Callable[[Part], Json], parts: Iterable[Part]
    ) -> Iterator[Json]:
        """See :class:`~acpc_server.jobs.Step`."""

        def shard(part: Part) -> Json:
            self.metrics.job_shards.labels(self.kind.name).inc()
            return measure(part)

        for part in parts:
            yield self(phase, partial(shard, part))

    def phases(self) -> dict[str, float]:
        """Return the seconds of this run by phase, with the ``other`` ones that are no phase's."""
        spent = {**self.context.phases, "other": self.context.other_seconds}
        # A wait is measured from a moment before its phase begins.
        return {name: max(0.0, seconds) for name, seconds in spent.items()}

    def _measured(self, phase: str, work: Callable[[], Json]) -> Json:
        log.info(
            "job_step", step=self._done + 1, steps=self.kind.count_steps(self.spec), phase=phase
        )
        try:
            return {"value": work()}
        except Exception as error:  # noqa: BLE001
            end = self._end_of(error)
            if end.failure is None:
                self._leave(end)
            return {"failure": asdict(end.failure)}

    def _end_of(self, error: Exception) -> End:
        """Tell whose fault an error is: the job's, which fails, or this host's.

        Set aside for ever, a job too large for the host would keep those behind it from running.
        """
        if isinstance(error, Cancelled):
            return End("withdrawn")
        # Unavailable: the engine was closed, or its device has failed.
        host = error if isinstance(error, Unavailable | HostShortage) else shortage(error)
        if host is not None:
            short = getattr(host, "of_memory", False)
            if short and self.shortages + 1 >= SHORTAGES:
                why = f"the host had too little memory for this job {SHORTAGES} times"
                return _failed("RESOURCE_EXHAUSTED", "JOB_TOO_LARGE", why)
            return End("withdrawn", set_aside=f"{type(error).__name__}: {error}", short=short)
        if isinstance(error, AcpcError):
            return _failed(error.code, error.reason, error.message)
        log.error("job_step_failed", exc_info=error)
        why = "a step of the job failed; the server's log says why"
        return _failed("INTERNAL", "BUG", why)


def _failed(code: str, reason: str, message: str) -> End:
    return End("failed", failure=JobFailure(code, reason, message))


def _record_step(phase: str, outcome: Json) -> tuple[Json, bool] | None:
    """Return the recorded outcome of the job's next step, or record this one.

    With it whether this one was recorded. None when it cannot be: the job was cancelled or taken
    over, or the record is out of reach.
    """
    recorded = []

    def record() -> Json:
        recorded.append(True)
        return outcome

    try:
        return DBOS.run_step({"name": phase}, record), bool(recorded)
    except (dbos_error.DBOSWorkflowCancelledError, dbos_error.DBOSWorkflowConflictIDError):
        return None
    except SQLAlchemyError as error:
        # What DBOS does not wait for, such as a standby that takes no writes or a full disk. The
        # lease notices that nobody runs the job, and queues it again.
        log.warning("job_database_away", cause=first_line(error))
        return None
