"""Judges a training sweep: which checkpoints recover, and how well a pair of thresholds does."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Annotated, NamedTuple

import numpy as np
from acpc_client import SelectionStep
from acpc_client.errors import ArgumentError

from acpc_lab.studies.base import LevelRows
from acpc_lab.studies.statistics import SLACK, Confusion, Mask, clean_success, mean_defined
from acpc_lab.tables import Column, Numbers, Texts, groups


@dataclass(frozen=True, eq=False)
class SweepRows(LevelRows):
    """A row per checkpoint of a training sweep, under one visual shift."""

    ir_raw: Annotated[Numbers, Column("raw IR; either this or ir_rel", low=0, optional=True)]
    ir_rel: Annotated[Numbers, Column("IR relative to level 0 of the run", low=0, optional=True)]
    sr: Annotated[Numbers, Column("separation rate", low=0, high=1)]
    success_noisy: Annotated[Numbers, Column("success under the shift, in %", low=0, high=100)]
    success_clean: Annotated[
        Numbers,
        Column("success on clean views, in %; or success_clean_seeds", 0, 100, optional=True),
    ]
    success_clean_seeds: Annotated[
        Texts, Column("the same by evaluation seed, for example 95 98 96", optional=True)
    ]
    different_label_distance: Annotated[
        Numbers, Column("median distance of different-label pairs", low=0, optional=True)
    ]
    family: Annotated[Texts, Column("model family; thresholds are chosen in each", optional=True)]
    episodes: Annotated[
        Numbers, Column("episodes behind each success rate, for intervals", low=1, optional=True)
    ]
    checkpoint_digest: Annotated[
        Texts, Column("these four of the score's receipt, kept with thresholds", optional=True)
    ]
    anchors_digest: Annotated[Texts, Column("of the anchors", optional=True)]
    perturbation_digest: Annotated[Texts, Column("of shift, draws and seed", optional=True)]
    parameters_digest: Annotated[Texts, Column("of the protocol", optional=True)]


@dataclass(frozen=True, eq=False)
class Run:
    """One task and training run; arrays over the levels of the sweep.

    Attributes:
        rows: Of its checkpoints, in the order of the levels.
        ir_rel: Relative IR.
        clean: Clean success in %, the mean over evaluation seeds where these are given.
        clean_sd: Its deviation over evaluation seeds; NaN where these are not given.
        required: Success under the shift that counts as recovered, in %.
    """

    family: str
    task: str
    run: str
    rows: SweepRows
    ir_rel: Numbers
    clean: Numbers
    clean_sd: Numbers
    required: float
    recovered: Mask

    @property
    def loss(self) -> float:
        """Points of success that the unaugmented checkpoint loses under the shift."""
        return float(self.clean[0] - self.rows.success_noisy[0])


@dataclass(frozen=True)
class TrainingSweep:
    """Every run over the same levels, in ascending order from the unaugmented 0."""

    levels: tuple[float, ...]
    runs: tuple[Run, ...]

    def by_family(self) -> dict[str, TrainingSweep]:
        """The sweep of each model family."""
        return {name: TrainingSweep(self.levels, runs) for name, runs in self._by("family").items()}

    def by_task(self) -> dict[str, tuple[Run, ...]]:
        """The runs of each task; of a sweep of one family."""
        return self._by("task")

    def _by(self, name: str) -> dict[str, tuple[Run, ...]]:
        keyed = groups(getattr(run, name) for run in self.runs)
        return {value: tuple(self.runs[i] for i in held) for (value,), held in keyed.items()}


def required_success(noisy: Numbers, recovery: float) -> float:
    """P_base + recovery (P_best - P_base), as in ``meets_criterion``, in %."""
    return float(noisy[0] + recovery * (noisy.max() - noisy[0]))


def meets_criterion(noisy: Numbers, clean: Numbers, *, recovery: float, clean_loss: float) -> Mask:
    """Which checkpoints of a run meet the success-rate criterion of the paper.

    The unaugmented checkpoint meets it only when no checkpoint of the run does better.

    Args:
        noisy: Success under the shift by level, the unaugmented checkpoint first, in %.
        clean: Success on clean observations, likewise.
        recovery: Share of the improvement from the unaugmented to the best checkpoint.
        clean_loss: Points of clean success that may be lost against the unaugmented checkpoint.
    """
    enough = noisy >= required_success(noisy, recovery) - SLACK
    kept: Mask = clean >= clean[0] - clean_loss - SLACK
    return enough & kept


def recovered_levels(runs: tuple[Run, ...]) -> Mask:
    """Levels at which two thirds of a task's runs, rounded up, are recovered: two of three."""
    wanted = math.ceil(2 * len(runs) / 3)
    level: Mask = np.sum([run.recovered for run in runs], axis=0) >= wanted
    return level


def read_training_sweep(rows: SweepRows, *, recovery: float, clean_loss: float) -> TrainingSweep:
    """The sweep behind the rows.

    Raises ArgumentError: A run lacks a level, has one twice, or has no unaugmented reference.
    """
    levels = np.unique(rows.level)
    if len(levels) < 2 or levels[0] != 0:
        found = ", ".join(f"{level:g}" for level in levels)
        wrong = f"found {found}; wanted 0, the reference, and at least one more"
        raise ArgumentError("level", wrong)
    runs = []
    keys = groups(rows.family.tolist(), rows.task.tolist(), rows.run.tolist())
    for (family, task, run), held in keys.items():
        cell = rows.where(held[np.argsort(rows.level[held], kind="stable")])
        title = f"{family + ', ' if family else ''}{task}, run {run}"
        for level in levels:
            if (times := int((cell.level == level).sum())) != 1:
                why = "wanted 1: onset is counted in steps of a grid that all runs share"
                raise ArgumentError("level", f"{title} has {times} rows of level {level:g}, {why}")
        clean, clean_sd = _clean_success(title, cell)
        noisy = cell.success_noisy
        required = required_success(noisy, recovery)
        recovered = meets_criterion(noisy, clean, recovery=recovery, clean_loss=clean_loss)
        measured = (_relative_ir(title, cell), clean, clean_sd, required, recovered)
        runs.append(Run(family, task, run, cell, *measured))
    return TrainingSweep(tuple(levels.tolist()), tuple(runs))


def _clean_success(cell: str, rows: SweepRows) -> tuple[Numbers, Numbers]:
    try:
        found = clean_success(rows.success_clean, rows.success_clean_seeds)
    except ArgumentError as error:
        raise ArgumentError(error.field, f"{cell}: {error.description}") from error
    if np.isnan(found[0]).any():
        wrong = f"{cell}: is missing; give it, or success_clean_seeds, in all rows"
        raise ArgumentError("success_clean", wrong)
    return found


def _relative_ir(cell: str, rows: SweepRows) -> Numbers:
    """Eq. ir-relative in the paper, or what the rows hold already."""
    raw, relative = np.isfinite(rows.ir_raw), np.isfinite(rows.ir_rel)
    if raw.all() and not relative.any():
        if rows.ir_raw[0] == 0:
            raise ArgumentError("ir_raw", f"{cell}: is 0 at level 0, so relative IR has no value")
        return np.asarray(rows.ir_raw / rows.ir_raw[0])
    if not relative.all() or raw.any():
        raise ArgumentError("ir_rel", f"{cell}: wanted ir_raw in all rows or ir_rel in all rows")
    if abs(rows.ir_rel[0] - 1) > 1e-6:
        wrong = f"{cell}: found {rows.ir_rel[0]:g} at level 0, wanted 1: it is the reference"
        raise ArgumentError("ir_rel", wrong)
    return rows.ir_rel


class ThresholdPair(NamedTuple):
    """Thresholds of relative IR and of SR."""

    ir: float
    sr: float


@dataclass(frozen=True)
class OnsetRule:
    """How far the first accepted level lies from the first recovered one.

    Attributes:
        levels: Of the grid, exactly as written.
        by_checkpoint: Whether early and late count checkpoints: accepted below the first recovered
            level, and recovered but rejected. They count runs otherwise, by the sign of the onset.
        no_onset: What a run counts in which nothing is accepted, or nothing recovered, where
            onsets differ by the difference of their levels; None: onsets differ by steps of the
            grid, and such a level lies one step past the last.
    """

    levels: tuple[Fraction, ...]
    by_checkpoint: bool = False
    no_onset: Fraction | None = None

    def distance(self, passed: Mask, recovered: Mask) -> Fraction:
        """Negative: the screen accepts early."""
        first, wanted = _first(passed), _first(recovered)
        if self.no_onset is None:
            return Fraction(first - wanted)
        past = len(self.levels)
        if past in (first, wanted):
            return self.no_onset * ((first == past) - (wanted == past))
        return self.levels[first] - self.levels[wanted]


@dataclass(frozen=True)
class Judgement:
    """How the screen does on one task and run.

    Attributes:
        onset: From the first recovered level to the first accepted one, by an ``OnsetRule``;
            negative: the screen accepts early.
        early: Runs (this one or none) or checkpoints that are accepted early; no checkpoint of a
            run that recovers nowhere.
    """

    onset: Fraction
    agreement: Confusion
    early: int
    late: int


def _mean(values: Sequence[Fraction]) -> Fraction:
    return sum(values, Fraction(0)) / len(values)


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
        return cls.of_tasks(
            cls(step, step, found.balanced_accuracy, found.precision, found.recall)
            for step, found in ((abs(item.onset), item.agreement) for item in judgements)
        )

    @classmethod
    def of_tasks(cls, tasks: Iterable[Agreement]) -> Agreement:
        """Tasks weigh alike."""
        items = list(tasks)
        return cls(
            _mean([item.mismatch for item in items]),
            max(item.worst for item in items),
            _mean([item.balanced_accuracy for item in items]),
            mean_defined([item.precision for item in items]),
            mean_defined([item.recall for item in items]),
        )


def accepted(run: Run, thresholds: ThresholdPair) -> Mask:
    """Levels that pass the screen: relative IR at most t_IR and SR at least t_SR."""
    passed: Mask = (run.ir_rel <= thresholds.ir) & (run.rows.sr >= thresholds.sr)
    return passed


def judge(run: Run, thresholds: ThresholdPair, rule: OnsetRule) -> Judgement:
    """The screen on one task and run."""
    passed = accepted(run, thresholds)
    onset = rule.distance(passed, run.recovered)
    early, late = int(onset < 0), int(onset > 0)
    if rule.by_checkpoint:
        before = np.arange(len(passed)) < _first(run.recovered)
        early = int((passed & before).sum()) if run.recovered.any() else 0
        late = int((run.recovered & ~passed).sum())
    return Judgement(onset, Confusion.of(passed, run.recovered), early, late)


def _first(mask: Mask) -> int:
    return int(np.argmax(mask)) if mask.any() else len(mask)


Judged = dict[ThresholdPair, dict[str, list[Judgement]]]
"""The judgements of each pair on the runs of each task."""


def sources(tasks: Sequence[str]) -> list[tuple[str, ...]]:
    """Every nonempty proper subset, small ones first: 14 of four tasks."""
    return [
        subset for size in range(1, len(tasks)) for subset in itertools.combinations(tasks, size)
    ]


_CRITERIA = {
    "smallest mean onset mismatch": 1,
    "fewest early acceptances": 1,
    "fewest late acceptances": 1,
    "highest balanced accuracy": -1,
    "smallest t_IR": 1,
    "largest t_SR": -1,
}
"""What decides, in order, and the sign by which the smallest value is the best."""


def select(judged: Judged, source: Iterable[str]) -> ThresholdPair:
    """Picks the best pair on the source tasks, section "Threshold grids" in the paper."""
    return narrowed(judged, list(source))[0]


def narrowed(
    judged: Judged, tasks: Sequence[str]
) -> tuple[ThresholdPair, tuple[SelectionStep, ...]]:
    """Applies criterion after criterion until one pair is left; returns it and the steps."""
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
