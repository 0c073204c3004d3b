"""Jobs: where they are and how far."""

from __future__ import annotations

from dataclasses import dataclass

from acpc.contract.enums import WireEnum
from acpc.contract.messages import Wire
from acpc.contract.record import Record
from acpc.v1 import scoring_service_pb2 as pb


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
