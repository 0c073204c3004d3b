"""Selects thresholds on some tasks and tests them on the others, for every choice of tasks."""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from acpc.contract import bounded
from acpc_client import CalibratedThresholds, CalibrationScore
from acpc_client.errors import ArgumentError

from acpc_lab.studies.base import Parameters, Study, by_reading
from acpc_lab.studies.recovery import (
    Judged,
    OnsetRule,
    Run,
    SweepRows,
    ThresholdPair,
    TrainingSweep,
    accepted,
    agreement_on,
    judge,
    narrowed,
    read_training_sweep,
    recovered_levels,
    select,
    sources,
)
from acpc_lab.studies.statistics import (
    SLACK,
    Interval,
    Spread,
    as_float,
    mean_defined,
    records,
    success_intervals,
)
from acpc_lab.studies.threshold_summary import (
    Choice,
    FamilyMean,
    RunRecovery,
    Split,
    SplitMean,
    TaskRecovery,
    ThresholdSummary,
    draw,
    shown,
)
from acpc_lab.tables import Arrays

MAX_TASKS = 10
PAST = "past"


@dataclass(frozen=True)
class ThresholdParameters(Parameters):
    """The search, section "Threshold grids" in the paper.

    Attributes:
        ir_grid: Thresholds of relative IR to try.
        sr_grid: Thresholds of SR to try.
        recovery: Share of the possible improvement that counts as recovered.
        clean_loss: Points of clean success that may be lost.
        clean_gain: Points by which clean success of a recovered level exceeds the unaugmented
            checkpoint's where recovery is not robustness alone.
        reading: Reading of the protocol: the paper's letter, or the authors' released code; decides
            the two below where they are None.
        ties: What early and late acceptances count: ``runs`` (the paper), or ``checkpoints``
            accepted below the first recovered level, and recovered but rejected (the released
            code). In a run that recovers nowhere no checkpoint is early.
        no_onset: What a missing onset counts: ``past``, one grid step past the last level (the
            paper does not say), or a distance in units of the level, in which all onsets then
            differ (the released code: 1.0).
    """

    ir_grid: tuple[float, ...] = bounded((0.05, 0.075, 0.10, 0.15, 0.20, 0.30), gt=0)
    sr_grid: tuple[float, ...] = bounded((0.80, 0.85, 0.90, 0.95), gt=0, le=1)
    recovery: float = bounded(0.8, gt=0, le=1)
    clean_loss: float = bounded(5.0, ge=0)
    clean_gain: float = bounded(5.0, gt=0)
    reading: str = "paper"
    ties: str | None = by_reading(paper="runs", released="checkpoints")
    no_onset: str | float | None = by_reading(paper=PAST, released=1.0)

    def check_rules(self) -> None:
        """A grid holds something, and a distance is positive."""
        for name in ("ir_grid", "sr_grid"):
            if not getattr(self, name):
                raise ArgumentError(name, "is empty, wanted at least one number")
        given = self.no_onset
        if given not in (None, PAST) and (isinstance(given, str) or not 0 < given < math.inf):
            raise ArgumentError("no_onset", f"found {given!r}, wanted {PAST} or a positive number")

    def onset_rule(self, levels: tuple[float, ...]) -> OnsetRule:
        """Makes the rule by which onsets are compared on a grid of levels."""
        return OnsetRule(
            tuple(Fraction(str(level)) for level in levels),
            self.ties == "checkpoints",
            None if isinstance(self.no_onset, str | None) else Fraction(str(self.no_onset)),
        )

    def sweep(self, rows: SweepRows) -> TrainingSweep:
        """The sweep behind the rows, with what counts as recovered."""
        return read_training_sweep(rows, recovery=self.recovery, clean_loss=self.clean_loss)


def summarise(rows: SweepRows, parameters: ThresholdParameters, arrays: Arrays) -> ThresholdSummary:
    """Section "Threshold Protocol" in the paper, in each model family by itself.

    Averages and ties are decided exactly. Raises ArgumentError: A family has one task only, or too
    many, or a run lacks a level.
    """
    sweep = parameters.sweep(rows)
    tasks: list[TaskRecovery] = []
    splits: list[Split] = []
    choices: list[Choice] = []
    means: list[FamilyMean] = []
    for family, held in sweep.by_family().items():
        by_task, judged = held.by_task(), _judged(family, held, parameters)
        mine = [_split(family, source, judged) for source in sources(list(by_task))]
        several = [split for split in mine if len(split.source) > 1]
        single = mean_of([split for split in mine if len(split.source) == 1])
        means.append(FamilyMean(family, single, mean_of(several) if several else None))
        tasks += [
            _task(k, runs, sweep.levels, parameters.clean_gain) for k, runs in by_task.items()
        ]
        splits += mine
        choices += _choices(family, mine, held)
    return ThresholdSummary(
        checkpoints=len(rows),
        levels=sweep.levels,
        tasks=tuple(tasks),
        runs=tuple(_run(run, sweep.levels, parameters.clean_loss) for run in sweep.runs),
        splits=tuple(splits),
        choices=tuple(choices),
        families=tuple(means),
        onset_unit="grid steps" if parameters.no_onset == PAST else "levels",
    )


def calibrated(
    rows: SweepRows, parameters: ThresholdParameters, family: str = ""
) -> CalibratedThresholds:
    """The thresholds that do best on all tasks of a family, for checkpoints that come later.

    ``family`` may be left out where the rows have one only. Raises ArgumentError: As ``summarise``;
    or the rows have no such family, or several.
    """
    families = parameters.sweep(rows).by_family()
    if family not in families and (family or len(families) > 1):
        wanted = f"wanted one of {', '.join(filter(None, families)) or 'none: rows name none'}"
        raise ArgumentError("family", f"found {family or 'none'}, {wanted}")
    name = family if family in families else next(iter(families))
    judged = _judged(name, families[name], parameters)
    tasks = list(families[name].by_task())
    chosen, steps = narrowed(judged, tasks)
    held = rows.where(rows.family == name)
    kept = [getattr(held, field.name) for field in dataclasses.fields(CalibrationScore)]
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
        scores=records(CalibrationScore, *kept),
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


def _judged(name: str, sweep: TrainingSweep, parameters: ThresholdParameters) -> Judged:
    tasks = sweep.by_task()
    if not 2 <= len(tasks) <= MAX_TASKS:
        of = f" of family {name}" if name else ""
        raise ArgumentError("task", f"found {len(tasks)} tasks{of}, wanted 2 to {MAX_TASKS}")
    rule = parameters.onset_rule(sweep.levels)
    grid = itertools.product(parameters.ir_grid, parameters.sr_grid)
    return {
        pair: {task: [judge(run, pair, rule) for run in runs] for task, runs in tasks.items()}
        for pair in itertools.starmap(ThresholdPair, grid)
    }


def _split(family: str, source: tuple[str, ...], judged: Judged) -> Split:
    chosen = select(judged, source)
    test = tuple(task for task in judged[chosen] if task not in source)
    seen, early, late = agreement_on(judged[chosen], source)
    unseen, _, _ = agreement_on(judged[chosen], test)
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
        precision=mean_defined([split.precision for split in splits]),
        recall=mean_defined([split.recall for split in splits]),
        mismatch=sum(split.mismatch for split in splits) / len(splits),
        worst_mismatch=max(split.worst_mismatch for split in splits),
    )


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
    names = ("success_noisy", "sr", "different_label_distance")
    noisy, sr, apart = (np.mean([getattr(run.rows, k) for run in runs], axis=0) for k in names)
    clean, ir_rel = (
        np.mean([getattr(run, k) for run in runs], axis=0) for k in ("clean", "ir_rel")
    )
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
        recovered_levels=tuple(itertools.compress(levels, recovered)),
        family=runs[0].family,
        loss=Spread.of(run.loss for run in runs),
        recovered_clean=(float(after.min()), float(after.max())) if after.size else None,
        clean_rises=bool((after >= clean[0] + clean_gain - SLACK).any()),
        different_label_distance=None if np.isnan(apart).any() else tuple(apart.tolist()),
    )


def _run(run: Run, levels: tuple[float, ...], clean_loss: float) -> RunRecovery:
    noisy = success_intervals(run.rows.success_noisy, run.rows.episodes)
    clean = success_intervals(run.clean, run.rows.episodes)
    undecided = [False] * len(levels)
    if noisy is not None and clean is not None:
        cutoffs = run.required - SLACK, float(run.clean[0]) - clean_loss - SLACK
        undecided[1:] = [_undecided(at, cutoffs) for at in zip(noisy[1:], clean[1:], strict=True)]
    return RunRecovery(
        task=run.task,
        run=run.run,
        required_success=run.required,
        required_clean=float(run.clean[0] - clean_loss),
        recovered_levels=tuple(itertools.compress(levels, run.recovered)),
        family=run.family,
        loss=run.loss,
        clean_success=tuple(run.clean.tolist()),
        clean_success_sd=None if np.isnan(run.clean_sd).all() else tuple(run.clean_sd.tolist()),
        success_interval=noisy,
        clean_success_interval=clean,
        undecided_levels=tuple(itertools.compress(levels, undecided)),
    )


def _undecided(intervals: tuple[Interval, Interval], cutoffs: tuple[float, float]) -> bool:
    """Whether two rates may, but need not, both reach their cutoffs."""
    pairs = list(zip(intervals, cutoffs, strict=True))
    possible = all(high >= cutoff for (_, high), cutoff in pairs)
    return possible and not all(low >= cutoff for (low, _), cutoff in pairs)


STUDY = Study(
    "thresholds",
    "Do thresholds chosen on some tasks find the recovered checkpoints of others?",
    summarise,
    shown,
    draw,
    (
        "acpc study thresholds sweep.csv --out thresholds/",
        "acpc study thresholds sweep.csv --t-ir 0.2,0.3,0.5 --json",
        "acpc study thresholds sweep.csv --output thresholds.json",
    ),
    about="Tries the 6 x 4 grid of the paper on every nonempty proper subset of the tasks and "
    "tests each choice on the other tasks. A row is a checkpoint of a training sweep under one "
    "visual shift. With a column `family` it does so in each model family by itself. With "
    "`--output` it also writes the pair that does best on all tasks, for checkpoints that come "
    "later: `acpc score --thresholds`.",
)
