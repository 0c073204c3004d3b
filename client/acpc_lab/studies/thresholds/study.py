"""Selects thresholds on some tasks and tests them on the others, for every choice of tasks."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Iterator, Sequence

from acpc.contract import Record, cell, columns_of
from acpc_client import CalibratedThresholds, CalibrationScore
from acpc_client.errors import ArgumentError

from acpc_lab.studies.base import Evidence, Figures, Study
from acpc_lab.studies.figures import AGREEMENT, Listing, by_row, family_column
from acpc_lab.studies.statistics import mean_defined, records
from acpc_lab.studies.thresholds import recovery, selection
from acpc_lab.studies.thresholds.recovery import RunRecovery, TaskRecovery, of_family
from acpc_lab.studies.thresholds.selection import Judged, ThresholdPair
from acpc_lab.studies.thresholds.sweep import (
    PAST,
    Run,
    SweepRows,
    ThresholdParameters,
    read_training_sweep,
)
from acpc_lab.tables import Arrays


class Split(Record):
    """Thresholds chosen on the source tasks, and how they do on the test tasks.

    Attributes:
        source_mismatch: Mean onset mismatch on the source tasks, in the summary's ``onset_unit``.
        source_early: Source runs or checkpoints that are accepted early, as ``ties`` says.
        source_late: Those that are accepted late, or recovered and rejected.
        precision: None when the screen accepts nothing in any test run.
        recall: None when nothing is recovered in any test run.
    """

    source: tuple[str, ...]
    test: tuple[str, ...]
    t_ir: float
    t_sr: float
    source_mismatch: float
    source_early: int
    source_late: int
    source_balanced_accuracy: float
    balanced_accuracy: float
    precision: float | None
    recall: float | None
    mismatch: float
    worst_mismatch: float
    family: str = ""


class SplitMean(Record):
    """Plain averages over splits with a number of source tasks in one range."""

    splits: int
    balanced_accuracy: float
    lowest_balanced_accuracy: float
    highest_balanced_accuracy: float
    precision: float | None
    recall: float | None
    mismatch: float
    worst_mismatch: float


class Choice(Record):
    """A pair of thresholds that some split chose, and the family's checkpoints that pass it."""

    t_ir: float
    t_sr: float
    splits: int
    rows_below_ir: int
    rows_accepted: int
    family: str


class FamilyMean(Record):
    """Averages over the splits of one model family; two tasks have none of several sources."""

    family: str
    single_source: SplitMean
    several_sources: SplitMean | None


class ThresholdSummary(Record):
    """The answer of the threshold study, in each model family by itself.

    Attributes:
        choices: Most frequent first, family by family.
        onset_unit: Of mismatches: ``"grid steps"``, or ``"levels"``, differences of levels.
    """

    checkpoints: int
    levels: tuple[float, ...]
    tasks: tuple[TaskRecovery, ...]
    runs: tuple[RunRecovery, ...]
    splits: tuple[Split, ...]
    choices: tuple[Choice, ...]
    families: tuple[FamilyMean, ...]
    onset_unit: str


def summarise(rows: SweepRows, parameters: ThresholdParameters, arrays: Arrays) -> ThresholdSummary:
    """Section "Threshold Protocol" in the paper, in each model family by itself.

    Averages and ties are decided exactly. Raises ArgumentError: A family has one task only, or too
    many, or a run lacks a level.
    """
    sweep = read_training_sweep(rows, parameters)
    tasks: list[TaskRecovery] = []
    splits: list[Split] = []
    choices: list[Choice] = []
    means: list[FamilyMean] = []
    for family, held in sweep.by_family().items():
        by_task, judged = held.by_task(), selection.judge_grid(family, held, parameters)
        mine = [_split(family, source, judged) for source in selection.sources(list(by_task))]
        several = [split for split in mine if len(split.source) > 1]
        single = mean_of([split for split in mine if len(split.source) == 1])
        means.append(FamilyMean(family, single, mean_of(several) if several else None))
        tasks += [recovery.of_task(k, runs, parameters.clean_gain) for k, runs in by_task.items()]
        splits += mine
        choices += _choices(family, mine, held.runs)
    return ThresholdSummary(
        checkpoints=len(rows),
        levels=sweep.levels,
        tasks=tuple(tasks),
        runs=tuple(map(recovery.of_run, sweep.runs)),
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
    families = read_training_sweep(rows, parameters).by_family()
    if family not in families and (family or len(families) > 1):
        wanted = f"wanted one of {', '.join(filter(None, families)) or 'none: rows name none'}"
        raise ArgumentError("family", f"found {family or 'none'}, {wanted}")
    name = family if family in families else next(iter(families))
    judged = selection.judge_grid(name, families[name], parameters)
    tasks = list(families[name].by_task())
    chosen, steps = selection.narrowed(judged, tasks)
    held = rows.where(rows.family == name)
    kept = [getattr(held, field.name) for field in dataclasses.fields(CalibrationScore)]
    splits = [selection.narrowed(judged, source)[0] for source in selection.sources(tasks)]
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
    for name, grid in (("ir", parameters.ir_grid), ("sr", parameters.sr_grid)):
        value = getattr(chosen, name)
        for edge, other in ((min(grid), "smaller"), (max(grid), "larger")):
            if value == edge and (name, value, other) != ("sr", 1.0, "larger"):
                yield (
                    f"t_{name.upper()} {value:g} lies at the edge of its grid: a {other} one was "
                    f"not tried and may do better; add {other} ones with --t-{name}"
                )


def _split(family: str, source: tuple[str, ...], judged: Judged) -> Split:
    chosen = selection.narrowed(judged, source)[0]
    test = tuple(task for task in judged[chosen] if task not in source)
    seen, early, late = selection.agreement_on(judged[chosen], source)
    unseen, _, _ = selection.agreement_on(judged[chosen], test)
    return Split(
        source=source,
        test=test,
        t_ir=chosen.ir,
        t_sr=chosen.sr,
        source_mismatch=float(seen.mismatch),
        source_early=early,
        source_late=late,
        source_balanced_accuracy=float(seen.balanced_accuracy),
        **unseen.to_floats(),
        family=family,
    )


def mean_of(splits: Sequence[Split]) -> SplitMean:
    """Plain averages over splits; precision and recall over the splits that have them."""
    names = ("balanced_accuracy", "precision", "recall", "mismatch", "worst_mismatch")
    accuracies, precisions, recalls, mismatches, worst = columns_of(splits, *names).values()
    return SplitMean(
        splits=len(splits),
        balanced_accuracy=sum(accuracies) / len(splits),
        lowest_balanced_accuracy=min(accuracies),
        highest_balanced_accuracy=max(accuracies),
        precision=mean_defined(precisions),
        recall=mean_defined(recalls),
        mismatch=sum(mismatches) / len(splits),
        worst_mismatch=max(worst),
    )


def _choices(family: str, splits: Sequence[Split], runs: Sequence[Run]) -> list[Choice]:
    chosen = Counter(ThresholdPair(split.t_ir, split.t_sr) for split in splits)
    choices = []
    for pair, times in sorted(chosen.items(), key=lambda item: (-item[1], item[0])):
        below = sum(int((run.ir_rel <= pair.ir).sum()) for run in runs)
        accepted = sum(int(selection.accepted(run, pair).sum()) for run in runs)
        choices.append(Choice(*pair, times, below, accepted, family))
    return choices


SPLIT = (
    ("chosen on", lambda split: " + ".join(split.source)),
    ("t_IR", "t_ir", "g"),
    ("t_SR", "t_sr", "g"),
    *AGREEMENT,
)


def shown(summary: ThresholdSummary) -> Iterator[str | Listing]:
    """Lists where tasks recover, what each split chose, and the averages."""
    yield from recovery.shown(summary.tasks, summary.runs, summary.levels)
    onset = ("onset off by, worst", lambda s: f"{s.mismatch:.2g}, {s.worst_mismatch:g}")
    yield Listing(summary.splits, (*family_column(summary.splits), *SPLIT, onset))
    if summary.onset_unit == "levels":
        yield "onsets differ by levels, not by steps of the grid"
    for mean in summary.families:
        yield _mean(of_family(mean, "one source task"), mean.single_source)
        if mean.several_sources is not None:
            yield _mean(of_family(mean, "several source tasks"), mean.several_sources)
    tried = Counter(split.family for split in summary.splits)
    runs = Counter(run.family for run in summary.runs)
    for choice in summary.choices:
        pair = of_family(choice, f"({choice.t_ir:g}, {choice.t_sr:g})")
        yield (
            f"{pair} chosen by {choice.splits} of {tried[choice.family]} splits; accepts "
            f"{choice.rows_accepted} of {len(summary.levels) * runs[choice.family]} checkpoints "
            f"({choice.rows_below_ir} by IR alone)"
        )


def _mean(name: str, mean: SplitMean) -> str:
    return (
        f"{name}: BA {mean.balanced_accuracy:.3f} "
        f"({mean.lowest_balanced_accuracy:.3f} to {mean.highest_balanced_accuracy:.3f}), "
        f"precision {cell(mean.precision, '.3f')}, recall {cell(mean.recall, '.3f')}, "
        f"onset mismatch {mean.mismatch:.2f}, worst {mean.worst_mismatch:g}"
    )


def draw(evidence: Evidence) -> Figures:
    """The sweep with the commonest thresholds, and the splits, of each family."""
    summary, figures = evidence.summary, {}
    sweep = read_training_sweep(evidence.rows, evidence.parameters)
    for family, held in sweep.by_family().items():
        mine = [split for split in summary.splits if split.family == family]
        commonest = next(choice for choice in summary.choices if choice.family == family)
        suffix = f"-{family}" if len(summary.families) > 1 else ""
        figures[f"sweep{suffix}"] = recovery.curves(held, commonest.t_ir, commonest.t_sr)
        figures[f"splits{suffix}"] = by_row(splits(mine))
    return figures


def splits(held: Sequence[Split]) -> Listing:
    """A row per split, with its thresholds: how the screen does on the other tasks."""
    onset = (("onset off by", "mismatch"), ("at worst", "worst_mismatch"))
    return Listing(held, (*SPLIT, *onset), named=3)


STUDY = Study(
    "thresholds",
    "Do thresholds chosen on some tasks find the recovered checkpoints of others?",
    summarise,
    shown,
    "one source task: BA 0.855 (0.723 to 0.913); several: BA 0.900, precision 0.913, "
    "recall 0.953, worst onset mismatch 1",
    (
        "acpc study run thresholds --rows sweep.csv --out thresholds/",
        "acpc study run thresholds --rows sweep.csv -o json --protocol '{ir_grid: [0.2, 0.3]}'",
        "acpc study run thresholds --rows sweep.csv --thresholds thresholds.json",
    ),
    about="Tries the 6 x 4 grid of the paper on every nonempty proper subset of the tasks and "
    "tests each choice on the other tasks. A row is a checkpoint of a training sweep under one "
    "visual shift. With a column `family` it does so in each model family by itself. With "
    "`--thresholds` it also writes the pair that does best on all tasks, for checkpoints that come "
    "later: `thresholds: FILE` in the protocol of a score.",
    draw=draw,
)
