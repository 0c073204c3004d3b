"""Has DBOS run jobs: it keeps their steps, takes them from the queue and resumes them at launch.

DBOS is a process-wide singleton, so a process runs the jobs of one service at a time.
"""

import logging
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import asdict
from functools import cache
from typing import TypeAlias

import structlog
from dbos import DBOS, DBOSConfig, DBOSPortableJSONSerializer, PortableWorkflowError
from dbos import error as dbos_error
from sqlalchemy.exc import SQLAlchemyError

from acpc_server.jobs.kind import JobFailure, Json
from acpc_server.jobs.record import APPLICATION, QUEUE, WORKFLOW_VERSION, Record, first_line

log = structlog.get_logger("acpc.jobs")
# A job that takes its server down with it every time must not do so for ever.
MAX_STARTS = 50
# Pause between two looks at the queue: each costs 4 ms of processor time on an idle server too, and
# more in PostgreSQL, which several hosts ask.
QUEUE_SECONDS = 0.5
POSTGRES_QUEUE_SECONDS = 1.5
Runner: TypeAlias = Callable[[str, str, Json, str, str], "Json | JobFailure | None"]
"""Runs a job, by its kind, id and spec, the stamp it was accepted with, and its owner.

None: it was withdrawn, and leaves no mark in the record.
"""
_runner: Runner | None = None
_launched = ExitStack()


class _Unrecorded(BaseException):
    """Leaves a job without an outcome: DBOS records what a job returns, and every Exception."""


@cache
def register(kind: str) -> Callable[..., Json]:
    """Register the durable body of one kind's jobs under its name, before launch."""

    @DBOS.workflow(name=kind, max_recovery_attempts=MAX_STARTS)
    def run_job(spec: Json, stamp: str, *owner: str) -> Json:
        if _runner is None:
            raise RuntimeError("no job service is started in this process")
        found = _runner(kind, DBOS.workflow_id or "", spec, stamp, owner[-1] if owner else "")
        if isinstance(found, JobFailure):
            raise PortableWorkflowError(found.message, "JobFailed", found.code, asdict(found))
        if found is None:
            raise _Unrecorded
        return found

    return run_job


def record_step(phase: str, outcome: Json) -> tuple[Json, bool] | None:
    """Within a job: return the recorded outcome of its next step, or record this one.

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


def launch(record: Record, executor_id: str, concurrency: int, runner: Runner) -> None:
    """Resume what this executor left unfinished, and take jobs from the queue.

    Raises one of ``RECORD_ERRORS``, or ImportError, when the record cannot be opened.
    """
    global _runner  # noqa: PLW0603  DBOS calls the workflow by name, in any thread
    _runner = runner
    config = DBOSConfig(
        name=APPLICATION,
        system_database_url=record.url.render_as_string(hide_password=False),
        application_version=WORKFLOW_VERSION,
        executor_id=executor_id,
        serializer=DBOSPortableJSONSerializer(),
        log_level="WARNING",
        # Messages between workflows, which jobs do not send: ten milliseconds would be 100 wakes.
        notification_coalesce_sec=0.5,
    )
    _launched.callback(DBOS.destroy)
    DBOS(config=config)
    _log_as_server()
    DBOS.launch()
    DBOS.register_queue(
        QUEUE,
        worker_concurrency=concurrency,
        polling_interval_sec=POSTGRES_QUEUE_SECONDS if record.postgres else QUEUE_SECONDS,
        on_conflict="always_update",
    )


def close() -> None:
    """Stop taking jobs and drop every connection."""
    _launched.close()


def _log_as_server() -> None:
    """Send DBOS's lines to the server's log; without those of jobs that fail."""

    def is_fault(line: logging.LogRecord) -> bool:
        return not (line.exc_info and isinstance(line.exc_info[1], PortableWorkflowError))

    library = logging.getLogger("dbos")
    library.handlers.clear()
    library.propagate = True
    library.addFilter(is_fault)
