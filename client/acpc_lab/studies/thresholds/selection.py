"""Judges pairs of thresholds on a training sweep, and selects one on some of its tasks."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import chain, combinations, product
from statistics import mean
from typing import Any, NamedTuple

import numpy as np
from acpc_client import SelectionStep
from acpc_client.errors import ArgumentError

from acpc_lab.studies.statistics import Confusion, Mask, as_float, mean_defined
from acpc_lab.studies.thresholds.sweep import PAST, Run, ThresholdParameters, TrainingSweep

MAX_TASKS = 10


class ThresholdPair(NamedTuple):
    """Thresholds of relative IR and of SR."""

    ir: float
    sr: float


@dataclass(frozen=True)
class Judgement:
    """How the screen does on a task and run; ``ThresholdParameters.ties`` says what is counted."""

    onset: Fraction
    agreement: Confusion
    early: int
    late: int


@dataclass(frozen=True)
class Agreement:
    """Averages over the runs of a task, or over tasks that weigh alike; of |onset| the largest too.

    Precision is averaged over the runs that accept anything, recall over those in which anything is
    recovered; None when there is none.
    """

    mismatch: Fraction
    worst_mismatch: Fraction
    balanced_accuracy: Fraction
    precision: Fraction | None
    recall: Fraction | None

    @classmethod
    def of_runs(cls, judgements: Sequence[Judgement]) -> Agreement:
        """A task, from its runs."""
        found = ((abs(item.onset), item.agreement) for item in judgements)
        return cls.of_tasks(
            cls(step, step, seen.balanced_accuracy, seen.precision, seen.recall)
            for step, seen in found
        )

    @classmethod
    def of_tasks(cls, tasks: Iterable[Agreement]) -> Agreement:
        """Tasks weigh alike."""
        items = list(tasks)
        return cls(
            mean([item.mismatch for item in items]),
            max(item.worst_mismatch for item in items),
            mean([item.balanced_accuracy for item in items]),
            mean_defined([item.precision for item in items]),
            mean_defined([item.recall for item in items]),
        )

    def to_floats(self) -> dict[str, Any]:
        """The nearest float64 of each average."""
        return {name: as_float(value) for name, value in vars(self).items()}


def accepted(run: Run, thresholds: ThresholdPair) -> Mask:
    """Levels that pass the screen: relative IR at most t_IR and SR at least t_SR."""
    return (run.ir_rel <= thresholds.ir) & (run.rows.sr >= thresholds.sr)


def judge(run: Run, thresholds: ThresholdPair, parameters: ThresholdParameters) -> Judgement:
    """The screen on one task and run."""
    passed = accepted(run, thresholds)
    onset = _onset(run, passed, parameters.no_onset)
    early, late = int(onset < 0), int(onset > 0)
    if parameters.ties == "checkpoints":
        before = np.arange(len(passed)) < _first(run.recovered)
        early = int((passed & before).sum()) if run.recovered.any() else 0
        late = int((run.recovered & ~passed).sum())
    return Judgement(onset, Confusion.of(passed, run.recovered), early, late)


def _onset(run: Run, passed: Mask, no_onset: str | float | None) -> Fraction:
    """From the first recovered level to the first accepted one; negative: accepted early."""
    first, wanted, past = _first(passed), _first(run.recovered), len(passed)
    if no_onset == PAST:
        return Fraction(first - wanted)
    if past in (first, wanted):
        return Fraction(str(no_onset)) * ((first == past) - (wanted == past))
    levels = run.rows.level.tolist()
    return Fraction(str(levels[first])) - Fraction(str(levels[wanted]))  # as written


def _first(mask: Mask) -> int:
    return int(np.argmax(mask)) if mask.any() else len(mask)


Judged = dict[ThresholdPair, dict[str, list[Judgement]]]
"""The judgements of each pair on the runs of each task."""


def judge_grid(family: str, sweep: TrainingSweep, parameters: ThresholdParameters) -> Judged:
    """Judges every pair of the grid on the sweep of a family.

    Raises ArgumentError: It has one task only, or too many.
    """
    tasks = sweep.by_task()
    if not 2 <= len(tasks) <= MAX_TASKS:
        of = f" of family {family}" if family else ""
        raise ArgumentError("task", f"found {len(tasks)} tasks{of}, wanted 2 to {MAX_TASKS}")
    grid = (ThresholdPair(*pair) for pair in product(parameters.ir_grid, parameters.sr_grid))
    return {
        pair: {task: [judge(run, pair, parameters) for run in runs] for task, runs in tasks.items()}
        for pair in grid
    }


def sources(tasks: Sequence[str]) -> list[tuple[str, ...]]:
    """Every nonempty proper subset, small ones first: 14 of four tasks."""
    sizes = range(1, len(tasks))
    return list(chain.from_iterable(combinations(tasks, size) for size in sizes))


_CRITERIA = {
    "smallest mean onset mismatch": 1,
    "fewest early acceptances": 1,
    "fewest late acceptances": 1,
    "highest balanced accuracy": -1,
    "smallest t_IR": 1,
    "largest t_SR": -1,
}
"""What decides, in order, and the sign by which the smallest value is the best."""


def narrowed(
    judged: Judged, tasks: Sequence[str]
) -> tuple[ThresholdPair, tuple[SelectionStep, ...]]:
    """The best pair on some tasks, by one criterion after the other; section "Threshold grids"."""
    ranks: dict[ThresholdPair, tuple[Fraction | float, ...]] = {}
    for pair, judgements in judged.items():
        seen, early, late = agreement_on(judgements, tasks)
        ranks[pair] = (seen.mismatch, early, late, -seen.balanced_accuracy, pair.ir, -pair.sr)
    left, steps = list(judged), []
    for index, (criterion, sign) in enumerate(_CRITERIA.items()):
        best = min(ranks[pair][index] for pair in left)
        left = [pair for pair in left if ranks[pair][index] == best]
        steps.append(SelectionStep(criterion, float(sign * best), len(left)))
        if len(left) == 1:
            break
    return left[0], tuple(steps)


def agreement_on(
    judgements: dict[str, list[Judgement]], tasks: Sequence[str]
) -> tuple[Agreement, int, int]:
    """Averages over some tasks, with the number of early and of late runs or checkpoints."""
    items = [item for task in tasks for item in judgements[task]]
    averages = Agreement.of_tasks(Agreement.of_runs(judgements[task]) for task in tasks)
    return averages, sum(item.early for item in items), sum(item.late for item in items)
