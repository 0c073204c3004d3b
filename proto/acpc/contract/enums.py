"""Enums of the contract that both requests and answers carry."""

from __future__ import annotations

import enum


class WireEnum(enum.IntEnum):
    """An enum of the contract. Values of a newer release read as the unspecified one."""

    @classmethod
    def _missing_(cls, value: object) -> WireEnum:
        return cls(0)

    def __str__(self) -> str:
        return self.name.lower()


class NumericMode(WireEnum):
    SERVER_DEFAULT = 0
    FP32 = 1
    TF32 = 2
    BF16 = 3
    FP64 = 4


class CostReduction(WireEnum):
    SERVER_DEFAULT = 0
    SUM = 1
    MEAN = 2


class ApplyTo(WireEnum):
    """What visual changes are applied to: a planner's history, the frame of its goal, or both."""

    SERVER_DEFAULT = 0
    HISTORY = 1
    GOAL = 2
    BOTH = 3

    @property
    def history(self) -> bool:
        """Whether the history is changed."""
        return self is not ApplyTo.GOAL

    @property
    def goal(self) -> bool:
        """Whether the goal is changed."""
        return self in (ApplyTo.GOAL, ApplyTo.BOTH)


class Norm(WireEnum):
    SERVER_DEFAULT = 0
    L2 = 1
    L1 = 2


class CemReturn(WireEnum):
    SERVER_DEFAULT = 0
    MEAN = 1
    BEST = 2


class Reading(WireEnum):
    """``ProtocolReading`` of the contract."""

    SERVER_DEFAULT = 0
    PAPER = 1
    RELEASED = 2


class PartnerPast(WireEnum):
    SERVER_DEFAULT = 0
    OWN = 1
    ANCHOR = 2


class AnchorSample(WireEnum):
    SERVER_DEFAULT = 0
    WINDOWS = 1
    EPISODES = 2


class DestroyedActions(WireEnum):
    SERVER_DEFAULT = 0
    FUTURE = 1
    WINDOW = 2


class Outcome(WireEnum):
    UNSPECIFIED = 0
    PASSED = 1
    FAILED = 2
    INCONCLUSIVE = 3
    UNDECIDED = 4
    DOES_NOT_FIT = 5

    @property
    def rejects(self) -> bool:
        """Whether it surely stops a gate: the screen failed, or the model does not fit its data."""
        return self in (Outcome.FAILED, Outcome.DOES_NOT_FIT)


class JobState(WireEnum):
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
