"""DBOS in this process: there is one, and it runs the jobs of the one service that is started."""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import cache

from dbos import DBOS, DBOSConfig, DBOSPortableJSONSerializer, PortableWorkflowError

from acpc_server.jobs.database import POSTGRES_CONNECTION
from acpc_server.jobs.kind import Json

QUEUE = "acpc-score"
QUEUE_SECONDS = 0.2
# Workflows of this version resume after an upgrade; raise it when the steps of a job change.
WORKFLOW_VERSION = "2"
# A job that takes its server down with it every time must not do so for ever.
MAX_STARTS = 50
Runner = Callable[[str, str, Json, str], Json]
_runner: Runner | None = None


@cache
def workflow(kind: str) -> Callable[[Json, str], Json]:
    """The durable body of the jobs of one kind; DBOS knows it by the kind's name."""

    @DBOS.workflow(name=kind, max_recovery_attempts=MAX_STARTS)
    def run_job(plan: Json, stamp: str) -> Json:
        if _runner is None:
            raise RuntimeError("no job service is started in this process")
        return _runner(kind, DBOS.workflow_id or "", plan, stamp)

    return run_job


def launch(url: str, executor_id: str, concurrency: int, runner: Runner) -> None:
    """Open the record, resume what this executor left unfinished, and take jobs from the queue.

    Args:
        url: ``sqlite:///path`` or ``postgresql://...``.
        executor_id: This process's name.
        concurrency: Jobs at a time.
        runner: Runs a job: its kind, its id, its plan, the stamp it was accepted with.

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
    )
    if url.startswith("postgresql"):
        config["db_engine_kwargs"] = {"connect_args": POSTGRES_CONNECTION}
    DBOS(config=config)
    # DBOS prints to a handler of its own; its lines belong into the server's log.
    library = logging.getLogger("dbos")
    library.handlers.clear()
    library.propagate = True
    library.addFilter(_is_fault)
    DBOS.launch()
    DBOS.register_queue(
        QUEUE,
        worker_concurrency=concurrency,
        polling_interval_sec=QUEUE_SECONDS,
        on_conflict="always_update",
    )


def _is_fault(line: logging.LogRecord) -> bool:
    """False for the outcome of a job that failed, which DBOS takes for a fault of the server."""
    return not (line.exc_info and isinstance(line.exc_info[1], PortableWorkflowError))
