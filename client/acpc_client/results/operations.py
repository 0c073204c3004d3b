"""A long-running operation, as the server reports it."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any, TypeVar

from acpc.contract import CheckpointRef, JobState, Progress, Record, Timing
from acpc.v1 import receipt_pb2, study_service_pb2
from acpc.v1 import scoring_service_pb2 as pb
from google.longrunning import operations_pb2

from acpc_client.errors import (
    AcpcError,
    Cancelled,
    FailedPrecondition,
    MalformedAnswer,
    from_status,
)
from acpc_client.results.base import moment, read_answer
from acpc_client.results.requests import ScoreRequest
from acpc_client.results.scores import Score
from acpc_client.results.studies import StudyResult

Answer = TypeVar("Answer")


@dataclass(frozen=True, repr=False, eq=False)
class Operation(Record):
    """A job at one moment.

    Attributes:
        name: ``operations/<id>``.
        done: True once it has ended, well or not.
        state: Queued, running, succeeded, failed or cancelled.
        checkpoint: What is being measured.
        attempts: Times the job was started, restarts included.
        error: Why it ended without an answer.
        score: The answer of a scoring job that succeeded; lists leave it out.
        study: The answer of a study that succeeded; lists leave it out.
        request: What a scoring job was asked; None for other jobs.
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
    study: StudyResult | None = None
    request: ScoreRequest | None = None

    @classmethod
    def from_message(cls, message: Any) -> Operation:  # noqa: ANN401 - google.longrunning has no stubs
        """Reads a ``google.longrunning.Operation``."""
        metadata, checkpoint = _metadata(message)
        error = from_status(message.error) if message.HasField("error") else None
        return cls(
            name=message.name,
            done=message.done,
            state=JobState(metadata.state) or _state_of(message, error),
            checkpoint=CheckpointRef.from_message(checkpoint),
            create_time=moment(metadata, "create_time"),
            start_time=moment(metadata, "start_time"),
            end_time=moment(metadata, "end_time"),
            progress=read_answer(Progress, metadata.progress),
            attempts=metadata.attempts,
            timing=Timing.from_message(metadata.timing),
            error=error,
            **_answer(message),
            request=_request(metadata),
        )

    def result(self) -> Score:
        """The score of a scoring job.

        Raises:
            AcpcError: Why the job ended without one; ``Cancelled`` when it was cancelled.
            FailedPrecondition: The job has not ended, or is a study.
        """
        return self._only(self.score, "score", "study_result")

    def study_result(self) -> StudyResult:
        """The rows of a study.

        Raises:
            AcpcError: Why the job ended without them; ``Cancelled`` when it was cancelled.
            FailedPrecondition: The job has not ended, or is a scoring job.
        """
        return self._only(self.study, "study", "result")

    def _only(self, answer: Answer | None, wanted: str, other: str) -> Answer:
        if self.error is not None:
            raise self.error
        if answer is not None:
            return answer
        if not self.done:
            raise FailedPrecondition(f"{self.name} has not ended; it is {self.state.name.lower()}")
        if self.score is not None or self.study is not None:
            raise FailedPrecondition(f"{self.name} is no {wanted}; its answer is {other}()")
        if self.state is JobState.SUCCEEDED:
            raise FailedPrecondition(f"{self.name} was listed without its answer; get it by name")
        raise MalformedAnswer(f"{self.name} has ended with neither a {wanted} nor an error")


def _state_of(message: operations_pb2.Operation, error: AcpcError | None) -> JobState:
    """The state of an operation whose metadata does not tell."""
    if not message.done:
        return JobState.UNSPECIFIED
    if error is None:
        return JobState.SUCCEEDED
    return JobState.CANCELLED if isinstance(error, Cancelled) else JobState.FAILED


def _metadata(message: operations_pb2.Operation) -> tuple[Any, receipt_pb2.CheckpointRef]:
    """The metadata of either kind of job, and the checkpoint it names; empty ones when neither."""
    study = study_service_pb2.RunStudyMetadata()
    if message.metadata.Unpack(study):
        return study, study.request.checkpoint
    score = pb.ScoreCheckpointMetadata()
    message.metadata.Unpack(score)
    return score, score.checkpoint


def _request(metadata: Any) -> ScoreRequest | None:  # noqa: ANN401 - of either kind
    scoring = isinstance(metadata, pb.ScoreCheckpointMetadata) and metadata.HasField("request")
    return ScoreRequest.from_message(metadata.request) if scoring else None


def _answer(message: operations_pb2.Operation) -> dict[str, Any]:
    """The field of the answer, by what the answer is."""
    if not message.HasField("response"):
        return {"score": None}
    score, study = pb.ScoreCheckpointResponse(), study_service_pb2.RunStudyResponse()
    if message.response.Unpack(score):
        return {"score": Score.from_message(score)}
    if message.response.Unpack(study):
        return {"score": None, "study": StudyResult.from_message(study)}
    found = message.response.type_url
    raise MalformedAnswer(
        f"{message.name}: found an answer of type {found}, wanted a score or a study"
    )
