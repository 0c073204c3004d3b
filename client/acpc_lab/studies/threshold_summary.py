"""What the threshold study answers, as records, as tables and as figures."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from acpc.contract import Record, cell

from acpc_lab.plotting import INK, SOFT, hue, marker, panels, zero_line
from acpc_lab.studies.base import Evidence, Listing
from acpc_lab.studies.recovery import ThresholdPair, TrainingSweep, recovered_levels
from acpc_lab.studies.statistics import Interval, Spread

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


@dataclass(frozen=True, repr=False, eq=False)
class TaskRecovery(Record):
    """Where a task recovers; means are over its runs.

    Attributes:
        base_success: Success of the unaugmented checkpoint under the shift, in %.
        best_level: Level with the highest mean success under the shift; the lowest of equals.
        clean_success: Clean success of the unaugmented checkpoint, in %.
        recovered_levels: Levels at which two of three runs meet the success-rate criterion.
        loss: Points of success that the unaugmented checkpoint loses under the shift, over runs.
        recovered_clean: Lowest and highest clean success of the recovered augmented levels, in %;
            None where there is none.
        clean_rises: At a recovered level clean success is higher, too, by ``clean_gain`` points or
            more: recovery cannot be attributed to robustness alone.
        different_label_distance: Median distance of different-label pairs by level; None where a
            row lacks it.
    """

    task: str
    base_success: float
    best_level: float
    best_success: float
    best_ir_rel: float
    base_sr: float
    best_sr: float
    clean_success: float
    recovered_levels: tuple[float, ...]
    family: str
    loss: Spread
    recovered_clean: tuple[float, float] | None
    clean_rises: bool
    different_label_distance: tuple[float, ...] | None


@dataclass(frozen=True, repr=False, eq=False)
class RunRecovery(Record):
    """Which levels of one run meet the success-rate criterion, and what it asks for, in %.

    Attributes:
        loss: Points of success that the unaugmented checkpoint loses under the shift.
        clean_success: By level, in %.
        clean_success_sd: Its deviation over evaluation seeds, by level, in points; None where no
            row has success by seed.
        success_interval: 95 % interval of success under the shift, by level, in %; None where
            rows lack episodes.
        clean_success_interval: Of clean success, likewise.
        undecided_levels: Augmented levels whose intervals do not tell whether they meet the
            criterion, its cutoffs taken as they are; none without intervals.
    """

    task: str
    run: str
    required_success: float
    required_clean: float
    recovered_levels: tuple[float, ...]
    family: str
    loss: float
    clean_success: tuple[float, ...]
    clean_success_sd: tuple[float, ...] | None
    success_interval: tuple[Interval, ...] | None
    clean_success_interval: tuple[Interval, ...] | None
    undecided_levels: tuple[float, ...]


@dataclass(frozen=True, repr=False, eq=False)
class Split(Record):
    """Thresholds chosen on the source tasks, and how they do on the test tasks.

    Attributes:
        source_mismatch: Mean onset mismatch on the source tasks, in the summary's ``onset_unit``.
        source_early: Source runs whose first accepted level comes before the first recovered one;
            or source checkpoints that are accepted before it, as ``ties`` says.
        source_late: Source runs whose first accepted level comes after it; or source checkpoints
            that are recovered and rejected.
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


@dataclass(frozen=True, repr=False, eq=False)
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


@dataclass(frozen=True, repr=False, eq=False)
class Choice(Record):
    """A pair of thresholds that some split chose.

    Attributes:
        rows_below_ir: Checkpoints of the family whose relative IR passes.
        rows_accepted: Checkpoints of the family that pass both.
    """

    t_ir: float
    t_sr: float
    splits: int
    rows_below_ir: int
    rows_accepted: int
    family: str


@dataclass(frozen=True, repr=False, eq=False)
class FamilyMean(Record):
    """Averages over the splits of one model family.

    Attributes:
        single_source: Over the splits with one source task.
        several_sources: Over the splits with more; None with two tasks.
    """

    family: str
    single_source: SplitMean
    several_sources: SplitMean | None


@dataclass(frozen=True, repr=False, eq=False)
class ThresholdSummary(Record):
    """The answer of the threshold study.

    Thresholds are chosen in each model family by itself; rows that name none are one family.

    Attributes:
        choices: Most frequent first, family by family.
        families: Averages over the splits of each family.
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


def _of(family: str, name: str) -> str:
    return f"{family} {name}".strip()


def shown(summary: ThresholdSummary) -> Iterator[str | Listing]:
    """Lists where tasks recover, what each split chose, and the averages."""
    family = (("family", "family"),) * any(mean.family for mean in summary.families)
    yield from _recovery(summary, family)
    yield Listing(
        summary.splits,
        (
            *family,
            ("chosen on", lambda split: " + ".join(split.source)),
            ("t_IR", "t_ir", "g"),
            ("t_SR", "t_sr", "g"),
            ("BA", "balanced_accuracy", ".3f"),
            ("precision", "precision", ".3f"),
            ("recall", "recall", ".3f"),
            ("onset off by, worst", lambda s: f"{s.mismatch:.2g}, {s.worst_mismatch:g}"),
        ),
    )
    if summary.onset_unit == "levels":
        yield "onsets differ by levels, not by steps of the grid"
    for mean in summary.families:
        yield _mean(_of(mean.family, "one source task"), mean.single_source)
        if mean.several_sources is not None:
            yield _mean(_of(mean.family, "several source tasks"), mean.several_sources)
    tried = Counter(split.family for split in summary.splits)
    runs = Counter(run.family for run in summary.runs)
    for choice in summary.choices:
        pair = _of(choice.family, f"({choice.t_ir:g}, {choice.t_sr:g})")
        yield (
            f"{pair} chosen by {choice.splits} of {tried[choice.family]} splits; accepts "
            f"{choice.rows_accepted} of {len(summary.levels) * runs[choice.family]} checkpoints "
            f"({choice.rows_below_ir} by IR alone)"
        )


def _recovery(summary: ThresholdSummary, family: tuple[Any, ...]) -> Iterator[str | Listing]:
    yield Listing(
        summary.tasks,
        (
            *family,
            ("task", "task"),
            ("unaugmented", lambda task: f"{task.base_success:.1f}%"),
            ("loses", lambda task: task.loss.shown()),
            ("best", lambda task: f"{task.best_success:.1f}%"),
            ("at", "best_level", "g"),
            ("relative IR", "best_ir_rel", ".2f"),
            ("SR", lambda task: f"{task.base_sr:.2f} -> {task.best_sr:.2f}"),
            ("recovered levels", lambda task: _ranges(task.recovered_levels, summary.levels)),
        ),
    )
    yield "loses: points of success under the shift, unaugmented, over runs"
    for task in summary.tasks:
        if task.clean_rises and task.recovered_clean is not None:
            ends = "-".join(dict.fromkeys(f"{end:.1f}" for end in task.recovered_clean))
            yield (
                f"{_of(task.family, task.task)}: clean success rises too, from "
                f"{task.clean_success:.1f}% to {ends}% at the recovered levels, so recovery is not "
                "robustness alone"
            )
    if any(run.success_interval is not None for run in summary.runs):
        undecided = sum(len(run.undecided_levels) for run in summary.runs)
        of = f"{undecided} of {len(summary.runs) * (len(summary.levels) - 1)} augmented checkpoints"
        yield f"95 % intervals of success leave open whether {of} meet the criterion"
    held = [task for task in summary.tasks if task.different_label_distance is not None]
    if held:

        def distance(place: int, level: float) -> tuple[Any, ...]:
            return f"{level:g}", lambda task: task.different_label_distance[place], ".3g"

        levels = (distance(place, level) for place, level in enumerate(summary.levels))
        title = ("different-label distance", lambda task: _of(task.family, task.task))
        yield Listing(held, (title, *levels))


def _ranges(held: Sequence[float], levels: Sequence[float]) -> str:
    """Levels as ranges of neighbours in the grid, for example ``0.03-0.07``."""
    places = [levels.index(level) for level in held]
    starts = [f"{levels[place]:g}" for place in places if place - 1 not in places]
    ends = [f"{levels[place]:g}" for place in places if place + 1 not in places]
    pairs = zip(starts, ends, strict=True)
    return ", ".join("-".join(dict.fromkeys(pair)) for pair in pairs) or "-"


def _mean(name: str, mean: SplitMean) -> str:
    return (
        f"{name}: BA {mean.balanced_accuracy:.3f} "
        f"({mean.lowest_balanced_accuracy:.3f} to {mean.highest_balanced_accuracy:.3f}), "
        f"precision {cell(mean.precision, '.3f')}, recall {cell(mean.recall, '.3f')}, "
        f"onset mismatch {mean.mismatch:.2f}, worst {mean.worst_mismatch:g}"
    )


def draw(evidence: Evidence) -> Mapping[str, Figure]:
    """The sweep with the commonest thresholds, and the splits, of each family."""
    summary, figures = evidence.summary, {}
    for family, held in evidence.parameters.sweep(evidence.rows).by_family().items():
        mine = [split for split in summary.splits if split.family == family]
        commonest = next(choice for choice in summary.choices if choice.family == family)
        suffix = f"-{family}" if len(summary.families) > 1 else ""
        figures[f"sweep{suffix}"] = sweep(held, ThresholdPair(commonest.t_ir, commonest.t_sr))
        figures[f"splits{suffix}"] = splits(mine, summary.onset_unit)
    return figures


def sweep(held: TrainingSweep, thresholds: ThresholdPair) -> Figure:
    """Success, relative IR and SR over the levels, a column per task; recovered levels shaded."""
    tasks = held.by_task()
    columns = len(tasks)
    figure, axes = panels(columns, rows=3, height=1.35)
    half = min(np.diff(held.levels)) / 2
    for column, (task, runs) in enumerate(tasks.items()):
        success, ir, sr = (axes[row * columns + column] for row in range(3))
        success.set_title(task)
        for axis in (success, ir, sr):
            for level in np.array(held.levels)[recovered_levels(runs)]:
                shade: dict[str, Any] = {"color": hue(2), "alpha": 0.12, "linewidth": 0}
                axis.axvspan(level - half, level + half, **shade)
        noisy = np.stack([run.rows.success_noisy for run in runs])
        mean = _curve(success, held.levels, noisy, 0)
        reach = np.stack([mean - noisy.min(axis=0), noisy.max(axis=0) - mean])
        success.errorbar(held.levels, mean, reach, color=hue(0), linewidth=0, elinewidth=0.8)
        clean = float(np.mean([run.clean[0] for run in runs]))
        success.axhline(clean, color=SOFT, linewidth=0.8, linestyle="--")
        _curve(ir, held.levels, np.stack([run.ir_rel for run in runs]), 1)
        zero_line(ir, thresholds.ir)
        _curve(sr, held.levels, np.stack([run.rows.sr for run in runs]), 2)
        zero_line(sr, thresholds.sr)
        ir.set_ylim(bottom=0)
        sr.set_ylim(0, 1.05)
        sr.set_xlabel("augmentation level")
    for row, label in enumerate(("success (%)", "relative IR", "SR")):
        axes[row * columns].set_ylabel(label)
    return figure


def _curve(axis: Axes, levels: Sequence[float], runs: np.ndarray, index: int) -> np.ndarray:
    mean: np.ndarray = runs.mean(axis=0)
    axis.plot(levels, mean, color=hue(index), marker=marker(0), markersize=3)
    return mean


def splits(held: Sequence[Split], onset_unit: str = "grid steps") -> Figure:
    """A line per split: balanced accuracy, precision and recall, and onset mismatch."""
    figure, (left, right) = panels(2, width=3.3, height=0.19 * len(held) + 0.9)
    places = range(len(held), 0, -1)
    key: dict[str, Any] = {"loc": "lower left", "bbox_to_anchor": (0.0, 1.0)}
    for index, name in enumerate(("balanced_accuracy", "precision", "recall")):
        values = [getattr(split, name) for split in held]
        at = [pair for pair in zip(values, places, strict=True) if pair[0] is not None]
        look: dict[str, Any] = {"color": hue(index), "label": name.replace("_", " ")}
        left.plot(*zip(*at, strict=True), marker(index), markersize=4.5, **look)
    left.set_yticks(list(places), [" + ".join(split.source) for split in held])
    left.set_xlabel("on the other tasks")
    left.set_xlim(right=1.03)
    left.legend(ncols=3, columnspacing=0.8, **key)
    right.barh(places, [split.mismatch for split in held], color=hue(0), height=0.6, label="mean")
    worst = [split.worst_mismatch for split in held]
    right.plot(worst, places, "|", color=INK, markersize=8, label="worst")
    right.set_yticks(list(places), [f"{s.t_ir:g} / {s.t_sr:g}" for s in held])
    right.set_xlabel(f"onset mismatch ({onset_unit})")
    right.legend(ncols=2, **key)
    figure.supylabel("chosen on (left); thresholds of IR / SR (right)", fontsize=7, color=SOFT)
    return figure
