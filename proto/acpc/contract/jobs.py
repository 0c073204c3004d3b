"""Jobs: where they are, what they were asked, and the rows of a study."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Annotated, Any

from acpc.contract.enums import WireEnum
from acpc.contract.messages import Codec, Wire
from acpc.contract.provenance import Receipt, Timing
from acpc.contract.record import Record
from acpc.contract.requests import CheckpointRef
from acpc.contract.studies import ScoreRequest, StudyRequest
from acpc.contract.tensor import Array, read_tensor, tensor_fields
from acpc.v1 import scoring_service_pb2 as pb
from acpc.v1 import study_service_pb2 as study_pb


class JobState(WireEnum):
    """Where a job is in its life."""

    UNSPECIFIED = 0
    QUEUED = 1
    RUNNING = 2
    SUCCEEDED = 3
    FAILED = 4
    CANCELLED = 5

    @property
    def done(self) -> bool:
        """Whether the state is final."""
        return self >= JobState.SUCCEEDED


@dataclass(frozen=True, repr=False)
class Progress(Record, Wire[pb.Progress]):
    """How far a job is.

    Attributes:
        phase: What the job is doing, for example ``"encoding anchors"``.
        completed: Units done in all.
        total: Units there are; zero until known.
        seconds_left: Estimate; None until there is a rate.
        steps_per_second: Mean since the job was last started; None before its first step.
    """

    phase: str
    completed: int
    total: int
    seconds_left: float | None
    steps_per_second: float | None = None

    @classmethod
    def at(
        cls, phase: str, completed: int, total: int, steps_per_second: float | None = None
    ) -> Progress:
        """The progress with the seconds left at that rate."""
        left = total - completed
        seconds = left / steps_per_second if left and steps_per_second else None
        return cls(phase, completed, total, seconds if left else 0.0, steps_per_second)


@dataclass(frozen=True, repr=False, eq=False, kw_only=True)
class JobLife(Record):
    """Where a job of any kind is in its life.

    Attributes:
        create_time: When it was submitted.
        start_time: When it was last started; None: it waits.
        end_time: When it ended; None: it has not.
        progress: How far it is.
        attempts: Times it was started, restarts included.
        timing: Seconds it waited, ran, and took in all; None until it ends.
        state: Queued, running, succeeded, failed or cancelled.
    """

    create_time: datetime | None
    start_time: datetime | None = None
    end_time: datetime | None = None
    progress: Progress
    attempts: int
    timing: Timing | None = None
    state: JobState


@dataclass(frozen=True, repr=False, eq=False, kw_only=True)
class ScoreMetadata(JobLife, Wire[pb.ScoreCheckpointMetadata]):
    """A scoring job: what is measured and how far it is."""

    checkpoint: CheckpointRef
    request: ScoreRequest | None = None


@dataclass(frozen=True, repr=False, eq=False, kw_only=True)
class StudyMetadata(JobLife, Wire[study_pb.RunStudyMetadata]):
    """A study: what is measured and how far it is."""

    request: StudyRequest


def _load_arrays(held: Any, *, strict: bool) -> dict[str, Array]:
    return {item.name: read_tensor(item.values, item.name) for item in held}


def _dump_arrays(arrays: Mapping[str, Array]) -> list[dict[str, Any]]:
    return [{"name": name, "values": tensor_fields(x, name)} for name, x in arrays.items()]


Arrays = Annotated[Mapping[str, Array], Codec(_load_arrays, _dump_arrays)]


@dataclass(frozen=True, repr=False, eq=False)
class StudyRows(Record, Wire[study_pb.RunStudyResponse]):
    """The rows of one study of one checkpoint; study_service.proto names the columns.

    Attributes:
        checkpoint: What was measured.
        columns: One-dimensional arrays of one length, in the contract's order.
        arrays: What does not fit a table.
        receipt: What the rows were computed from.
        request: The request as the server took it, defaults filled in and digests pinned.
    """

    checkpoint: CheckpointRef
    columns: Arrays
    arrays: Arrays
    receipt: Receipt
    request: StudyRequest
