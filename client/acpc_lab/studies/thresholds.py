"""Selects thresholds on some tasks and tests them on the others, for every choice of tasks."""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import NamedTuple

import numpy as np
from acpc_client import CalibratedThresholds, CalibrationScore, SelectionStep
from acpc_client.errors import ArgumentError

from acpc_lab.studies.base import SLACK, Parameters, Spread, as_float
from acpc_lab.studies.recovery import (
    Agreement,
    Judgement,
    OnsetRule,
    Run,
    SweepRows,
    ThresholdPair,
    TrainingSweep,
    accepted,
    judge,
    read_training_sweep,
    recovered_levels,
)
from acpc_lab.studies.success import Interval, success_intervals
from acpc_lab.studies.threshold_summary import (
    Choice,
    FamilyMean,
    RunRecovery,
    Split,
    SplitMean,
    TaskRecovery,
    ThresholdSummary,
)
from acpc_lab.tables import Arrays

MAX_TASKS = 10
PAST = "past"
TIES = ("runs", "checkpoints")


@dataclass(frozen=True)
class ThresholdParameters(Parameters):
    """The search, section "Threshold grids" in the paper.

    Attributes:
        recovery: Share of the improvement that counts as recovered.
        clean_loss: Points of clean success that may be lost.
        clean_gain: Points by which clean success of a recovered level exceeds the unaugmented
            checkpoint's where recovery is not robustness alone.
        reading: ``"paper"`` or ``"released"``; decides the two below where they are empty or None.
        ties: What early and late count: ``"runs"`` (the paper), or ``"checkpoints"`` accepted below
            the first recovered level, and recovered but rejected (the released code).
        no_onset: What a missing onset counts: ``"past"``, one grid step past the last level (the
            paper does not say), or a distance in units of the level, in which all onsets then
            differ (the released code: 1.0).
    """

    ir_grid: tuple[float, ...] = (0.05, 0.075, 0.10, 0.15, 0.20, 0.30)
    sr_grid: tuple[float, ...] = (0.80, 0.85, 0.90, 0.95)
    recovery: float = 0.8
    clean_loss: float = 5.0
    clean_gain: float = 5.0
    reading: str = "paper"
    ties: str = ""
    no_onset: str | float | None = None

    def __post_init__(self) -> None:
        self.decide("ties", "", {"paper": "runs", "released": "checkpoints"})
        self.decide("no_onset", None, {"paper": PAST, "released": 1.0})
        self.require("ties", self.ties in TIES, f"one of {', '.join(TIES)}")
        fits = self.no_onset == PAST or (
            isinstance(self.no_onset, float | int) and 0 < self.no_onset < math.inf
        )
        self.require("no_onset", fits, f"{PAST} or a positive number")
        self.require("clean_gain", self.clean_gain > 0, "a positive number")
        self.require("ir_grid", bool(self.ir_grid) and min(self.ir_grid) > 0, "positive numbers")
        inside = bool(self.sr_grid) and min(self.sr_grid) > 0 and max(self.sr_grid) <= 1
        self.require("sr_grid", inside, "numbers in (0, 1]")
        self.require("recovery", 0 < self.recovery <= 1, "a share in (0, 1]")
        self.require("clean_loss", self.clean_loss >= 0, "a number of at least 0")

    def pairs(self) -> list[ThresholdPair]:
        """Every pair of the grid."""
        return [ThresholdPair(ir, sr) for ir in self.ir_grid for sr in self.sr_grid]

    def onset_rule(self, levels: tuple[float, ...]) -> OnsetRule:
        """How onsets are compared on a grid of levels."""
        return OnsetRule(
            tuple(Fraction(str(level)) for level in levels),
            self.ties == "checkpoints",
            None if isinstance(self.no_onset, str | None) else Fraction(str(self.no_onset)),
        )


Judged = dict[ThresholdPair, dict[str, list[Judgement]]]


def summarise(rows: SweepRows, parameters: ThresholdParameters, arrays: Arrays) -> ThresholdSummary:
    """Section "Threshold Protocol" in the paper, in each model family by itself.

    Averages and ties are decided exactly. Raises ArgumentError: A family has one task only, or too
    many, or a run lacks a level.
    """
    sweep = read_training_sweep(
        rows, recovery=parameters.recovery, clean_loss=parameters.clean_loss
    )
    found = [_family(name, held, parameters) for name, held in sweep.by_family().items()]
    alone = found[0].mean if len(found) == 1 else None
    return ThresholdSummary(
        checkpoints=len(rows),
        levels=sweep.levels,
        tasks=tuple(task for family in found for task in family.tasks),
        runs=tuple(_run(run, sweep.levels, parameters.clean_loss) for run in sweep.runs),
        splits=tuple(split for family in found for split in family.splits),
        choices=tuple(choice for family in found for choice in family.choices),
        single_source=alone.single_source if alone else None,
        several_sources=alone.several_sources if alone else None,
        families=tuple(family.mean for family in found),
        onset_unit="grid steps" if parameters.no_onset == PAST else "levels",
    )


def calibrated(
    rows: SweepRows, parameters: ThresholdParameters, family: str = ""
) -> CalibratedThresholds:
    """The thresholds that do best on all tasks of a family, for checkpoints that come later.

    ``family`` may be left out where the rows have one only. Raises ArgumentError: As ``summarise``;
    or the rows have no such family, or several.
    """
    sweep = read_training_sweep(
        rows, recovery=parameters.recovery, clean_loss=parameters.clean_loss
    )
    families = sweep.by_family()
    if family not in families and (family or len(families) > 1):
        wanted = f"wanted one of {', '.join(filter(None, families)) or 'none: rows name none'}"
        raise ArgumentError("family", f"found {family or 'none'}, {wanted}")
    name = family if family in families else next(iter(families))
    judged = _judged(name, families[name], parameters)
    tasks = list(families[name].by_task())
    chosen, steps = _narrowed(judged, tasks)
    held = rows.where(rows.family == name)
    scores = zip(
        *(getattr(held, field.name).tolist() for field in dataclasses.fields(CalibrationScore)),
        strict=True,
    )
    splits = [select(judged, source) for source in sources(tasks)]
    return CalibratedThresholds(
        ir=chosen.ir,
        sr=chosen.sr,
        family=name,
        tasks=tuple(tasks),
        runs=len(families[name].runs),
        selection=steps,
        splits=len(splits),
        agreeing=splits.count(chosen),
        warnings=tuple(_edges(chosen, parameters)),
        scores=tuple(CalibrationScore(*values) for values in scores),
    )


def _edges(chosen: ThresholdPair, parameters: ThresholdParameters) -> Iterator[str]:
    """A sentence for each threshold that the grid may have held back."""
    most = {"ir": math.inf, "sr": 1.0}
    for name, grid in (("ir", parameters.ir_grid), ("sr", parameters.sr_grid)):
        value = getattr(chosen, name)
        for edge, other in ((min(grid), "smaller"), (max(grid), "larger")):
            if value == edge and (other == "smaller" or value < most[name]):
                yield (
                    f"t_{name.upper()} {value:g} lies at the edge of its grid: a {other} one was "
                    f"not tried and may do better; add {other} ones with --t-{name}"
                )


class _Family(NamedTuple):
    tasks: list[TaskRecovery]
    splits: list[Split]
    choices: list[Choice]
    mean: FamilyMean


def _judged(name: str, sweep: TrainingSweep, parameters: ThresholdParameters) -> Judged:
    """How every pair does on every run of a family."""
    tasks = sweep.by_task()
    if not 2 <= len(tasks) <= MAX_TASKS:
        of = f" of family {name}" if name else ""
        raise ArgumentError("task", f"found {len(tasks)} tasks{of}, wanted 2 to {MAX_TASKS}")
    rule = parameters.onset_rule(sweep.levels)
    return {
        pair: {task: [judge(run, pair, rule) for run in runs] for task, runs in tasks.items()}
        for pair in parameters.pairs()
    }


def _family(name: str, sweep: TrainingSweep, parameters: ThresholdParameters) -> _Family:
    tasks = sweep.by_task()
    judged = _judged(name, sweep, parameters)
    splits = [_split(name, source, judged) for source in sources(list(tasks))]
    several = [split for split in splits if len(split.source) > 1]
    mean = FamilyMean(
        family=name,
        single_source=mean_of([split for split in splits if len(split.source) == 1]),
        several_sources=mean_of(several) if several else None,
    )
    recovered = [
        _task(task, runs, sweep.levels, parameters.clean_gain) for task, runs in tasks.items()
    ]
    return _Family(recovered, splits, _choices(name, splits, sweep), mean)


def sources(tasks: Sequence[str]) -> list[tuple[str, ...]]:
    """Every nonempty proper subset, small ones first: 14 of four tasks."""
    return [
        subset for size in range(1, len(tasks)) for subset in itertools.combinations(tasks, size)
    ]


def select(judged: Judged, source: Iterable[str]) -> ThresholdPair:
    """The pair that does best on the source tasks, section "Threshold grids" in the paper.

    The smallest mean onset mismatch; ties go to fewer early acceptances, fewer late acceptances,
    the higher balanced accuracy, the smaller t_IR, the larger t_SR, in this order.
    """
    return _narrowed(judged, list(source))[0]


_CRITERIA = {
    "smallest mean onset mismatch": 1,
    "fewest early acceptances": 1,
    "fewest late acceptances": 1,
    "highest balanced accuracy": -1,
    "smallest t_IR": 1,
    "largest t_SR": -1,
}
"""What decides, in order, and the sign by which the smallest value is the best."""


def _narrowed(
    judged: Judged, tasks: Sequence[str]
) -> tuple[ThresholdPair, tuple[SelectionStep, ...]]:
    """The best pair, and what each criterion left; those after the last decision are left out."""
    ranks: dict[ThresholdPair, tuple[Fraction | float, ...]] = {}
    for pair, judgements in judged.items():
        seen, early, late = _on(judgements, tasks)
        ranks[pair] = (seen.mismatch, early, late, -seen.balanced_accuracy, pair.ir, -pair.sr)
    left, steps = list(judged), []
    for index, (criterion, sign) in enumerate(_CRITERIA.items()):
        best = min(ranks[pair][index] for pair in left)
        left = [pair for pair in left if ranks[pair][index] == best]
        steps.append(SelectionStep(criterion, float(sign * best), len(left)))
        if len(left) == 1:
            break
    return left[0], tuple(steps)


def _on(judgements: dict[str, list[Judgement]], tasks: Sequence[str]) -> tuple[Agreement, int, int]:
    """Averages over some tasks, with the number of early and of late runs or checkpoints."""
    items = [item for task in tasks for item in judgements[task]]
    averages = Agreement.of_tasks(Agreement.of_runs(judgements[task]) for task in tasks)
    return averages, sum(item.early for item in items), sum(item.late for item in items)


def _split(family: str, source: tuple[str, ...], judged: Judged) -> Split:
    chosen = select(judged, source)
    test = tuple(task for task in judged[chosen] if task not in source)
    seen, early, late = _on(judged[chosen], source)
    unseen, _, _ = _on(judged[chosen], test)
    return Split(
        source=source,
        test=test,
        t_ir=chosen.ir,
        t_sr=chosen.sr,
        source_mismatch=float(seen.mismatch),
        source_early=early,
        source_late=late,
        source_balanced_accuracy=float(seen.balanced_accuracy),
        balanced_accuracy=float(unseen.balanced_accuracy),
        precision=as_float(unseen.precision),
        recall=as_float(unseen.recall),
        mismatch=float(unseen.mismatch),
        worst_mismatch=float(unseen.worst),
        family=family,
    )


def mean_of(splits: Sequence[Split]) -> SplitMean:
    """Plain averages over splits; precision and recall over the splits that have them."""
    accuracies = [split.balanced_accuracy for split in splits]
    return SplitMean(
        splits=len(splits),
        balanced_accuracy=sum(accuracies) / len(splits),
        lowest_balanced_accuracy=min(accuracies),
        highest_balanced_accuracy=max(accuracies),
        precision=_mean_held(split.precision for split in splits),
        recall=_mean_held(split.recall for split in splits),
        mismatch=sum(split.mismatch for split in splits) / len(splits),
        worst_mismatch=max(split.worst_mismatch for split in splits),
    )


def _mean_held(values: Iterable[float | None]) -> float | None:
    held = [value for value in values if value is not None]
    return sum(held) / len(held) if held else None


def _choices(family: str, splits: Sequence[Split], sweep: TrainingSweep) -> list[Choice]:
    chosen = [ThresholdPair(split.t_ir, split.t_sr) for split in splits]
    return [
        Choice(
            t_ir=pair.ir,
            t_sr=pair.sr,
            splits=chosen.count(pair),
            rows_below_ir=sum(int((run.ir_rel <= pair.ir).sum()) for run in sweep.runs),
            rows_accepted=sum(int(accepted(run, pair).sum()) for run in sweep.runs),
            family=family,
        )
        for pair in sorted(set(chosen), key=lambda pair: (-chosen.count(pair), pair))
    ]


def _task(
    task: str, runs: tuple[Run, ...], levels: tuple[float, ...], clean_gain: float
) -> TaskRecovery:
    noisy = np.mean([run.noisy for run in runs], axis=0)  # (levels,)
    clean = np.mean([run.clean for run in runs], axis=0)
    sr = np.mean([run.sr for run in runs], axis=0)
    ir_rel = np.mean([run.ir_rel for run in runs], axis=0)
    apart = np.mean([run.different_label for run in runs], axis=0)
    best = int(np.argmax(noisy >= noisy.max() - SLACK))
    recovered = recovered_levels(runs)
    after = clean[recovered & (np.arange(len(levels)) > 0)]
    return TaskRecovery(
        task=task,
        base_success=float(noisy[0]),
        best_level=levels[best],
        best_success=float(noisy[best]),
        best_ir_rel=float(ir_rel[best]),
        base_sr=float(sr[0]),
        best_sr=float(sr[best]),
        clean_success=float(clean[0]),
        recovered_levels=_held(levels, recovered.tolist()),
        family=runs[0].family,
        loss=Spread.of(run.loss for run in runs),
        recovered_clean=(float(after.min()), float(after.max())) if after.size else None,
        clean_rises=bool((after >= clean[0] + clean_gain - SLACK).any()),
        different_label_distance=None if np.isnan(apart).any() else tuple(apart.tolist()),
    )


def _run(run: Run, levels: tuple[float, ...], clean_loss: float) -> RunRecovery:
    noisy = success_intervals(run.noisy, run.episodes)
    clean = success_intervals(run.clean, run.episodes)
    undecided = [False] * len(levels)
    if noisy is not None and clean is not None:
        cutoffs = run.required - SLACK, float(run.clean[0]) - clean_loss - SLACK
        undecided[1:] = [_undecided(at, cutoffs) for at in zip(noisy[1:], clean[1:], strict=True)]
    return RunRecovery(
        task=run.task,
        run=run.run,
        required_success=run.required,
        required_clean=float(run.clean[0] - clean_loss),
        recovered_levels=_held(levels, run.recovered.tolist()),
        family=run.family,
        loss=run.loss,
        clean_success=tuple(run.clean.tolist()),
        clean_success_sd=None if np.isnan(run.clean_sd).all() else tuple(run.clean_sd.tolist()),
        success_interval=noisy,
        clean_success_interval=clean,
        undecided_levels=_held(levels, undecided),
    )


def _undecided(intervals: tuple[Interval, Interval], cutoffs: tuple[float, float]) -> bool:
    """Whether two rates may, but need not, both reach their cutoffs."""
    pairs = list(zip(intervals, cutoffs, strict=True))
    possible = all(high >= cutoff for (_, high), cutoff in pairs)
    return possible and not all(low >= cutoff for (low, _), cutoff in pairs)


def _held(levels: tuple[float, ...], mask: Sequence[bool]) -> tuple[float, ...]:
    return tuple(level for level, held in zip(levels, mask, strict=True) if held)
