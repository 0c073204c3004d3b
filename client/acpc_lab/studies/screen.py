"""A pair of thresholds against the success-rate criterion: onset, agreement, averages."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import NamedTuple

import numpy as np

from acpc_lab.studies.numbers import Confusion, mean_defined
from acpc_lab.studies.recovery import Mask, Run


class Pair(NamedTuple):
    """Thresholds of relative IR and of SR."""

    ir: float
    sr: float


@dataclass(frozen=True)
class Judgement:
    """How the screen does on one task and run.

    Attributes:
        onset: Grid steps from the first recovered level to the first accepted one; negative: the
            screen accepts early. No such level counts as one step past the last.
        agreement: Accepted against recovered, over the levels.
    """

    onset: int
    agreement: Confusion


@dataclass(frozen=True)
class Agreement:
    """Averages: over the runs of a task, or over tasks that weigh alike.

    Attributes:
        mismatch: Mean of |onset|.
        worst: Largest |onset| of any run.
        balanced_accuracy: Of the nine checkpoints of each run, averaged.
        precision: Averaged over the runs that accept anything; None when none does.
        recall: Averaged over the runs in which anything is recovered; None when none is.
    """

    mismatch: Fraction
    worst: Fraction
    balanced_accuracy: Fraction
    precision: Fraction | None
    recall: Fraction | None

    @classmethod
    def of_runs(cls, judgements: Sequence[Judgement]) -> Agreement:
        """A task, from its runs."""
        counts = [item.agreement for item in judgements]
        steps = [abs(item.onset) for item in judgements]
        return cls(
            Fraction(sum(steps), len(steps)),
            Fraction(max(steps)),
            sum((item.balanced_accuracy for item in counts), Fraction(0)) / len(counts),
            mean_defined([item.precision for item in counts]),
            mean_defined([item.recall for item in counts]),
        )

    @classmethod
    def of_tasks(cls, tasks: Iterable[Agreement]) -> Agreement:
        """Tasks weigh alike."""
        items = list(tasks)
        return cls(
            sum((item.mismatch for item in items), Fraction(0)) / len(items),
            max(item.worst for item in items),
            sum((item.balanced_accuracy for item in items), Fraction(0)) / len(items),
            mean_defined([item.precision for item in items]),
            mean_defined([item.recall for item in items]),
        )


def accepted(run: Run, thresholds: Pair) -> Mask:
    """Levels that pass the screen: relative IR at most t_IR and SR at least t_SR."""
    passed: Mask = (run.ir_rel <= thresholds.ir) & (run.sr >= thresholds.sr)
    return passed


def judge(run: Run, thresholds: Pair) -> Judgement:
    """The screen on one task and run."""
    passed = accepted(run, thresholds)
    onset = _first(passed) - _first(run.recovered)
    return Judgement(onset, Confusion.of(passed, run.recovered))


def _first(mask: Mask) -> int:
    return int(np.argmax(mask)) if mask.any() else len(mask)
