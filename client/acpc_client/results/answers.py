"""Answers that the client makes of messages: operations, studies, streams."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from datetime import datetime
from typing import Any, TypeVar

from acpc import contract
from acpc.contract import ArgumentError, Array, JobState, Receipt, Record, Score, Tabular, Wire
from acpc.v1 import diagnostic_service_pb2, scoring_service_pb2, study_service_pb2
from google.longrunning import operations_pb2

from acpc_client.errors import (
    AcpcError,
    Cancelled,
    FailedPrecondition,
    MalformedAnswer,
    from_status,
)

T = TypeVar("T")
Answer = TypeVar("Answer", bound=Wire[Any])


def read_answer(answer: type[Answer], message: object) -> Answer:
    """The answer that a message stands for.

    Raises MalformedAnswer: The message breaks the contract.
    """
    try:
        return answer.from_message(message)
    except ArgumentError as error:
        raise MalformedAnswer(str(error)) from error


class PairOutcome(Record):
    """Answer to one pair of ``compare_pairs``: a comparison or an error, never both."""

    pair_id: str
    comparison: contract.PairComparison | None
    error: AcpcError | None

    @classmethod
    def from_message(cls, message: diagnostic_service_pb2.ComparePairsResponse) -> PairOutcome:
        """Reads the wire form."""
        match message.WhichOneof("outcome"):
            case "response":
                comparison = read_answer(contract.PairComparison, message.response)
                return cls(message.pair_id, comparison, None)
            case "error":
                return cls(message.pair_id, None, from_status(message.error))
            case _:
                raise MalformedAnswer(f"pair {message.pair_id!r}: neither a response nor an error")

    def unwrap(self) -> contract.PairComparison:
        """The comparison.

        Raises AcpcError: The pair failed.
        """
        if self.error is not None:
            raise self.error
        if self.comparison is None:
            raise MalformedAnswer(f"pair {self.pair_id!r}: neither a response nor an error")
        return self.comparison


class UploadProgress(Record):
    """Progress of an upload.

    Attributes:
        stored: Anchors that are at the server for good.
        total: Anchors of the set.
        sent_bytes: Bytes of shards sent by this call, repetitions included.
        request_id: With it, another call goes on with the upload.
    """

    stored: int
    total: int
    sent_bytes: int
    request_id: str


Arrays = Mapping[str, Array]


class StudyResult(Tabular, Record):
    """The rows of one study of one checkpoint; study_service.proto names the columns.

    Attributes:
        checkpoint: What was measured.
        kind: ``"drift"``, ``"planner"``, ``"geometry"`` or ``"sensitivity"``.
        request: The request as the server took it, defaults filled in and digests pinned, as plain
            values under the names of the contract.
        columns: One-dimensional arrays of one length, in the contract's order.
        arrays: What does not fit a table.
        receipt: What the rows were computed from.
    """

    checkpoint: contract.CheckpointRef
    kind: str
    request: Mapping[str, Any]
    columns: Arrays
    arrays: Arrays
    receipt: Receipt

    @property
    def rows(self) -> int:
        """Rows of the table."""
        return len(next(iter(self.columns.values()), ()))

    @property
    def parameters(self) -> Mapping[str, Any]:
        """The study's own part of the request."""
        parameters: Mapping[str, Any] = self.request.get("study", {})
        return parameters

    def table(self) -> contract.Columns:
        """Returns the rows, as lists by column."""
        return {name: values.tolist() for name, values in self.columns.items()}

    def headline(self) -> str:
        """Kind, checkpoint and number of rows."""
        return f"{self.kind} study of {self.checkpoint.name}: {self.rows} rows"

    @classmethod
    def from_message(cls, message: study_service_pb2.RunStudyResponse) -> StudyResult:
        """Reads the wire form.

        Raises MalformedAnswer: Columns of unequal length, or a tensor that breaks the contract.
        """
        rows = read_answer(contract.StudyRows, message)
        shapes = {name: values.shape for name, values in rows.columns.items()}
        if any(len(shape) != 1 for shape in shapes.values()) or len(set(shapes.values())) > 1:
            raise MalformedAnswer(f"columns: found shapes {shapes}, wanted one length")
        return cls(
            checkpoint=rows.checkpoint,
            kind=message.request.WhichOneof("study") or "",
            request=contract.to_plain(rows.request),
            columns=rows.columns,
            arrays=rows.arrays,
            receipt=rows.receipt,
        )


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
        request: What a scoring job was asked; None for other jobs, and when a newer server allows
            what this client does not know.
        caller: Who asked for it; empty on a server without authentication, or an older one.
        phase_seconds: Seconds of its last run by what it did, such as read, draw, encode and
            rollout; what overlaps counts in each. Empty where the host that runs it is not asked.
    """

    name: str
    done: bool
    state: JobState
    checkpoint: contract.CheckpointRef
    create_time: datetime | None
    start_time: datetime | None
    end_time: datetime | None
    progress: contract.Progress
    attempts: int
    timing: contract.Timing
    error: AcpcError | None
    score: Score | None
    study: StudyResult | None = None
    request: contract.ScoreRequest | None = None
    caller: str = ""
    phase_seconds: Mapping[str, float] = field(default_factory=dict)

    @classmethod
    def from_message(cls, message: operations_pb2.Operation) -> Operation:
        """Reads a ``google.longrunning.Operation``.

        Raises MalformedAnswer: Its metadata or its answer breaks the contract.
        """
        metadata, checkpoint = _metadata(message)
        error = from_status(message.error) if message.HasField("error") else None
        if error is not None:
            error.job = message.name
        ended = JobState.SUCCEEDED if error is None else JobState.FAILED
        ended = JobState.CANCELLED if isinstance(error, Cancelled) else ended
        known = {
            **vars(metadata),
            "checkpoint": checkpoint,
            "state": metadata.state or (ended if message.done else JobState.UNSPECIFIED),
            "timing": metadata.timing or contract.Timing(),
            "request": metadata.request if isinstance(metadata, contract.ScoreMetadata) else None,
        }
        return cls(name=message.name, done=message.done, error=error, **known, **_answer(message))

    def result(self) -> Score:
        """The score of a scoring job.

        Raises:
            AcpcError: Why the job ended without one; ``Cancelled`` when it was cancelled.
            FailedPrecondition: The job has not ended, or is a study.
        """
        return self._only(self.score, "score", "study_result")

    def study_result(self) -> StudyResult:
        """Returns the rows of a study.

        Raises:
            AcpcError: Why the job ended without them; ``Cancelled`` when it was cancelled.
            FailedPrecondition: The job has not ended, or is a scoring job.
        """
        return self._only(self.study, "study", "result")

    def _only(self, answer: T | None, wanted: str, other: str) -> T:
        if self.error is not None:
            raise self.error
        if answer is not None:
            return answer
        if not self.done:
            why = f"has not ended; it is {self.state.name.lower()}"
        elif self.score is not None or self.study is not None:
            why = f"is no {wanted}; its answer is {other}()"
        elif self.state is JobState.SUCCEEDED:
            why = "was listed without its answer; get it by name"
        else:
            raise MalformedAnswer(f"{self.name} has ended with neither a {wanted} nor an error")
        raise FailedPrecondition(f"{self.name} {why}", reason="")


def _metadata(
    message: operations_pb2.Operation,
) -> tuple[contract.ScoreMetadata | contract.StudyMetadata, contract.CheckpointRef]:
    """The metadata of either kind of job, and the checkpoint it names; empty when neither.

    A newer server's request may be out of the ranges known here: it is left out, and the operation
    can still be watched and listed. The request of a study is not part of an ``Operation``.
    """
    held = study_service_pb2.RunStudyMetadata()
    if message.metadata.Unpack(held):
        checkpoint = read_answer(contract.CheckpointRef, held.request.checkpoint)
        held.ClearField("request")
        return read_answer(contract.StudyMetadata, held), checkpoint
    other = scoring_service_pb2.ScoreCheckpointMetadata()
    message.metadata.Unpack(other)
    try:
        contract.ScoreRequest.from_message(other.request)
    except ArgumentError:
        other.ClearField("request")
    score = read_answer(contract.ScoreMetadata, other)
    return score, score.checkpoint


def _answer(message: operations_pb2.Operation) -> dict[str, Any]:
    """The field of the answer, by what the answer is."""
    if not message.HasField("response"):
        return {"score": None}
    score = scoring_service_pb2.ScoreCheckpointResponse()
    study = study_service_pb2.RunStudyResponse()
    if message.response.Unpack(score):
        return {"score": read_answer(Score, score)}
    if message.response.Unpack(study):
        return {"score": None, "study": StudyResult.from_message(study)}
    found = message.response.type_url
    raise MalformedAnswer(
        f"{message.name}: found an answer of type {found}, wanted a score or a study"
    )
