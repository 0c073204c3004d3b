"""A long-running operation, as the server reports it."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from acpc.v1 import scoring_service_pb2 as pb
from google.longrunning import operations_pb2

from acpc_client.errors import (
    AcpcError,
    Cancelled,
    FailedPrecondition,
    MalformedAnswer,
    from_status,
)
from acpc_client.inputs import CheckpointRef, WireEnum
from acpc_client.results.base import Record, moment, optional
from acpc_client.results.provenance import Timing
from acpc_client.results.scores import Score


class JobState(WireEnum):
    """Where a job is in its life."""

    UNSPECIFIED = 0
    QUEUED = 1
    RUNNING = 2
    SUCCEEDED = 3
    FAILED = 4
    CANCELLED = 5


@dataclass(frozen=True, repr=False, eq=False)
class Progress(Record):
    """How far a job is.

    Attributes:
        phase: What the job is doing, for example ``"encoding anchors"``.
        completed: Units done in all.
        total: Units there are; zero until known.
        seconds_left: Estimate; None until there is a rate.
    """

    phase: str
    completed: int
    total: int
    seconds_left: float | None

    @classmethod
    def from_message(cls, message: pb.Progress) -> Progress:
        """Reads the wire form."""
        seconds_left = optional(message, "seconds_left")
        return cls(message.phase, message.completed, message.total, seconds_left)


@dataclass(frozen=True, repr=False, eq=False)
class Operation(Record):
    """A scoring job at one moment.

    Attributes:
        name: ``operations/<id>``.
        done: True once it has ended, well or not.
        state: Queued, running, succeeded, failed or cancelled.
        checkpoint: What is being scored.
        attempts: Times the job was started, restarts included.
        error: Why it ended without a score.
        score: The answer of a job that succeeded.
    """

    name: str
    done: bool
    state: JobState
    checkpoint: CheckpointRef
    create_time: datetime | None
    start_time: datetime | None
    end_time: datetime | None
    progress: Progress
    attempts: int
    timing: Timing
    error: AcpcError | None
    score: Score | None

    @classmethod
    def from_message(cls, message: Any) -> Operation:  # noqa: ANN401 - google.longrunning has no stubs
        """Reads a ``google.longrunning.Operation``."""
        metadata = pb.ScoreCheckpointMetadata()
        message.metadata.Unpack(metadata)
        error = from_status(message.error) if message.HasField("error") else None
        return cls(
            name=message.name,
            done=message.done,
            state=JobState(metadata.state) or _state_of(message, error),
            checkpoint=CheckpointRef.from_message(metadata.checkpoint),
            create_time=moment(metadata, "create_time"),
            start_time=moment(metadata, "start_time"),
            end_time=moment(metadata, "end_time"),
            progress=Progress.from_message(metadata.progress),
            attempts=metadata.attempts,
            timing=Timing.from_message(metadata.timing),
            error=error,
            score=_score_of(message) if message.HasField("response") else None,
        )

    def result(self) -> Score:
        """The score.

        Raises:
            AcpcError: Why the job ended without one; ``Cancelled`` when it was cancelled.
            FailedPrecondition: The job has not ended.
        """
        if self.error is not None:
            raise self.error
        if self.score is not None:
            return self.score
        if not self.done:
            raise FailedPrecondition(f"{self.name} has not ended; it is {self.state.name.lower()}")
        raise MalformedAnswer(f"{self.name} has ended with neither a score nor an error")


def _state_of(message: operations_pb2.Operation, error: AcpcError | None) -> JobState:
    """The state of an operation whose metadata does not tell."""
    if not message.done:
        return JobState.UNSPECIFIED
    if error is None:
        return JobState.SUCCEEDED
    return JobState.CANCELLED if isinstance(error, Cancelled) else JobState.FAILED


def _score_of(message: operations_pb2.Operation) -> Score:
    response = pb.ScoreCheckpointResponse()
    if not message.response.Unpack(response):
        found = message.response.type_url
        raise MalformedAnswer(f"{message.name}: found an answer of type {found}, wanted a score")
    return Score.from_message(response)
