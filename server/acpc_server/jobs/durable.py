"""Calls DBOS: durable workflows, their steps, their queue and their record.

DBOS keeps one row a job and one row a finished step in SQLite or PostgreSQL, and on launch resumes
what this executor left unfinished. It is a process-wide singleton, so a process runs the jobs of
one service at a time.
"""

from __future__ import annotations

import contextvars
import threading
from collections.abc import Callable, Collection, Sequence
from contextlib import nullcontext, suppress
from dataclasses import asdict, astuple
from datetime import datetime
from functools import cache
from typing import Any, NoReturn, TypeVar

import dbos
import sqlalchemy as sa
import structlog
from dbos import (
    DBOS,
    DBOSConfig,
    DBOSPortableJSONSerializer,
    PortableWorkflowError,
    SetEnqueueOptions,
    SetWorkflowAttributes,
    SetWorkflowID,
    WorkflowStatus,
)
from dbos import error as dbos_error
from dbos._context import current_owner_xid
from dbos._sys_db import db_retry
from sqlalchemy.exc import SQLAlchemyError

from acpc_server.jobs import library
from acpc_server.jobs.database import (
    POSTGRES_CONNECTION,
    QUEUE,
    STATES,
    TASK,
    TENANT_QUEUE,
    first_line,
)
from acpc_server.jobs.kind import NOBODY, JobFailure, JobState, Json, Owner, Row
from acpc_server.jobs.pacing import FREE_QUEUE_SECONDS, QUEUE_SECONDS, Pace

log = structlog.get_logger("acpc.jobs")
# Workflows of this version resume after an upgrade; raise it when the steps of a job change.
WORKFLOW_VERSION = "2"
# A job that takes its server down with it every time must not do so for ever.
MAX_STARTS = 50
# A task is given up sooner: the host that runs its job measures it then.
MAX_TASK_STARTS = 5
THREAD = "queue-worker-"  # what DBOS calls the thread of a queue, before the queue's name
ENDED = [status for status, state in STATES.items() if state.done]
RECORD_ERRORS = (SQLAlchemyError, dbos_error.DBOSException)
"""What the calls below raise when the job record cannot be reached."""

Runner = Callable[[str, str, Json, str, Owner], Json]
"""Runs a job, by its kind, id and spec, the stamp it was accepted with, and its owner."""
_runner: Runner | None = None
_pace = Pace()


class Withdrawn(BaseException):
    """The run stops here and leaves no mark in the record.

    Not an Exception: DBOS records those as the outcome of the step and of the job.
    """


@cache
def workflow(kind: str) -> Callable[..., Json]:
    """The durable body of one kind's jobs, or of tasks; registered under its name before launch."""
    most = MAX_TASK_STARTS if kind == TASK else MAX_STARTS

    @DBOS.workflow(name=kind, max_recovery_attempts=most)
    def run_job(spec: Json, stamp: str, *owner: str) -> Json:
        if _runner is None:
            raise RuntimeError("no job service is started in this process")
        try:
            return _runner(kind, DBOS.workflow_id or "", spec, stamp, Owner(*owner))
        finally:
            _pace.freed()

    return run_job


def launch(url: str, executor_id: str, concurrency: int, runner: Runner) -> None:
    """Open the record, resume what this executor left unfinished, and take jobs from the queue.

    Raises:
        SQLAlchemyError, DBOSException, ImportError: The database cannot be opened.
    """
    global _runner  # noqa: PLW0603  DBOS calls the workflow by name, in any thread
    _runner = runner
    config = DBOSConfig(
        name="acpc",
        system_database_url=url,
        application_version=WORKFLOW_VERSION,
        executor_id=executor_id,
        serializer=DBOSPortableJSONSerializer(),
        log_level="WARNING",
        # Messages between workflows, which jobs do not send: ten milliseconds would be 100 wakes.
        notification_coalesce_sec=0.5,
    )
    if url.startswith("postgresql"):
        config["db_engine_kwargs"] = {"connect_args": POSTGRES_CONNECTION}
    DBOS(config=config)
    library.log_as_server(PortableWorkflowError)
    library.retry_soon(dbos._sys_db)
    DBOS.launch()
    _set_pace()
    DBOS.register_queue(
        QUEUE,
        worker_concurrency=concurrency,
        polling_interval_sec=QUEUE_SECONDS,
        on_conflict="always_update",
    )


def _set_pace() -> None:
    """Have the threads of the queues rest as :class:`Pace` says.

    Private in DBOS 3.4, whose public interval is the same for all hosts of a record, busy or not,
    and which comes back to it only by and by.
    """
    global _pace  # noqa: PLW0603  one job service a process
    pace = _pace = Pace()
    system = dbos._dbos._dbos_global_instance._sys_db  # type: ignore[union-attr]
    active = dbos._dbos._dbos_global_instance._active_workflows_set  # type: ignore[union-attr]
    registry = dbos._dbos._dbos_global_instance._registry  # type: ignore[union-attr]
    # Nothing of ours comes by DBOS's own queue, is delayed, or is timed.
    registry.get_internal_queue()._polling_interval_sec = 60.0
    taken: Any = nullcontext(False)
    system.background_job_lock = lambda _: taken  # type: ignore[method-assign]
    read, read_all = system.get_queue, system.list_queues

    def get_queue(name: str, **given: Any) -> Any:  # noqa: ANN401
        if threading.current_thread().name == THREAD + name:  # once before each look
            if active.activeList():
                pace.busy()
            pace.rest()
        queue = read(name, **given)
        if queue is not None:
            queue._polling_interval_sec = FREE_QUEUE_SECONDS  # DBOS's own rest, after ours
        return queue

    def list_queues(**given: Any) -> Any:  # noqa: ANN401
        pace.rest()  # only the thread that starts those of new queues asks
        return read_all(**given)

    system.get_queue = get_queue  # type: ignore[method-assign]
    system.list_queues = list_queues  # type: ignore[method-assign]


def wake() -> None:
    """Something waits in the record: have the queues' threads look at once."""
    _pace.waiting()


def close() -> None:
    """Stop taking jobs and drop every connection."""
    _pace.close()
    DBOS.destroy()


def serve_tenants(concurrency: int, total: int) -> None:
    """Take jobs of tenants too: each has a queue of its own, so that none waits for another's.

    Args:
        concurrency: Jobs of one tenant that run here at a time.
        total: Jobs of all of them that run here at a time.
    """
    DBOS.register_queue(
        TENANT_QUEUE,
        worker_concurrency=max(concurrency, total),
        partition_worker_concurrency=concurrency,
        polling_interval_sec=QUEUE_SECONDS,
        on_conflict="always_update",
    )


def stopped_queues(queues: Collection[str]) -> list[str]:
    """Queues of which no job starts here any more, because DBOS's thread for them has ended."""
    alive = {thread.name for thread in threading.enumerate()}
    return [queue for queue in queues if THREAD + queue not in alive]


def tenants_known() -> bool:
    """Whether the record has had jobs of tenants."""
    return DBOS.retrieve_queue(TENANT_QUEUE) is not None


def enqueue(
    kind: str, job_id: str, spec: Json, stamp: str, labels: dict[str, str], owner: Owner
) -> None:
    """Queue a job; one that has this id already is left as it is, whatever its kind.

    One without an owner is recorded as before there were tenants.
    """
    queue, given = (TENANT_QUEUE if owner.tenant else QUEUE), ()
    if owner != NOBODY:
        given, labels = astuple(owner), {**labels, "caller": owner.caller}
    with (
        SetWorkflowID(job_id),
        SetWorkflowAttributes(labels),
        SetEnqueueOptions(queue_partition_key=owner.tenant or None),
        suppress(dbos_error.DBOSConflictingWorkflowError),
    ):
        DBOS.enqueue_workflow(queue, workflow(kind), spec, stamp, *given)
    _pace.queued()


T = TypeVar("T")


def _apart(call: Callable[[], T]) -> T:
    """What ``call`` gives, from within a step: DBOS would take its calls for steps of the job."""
    try:
        return contextvars.Context().run(call)
    except dbos_error.DBOSWorkflowConflictIDError:
        raise Withdrawn from None
    except SQLAlchemyError as error:
        log.warning("job_database_away", cause=first_line(error))
        raise Withdrawn from None


def query(ask: Callable[[Any, sa.Connection], T], job_id: str = "") -> T:
    """Within a job: what ``ask`` gives, given DBOS's tables and a connection, in one transaction.

    With a job's id Withdrawn is raised where another run has the job.
    """
    system: Any = dbos._dbos._dbos_global_instance._sys_db  # type: ignore[union-attr]
    owned, owner = dbos._sys_db.SystemDatabase._check_owner_txn, current_owner_xid(job_id)

    @db_retry(sys_db=system)
    def asked() -> T:
        with system.engine.begin() as connection:
            if job_id:
                owned(system, connection, job_id, owner or "")
            return ask(system.tables, connection)

    return _apart(asked)


def offer(task_id: str, order: int, task: Json, stamp: str, owner: Owner) -> None:
    """Within a job: queue a task behind every job of its owner, those of low ``order`` first."""

    def enqueue() -> None:
        queue = TENANT_QUEUE if owner.tenant else QUEUE
        with (
            SetWorkflowID(task_id),
            SetEnqueueOptions(priority=order, queue_partition_key=owner.tenant or None),
            suppress(dbos_error.DBOSConflictingWorkflowError),
        ):
            DBOS.enqueue_workflow(queue, workflow(TASK), task, stamp, *astuple(owner))

    _apart(enqueue)


def offered(task_ids: Sequence[str]) -> dict[str, Json]:
    """Within a job: what those tasks that are there were offered as, and their stamps."""
    found = _apart(lambda: DBOS.list_workflows(workflow_ids=[*task_ids], load_output=False))
    inputs: list[Any] = [status.input for status in found]
    arguments = [given["args"][:2] for given in inputs]
    return {
        status.workflow_id: {"task": task, "stamp": stamp}
        for status, (task, stamp) in zip(found, arguments, strict=True)
    }


def withdraw(task_ids: Collection[str]) -> None:
    """Within a job: remove tasks; a host that has one at hand stops."""
    _apart(lambda: delete(task_ids))


def step(phase: str, work: Callable[[], Json]) -> Json:
    """Within a job: the recorded answer of its next step, or that of ``work``, which is recorded.

    Raises:
        Withdrawn: Another host cancelled the job or took it over, or the record is out of reach.
    """
    try:
        return DBOS.run_step({"name": phase}, work)
    except (dbos_error.DBOSWorkflowCancelledError, dbos_error.DBOSWorkflowConflictIDError):
        raise Withdrawn from None
    except SQLAlchemyError as error:
        # What DBOS does not wait for, such as a standby that takes no writes or a full disk. The
        # lease notices that nobody runs the job, and queues it again.
        log.warning("job_database_away", cause=first_line(error))
        raise Withdrawn from None


def fail(failure: JobFailure) -> NoReturn:
    """Within a job: end it with this failure."""
    raise PortableWorkflowError(failure.message, "JobFailed", failure.code, asdict(failure))


def cancel(job_id: str) -> None:
    """Record that a job is cancelled."""
    DBOS.cancel_workflow(job_id)


def requeue(job_id: str) -> None:
    """Queue a job again, whoever holds it."""
    status = DBOS.get_workflow_status(job_id)
    if status is not None:
        DBOS.resume_workflow(job_id, queue_name=status.queue_name or QUEUE)


def release(job_id: str) -> None:
    """Queue a job again if this host holds it; the start that it had counts."""
    system = dbos._dbos._dbos_global_instance._sys_db  # type: ignore[union-attr]
    system.reenqueue_for_recovery(job_id, [DBOS.executor_id], QUEUE)


def take_over(executor_id: str) -> int:
    """Queue again the jobs that a dead host still holds; how many there were."""
    # Private in DBOS 3.4: in one statement it queues a job again only if the dead host still holds
    # it, so that hosts that notice together do not disturb each other, and counts its starts.
    return len(DBOS._recover_pending_workflows([executor_id]))


def delete(job_ids: Collection[str]) -> None:
    """Remove jobs and their steps from the record."""
    DBOS.delete_workflows(list(job_ids))


def get(job_id: str) -> Row | None:
    """A job with its result."""
    status = DBOS.get_workflow_status(job_id)
    return None if status is None else _row(status)


def rows(job_ids: Collection[str]) -> dict[str, Row]:
    """Jobs by their ids, without their results."""
    found = DBOS.list_workflows(workflow_ids=list(job_ids), load_output=False)
    failed = [status.workflow_id for status in found if status.status == "ERROR"]
    if failed:  # a failure is small, and says more than that there was one
        found += DBOS.list_workflows(workflow_ids=failed)
    return {status.workflow_id: _row(status) for status in found}


def ended_before(moment: datetime, kinds: Collection[str], limit: int) -> list[str]:
    """Ids of jobs that ended before a moment, at most ``limit``."""
    found = DBOS.list_workflows(
        status=ENDED,
        name=list(kinds),
        completed_before=moment.isoformat(),
        limit=limit,
        load_input=False,
        load_output=False,
    )
    return [status.workflow_id for status in found]


def _row(status: WorkflowStatus) -> Row:
    state = STATES[status.status]
    arguments: Any = status.input or {}
    output: Any = status.output
    recorded, _, *owner = arguments.get("args", [{}, ""])
    return Row(
        job_id=status.workflow_id,
        owner=Owner(*owner),
        kind=status.name,
        recorded=recorded,
        state=state,
        created=(status.created_at or 0) / 1000,
        started=None if status.dequeued_at is None else status.dequeued_at / 1000,
        ended=None if status.completed_at is None else status.completed_at / 1000,
        attempts=status.recovery_attempts or 0,
        result=output or None,
        failure=_failure(status) if state is JobState.FAILED else None,
    )


def _failure(status: WorkflowStatus) -> JobFailure:
    data = getattr(status.error, "data", None)
    if data is not None:
        return JobFailure(**data)
    if status.status == "MAX_RECOVERY_ATTEMPTS_EXCEEDED":
        return JobFailure(
            "ABORTED",
            "TOO_MANY_STARTS",
            f"given up after {status.recovery_attempts} starts, each of which its server did not "
            "survive or could not bring to an end",
        )
    return JobFailure("INTERNAL", "BUG", "the job failed; the server's log says why")
