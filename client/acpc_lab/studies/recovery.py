"""Judges a training sweep: which checkpoints recover, and which the screen accepts."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Annotated, NamedTuple

import numpy as np
from acpc_client.errors import ArgumentError
from numpy.typing import NDArray

from acpc_lab.studies.base import SLACK, Confusion, mean_defined
from acpc_lab.studies.success import clean_success
from acpc_lab.tables import Column, Numbers, Rows, Texts, groups

Mask = NDArray[np.bool_]


@dataclass(frozen=True, eq=False)
class SweepRows(Rows):
    """A row per checkpoint of a training sweep, under one visual shift."""

    task: Annotated[Texts, Column("task")]
    run: Annotated[Texts, Column("training run, for example its seed")]
    level: Annotated[Numbers, Column("augmentation level; 0: the unaugmented reference", low=0)]
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
        clean: Clean success in %, the mean over evaluation seeds where these are given.
        clean_sd: Its deviation over evaluation seeds; NaN where these are not given.
        different_label: Median distance of different-label pairs; NaN where it is not given.
        episodes: Behind each success rate; NaN where it is not given.
        required: Success under the shift that counts as recovered, in %.
        recovered: Whether each checkpoint meets the success-rate criterion.
    """

    family: str
    task: str
    run: str
    ir_rel: Numbers
    sr: Numbers
    noisy: Numbers
    clean: Numbers
    clean_sd: Numbers
    different_label: Numbers
    episodes: Numbers
    required: float
    recovered: Mask

    @property
    def title(self) -> str:
        """Family, task and run, for a message."""
        return _title(self.family, self.task, self.run)

    @property
    def loss(self) -> float:
        """Points of success that the unaugmented checkpoint loses under the shift."""
        return float(self.clean[0] - self.noisy[0])


@dataclass(frozen=True)
class TrainingSweep:
    """Every run over the same levels, in ascending order from the unaugmented 0."""

    levels: tuple[float, ...]
    runs: tuple[Run, ...]

    def by_family(self) -> dict[str, TrainingSweep]:
        """The sweep of each model family."""
        keyed = groups(run.family for run in self.runs)
        return {
            family: TrainingSweep(self.levels, tuple(self.runs[i] for i in held))
            for (family,), held in keyed.items()
        }

    def by_task(self) -> dict[str, tuple[Run, ...]]:
        """The runs of each task; of a sweep of one family."""
        keyed = groups(run.task for run in self.runs)
        return {task: tuple(self.runs[i] for i in held) for (task,), held in keyed.items()}


def required_success(noisy: Numbers, recovery: float) -> float:
    """P_base + recovery (P_best - P_base), section "Success-rate criterion" in the paper.

    Args:
        noisy: Success under the shift by level, the unaugmented checkpoint first, in %.
        recovery: Share of the possible improvement; the paper has 0.8.
    """
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
        raise ArgumentError(
            "level", f"found {found}; wanted 0, the reference, and at least one more"
        )
    runs = []
    keys = groups(rows.family.tolist(), rows.task.tolist(), rows.run.tolist())
    for (family, task, run), held in keys.items():
        cell = rows.where(held[np.argsort(rows.level[held], kind="stable")])
        title = _title(family, task, run)
        _check_levels(title, cell.level, levels)
        noisy, (clean, clean_sd) = cell.success_noisy, _clean_success(title, cell)
        runs.append(
            Run(
                family,
                task,
                run,
                _relative_ir(title, cell),
                cell.sr,
                noisy,
                clean,
                clean_sd,
                cell.different_label_distance,
                cell.episodes,
                required_success(noisy, recovery),
                meets_criterion(noisy, clean, recovery=recovery, clean_loss=clean_loss),
            )
        )
    return TrainingSweep(tuple(levels.tolist()), tuple(runs))


def _title(family: str, task: str, run: str) -> str:
    return f"{family + ', ' if family else ''}{task}, run {run}"


def _clean_success(cell: str, rows: SweepRows) -> tuple[Numbers, Numbers]:
    try:
        found = clean_success(rows.success_clean, rows.success_clean_seeds)
    except ArgumentError as error:
        raise ArgumentError(error.field, f"{cell}: {error.description}") from error
    if np.isnan(found[0]).any():
        raise ArgumentError(
            "success_clean", f"{cell}: is missing; give it, or success_clean_seeds, in all rows"
        )
    return found


def _check_levels(cell: str, found: Numbers, wanted: Numbers) -> None:
    for level in wanted:
        times = int((found == level).sum())
        if times != 1:
            raise ArgumentError(
                "level",
                f"{cell} has {times} rows of level {level:g}, wanted 1: onset is counted in steps "
                "of a grid that all runs share",
            )


def _relative_ir(cell: str, rows: SweepRows) -> Numbers:
    """Eq. ir-relative in the paper, or what the rows hold already."""
    raw, relative = np.isfinite(rows.ir_raw), np.isfinite(rows.ir_rel)
    if raw.all() and not relative.any():
        if rows.ir_raw[0] == 0:
            raise ArgumentError("ir_raw", f"{cell}: is 0 at level 0, so relative IR has no value")
        ratio: Numbers = rows.ir_raw / rows.ir_raw[0]
        return ratio
    if not relative.all() or raw.any():
        raise ArgumentError("ir_rel", f"{cell}: wanted ir_raw in all rows or ir_rel in all rows")
    if abs(rows.ir_rel[0] - 1) > 1e-6:
        raise ArgumentError(
            "ir_rel", f"{cell}: found {rows.ir_rel[0]:g} at level 0, wanted 1: it is the reference"
        )
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
        agreement: Accepted against recovered, over the levels.
        early: Runs (this one or none) or checkpoints that are accepted early; none of a run that
            recovers nowhere.
        late: Likewise late.
    """

    onset: Fraction
    agreement: Confusion
    early: int
    late: int


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
            sum(steps, Fraction(0)) / len(steps),
            max(steps),
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


def accepted(run: Run, thresholds: ThresholdPair) -> Mask:
    """Levels that pass the screen: relative IR at most t_IR and SR at least t_SR."""
    passed: Mask = (run.ir_rel <= thresholds.ir) & (run.sr >= thresholds.sr)
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
