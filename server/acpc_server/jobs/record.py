"""Jobs as the rest of the server sees them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime

from acpc.contract import JobState, Progress

from acpc_server.jobs.kind import JobSpec, Json


@dataclass(frozen=True)
class JobFailure:
    """The status a failed job ends with."""

    code: str
    reason: str
    message: str


@dataclass(frozen=True)
class JobFilter:
    """Which jobs to list; None lets every job through.

    Attributes:
        state: Where the job is in its life.
        kind: Name of its kind.
        created_since: Earliest time of submission; knows its time zone.
        labels: Labels that its kind gave it; see :meth:`JobKind.labels`.
    """

    state: JobState | None = None
    kind: str | None = None
    created_since: datetime | None = None
    labels: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Row:
    """One job as recorded. Times are seconds since the epoch; a listed job has no result."""

    job_id: str
    kind: str
    recorded: Json
    state: JobState
    created: float
    started: float | None
    ended: float | None
    attempts: int
    result: Json | None
    failure: JobFailure | None


@dataclass(frozen=True)
class Job(Row):
    """One job of any kind, its description read, and how far it is."""

    spec: JobSpec
    progress: Progress
