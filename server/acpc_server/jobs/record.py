"""A job as the rest of the server sees it."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel

from acpc_server.errors import AcpcError


class JobState(enum.StrEnum):
    """Where a job is in its life."""

    QUEUED = "queued"
    RUNNING = "running"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    CANCELLED = "cancelled"

    @property
    def done(self) -> bool:
        """Whether the state is final."""
        return self not in (JobState.QUEUED, JobState.RUNNING)


@dataclass(frozen=True)
class Progress:
    """How far a job has come; ``seconds_left`` is None until there is a rate."""

    phase: str
    completed: int
    total: int
    seconds_left: float | None = None


@dataclass(frozen=True)
class JobFailure:
    """The status a failed job ends with."""

    code: str
    reason: str
    message: str

    @classmethod
    def of(cls, error: AcpcError) -> JobFailure:
        """The status of an error raised on purpose."""
        return cls(error.code, error.reason, error.message)

    def to_json(self) -> dict[str, str]:
        """Form in the job record."""
        return {"code": self.code, "reason": self.reason, "message": self.message}


@dataclass(frozen=True)
class Job:
    """One job of any kind. Times are seconds since the epoch."""

    job_id: str
    kind: str
    plan: BaseModel
    state: JobState
    created: float
    started: float | None
    ended: float | None
    attempts: int
    progress: Progress
    result: Mapping[str, Any] | None
    failure: JobFailure | None
