"""Queries of DBOS's tables within the runs of jobs: states, and steps that change hands.

DBOS's own calls load whole rows, take many times as long, and move no steps.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from typing import Any

import sqlalchemy as sa

from acpc_server.jobs import durable
from acpc_server.jobs.database import STATES
from acpc_server.jobs.kind import JobState, Json


def states(ids: Collection[str]) -> Mapping[str, JobState]:
    """States of those jobs and tasks that are there."""

    def ask(tables: Any, connection: sa.Connection) -> Mapping[str, JobState]:  # noqa: ANN401
        runs = tables.workflow_status.c
        found = sa.select(runs.workflow_uuid, runs.status).where(runs.workflow_uuid.in_(ids))
        return {run_id: STATES[status] for run_id, status in connection.execute(found)}

    return durable.query(ask)


def steps(job_id: str) -> list[int]:
    """Numbers of a job's steps on record."""

    def ask(tables: Any, connection: sa.Connection) -> list[int]:  # noqa: ANN401
        known = tables.operation_outputs.c
        numbers = sa.select(known.function_id).where(known.workflow_uuid == job_id)
        return list(connection.execute(numbers).scalars())

    return durable.query(ask)


def outcome(job_id: str, step: int) -> Json | None:
    """What a step of a job has recorded, if it has."""

    def ask(tables: Any, connection: sa.Connection) -> Json | None:  # noqa: ANN401
        known = tables.operation_outputs.c
        of_step = sa.select(known.output).where(
            known.workflow_uuid == job_id, known.function_id == step
        )
        found = connection.execute(of_step).scalar()
        return found and json.loads(found)

    return durable.query(ask)


def adopt(job_id: str, task_id: str, first: int) -> list[int]:
    """Make answers of a task steps of the job from ``first`` on; the numbers of those that are new.

    Raises:
        Withdrawn: Another run has the job by now.
    """

    def ask(tables: Any, connection: sa.Connection) -> list[int]:  # noqa: ANN401
        table = tables.operation_outputs
        found, known = table.c, table.alias().c
        number = found.function_id + first - 1
        moved = {"workflow_uuid": sa.literal(job_id), "function_id": number}
        answers = sa.select(*(moved.get(column.name, column) for column in found)).where(
            found.workflow_uuid == task_id,
            found.output.startswith('{"value":'),  # and no failure
            ~sa.exists().where(known.workflow_uuid == job_id, known.function_id == number),
        )
        taken = sa.insert(table).from_select([*found.keys()], answers)
        return list(connection.execute(taken.returning(found.function_id)).scalars())

    return durable.query(ask, job_id)
