"""Says where tasks and runs of a training sweep recover: records, listing and figure."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from acpc.contract import Record

from acpc_lab.plotting import SOFT, hue, marker, panels, zero_line
from acpc_lab.studies.figures import Listing, family_column
from acpc_lab.studies.statistics import SLACK, Interval, Spread, success_intervals
from acpc_lab.studies.thresholds.sweep import Run, TrainingSweep

if TYPE_CHECKING:
    from matplotlib.figure import Figure


class TaskRecovery(Record):
    """Where a task recovers; means are over its runs, success is in %.

    Attributes:
        base_success: Of the unaugmented checkpoint under the shift; ``clean_success``: clean.
        best_level: Level with the highest mean success under the shift; the lowest of equals.
        recovered_levels: Levels at which two of three runs meet the success-rate criterion.
        loss: Points that the unaugmented checkpoint loses under the shift, over runs.
        recovered_clean: Lowest and highest clean success of the recovered augmented levels.
        clean_rises: One exceeds the unaugmented's by ``clean_gain`` points or more: recovery cannot
            be attributed to robustness alone.
        different_label_distance: Median of different-label pairs by level; None: a row lacks it.
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


class RunRecovery(Record):
    """Which levels of one run meet the success-rate criterion; success is by level, in %.

    Attributes:
        required_success: What the criterion asks for under the shift; ``required_clean``: clean.
        loss: Points of success that the unaugmented checkpoint loses under the shift.
        clean_success_sd: Over evaluation seeds, in points; None: no row has success by seed.
        success_interval: 95 % interval of success under the shift; None: rows lack episodes.
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


def of_task(task: str, runs: Sequence[Run], clean_gain: float) -> TaskRecovery:
    """Where a task recovers; ``clean_gain`` as in ``ThresholdParameters``."""
    levels = runs[0].rows.level
    by_run = [(x.rows.success_noisy, x.clean, x.ir_rel, x.rows.sr) for x in runs]
    noisy, clean, ir_rel, sr = np.mean(by_run, axis=0)
    apart = np.mean([run.rows.different_label_distance for run in runs], axis=0)
    best = int(np.argmax(noisy >= noisy.max() - SLACK))
    wanted = math.ceil(2 * len(runs) / 3)  # two of three
    recovered = np.sum([run.recovered for run in runs], axis=0) >= wanted
    after = clean[recovered & (levels > 0)]
    return TaskRecovery(
        task=task,
        base_success=float(noisy[0]),
        best_level=float(levels[best]),
        best_success=float(noisy[best]),
        best_ir_rel=float(ir_rel[best]),
        base_sr=float(sr[0]),
        best_sr=float(sr[best]),
        clean_success=float(clean[0]),
        recovered_levels=tuple(levels[recovered].tolist()),
        family=runs[0].family,
        loss=Spread.of(run.loss for run in runs),
        recovered_clean=(float(after.min()), float(after.max())) if after.size else None,
        clean_rises=bool((after >= clean[0] + clean_gain - SLACK).any()),
        different_label_distance=None if np.isnan(apart).any() else tuple(apart.tolist()),
    )


def of_run(run: Run) -> RunRecovery:
    """What the criterion asks for in a run, and which levels have it."""
    levels = run.rows.level
    noisy = success_intervals(run.rows.success_noisy, run.rows.episodes)
    clean = success_intervals(run.clean, run.rows.episodes)
    undecided = np.zeros(len(levels), dtype=bool)
    if noisy is not None and clean is not None:
        cutoffs = np.reshape(run.required, (2, 1, 1)) - SLACK
        each = np.array([noisy, clean]) >= cutoffs
        reached = each[0] & each[1]  # (levels, ends)
        undecided = ~reached[:, 0] & reached[:, 1] & (levels > 0)  # both rates may, but need not
    return RunRecovery(
        task=run.task,
        run=run.run,
        required_success=run.required[0],
        required_clean=run.required[1],
        recovered_levels=tuple(levels[run.recovered].tolist()),
        family=run.family,
        loss=run.loss,
        clean_success=tuple(run.clean.tolist()),
        clean_success_sd=None if np.isnan(run.clean_sd).all() else tuple(run.clean_sd.tolist()),
        success_interval=noisy,
        clean_success_interval=clean,
        undecided_levels=tuple(levels[undecided].tolist()),
    )


def shown(
    tasks: Sequence[TaskRecovery], runs: Sequence[RunRecovery], levels: Sequence[float]
) -> Iterator[str | Listing]:
    """Lists where tasks recover and what else changes, for the terminal."""
    columns = (
        *family_column(tasks),
        ("task", "task"),
        ("unaugmented", lambda task: f"{task.base_success:.1f}%"),
        ("loses", lambda task: task.loss.shown()),
        ("best", lambda task: f"{task.best_success:.1f}%"),
        ("at", "best_level", "g"),
        ("relative IR", "best_ir_rel", ".2f"),
        ("SR", lambda task: f"{task.base_sr:.2f} -> {task.best_sr:.2f}"),
        ("recovered levels", lambda task: _ranges(task.recovered_levels, levels)),
    )
    yield Listing(tasks, columns)
    yield "loses: points of success under the shift, unaugmented, over runs"
    for task in tasks:
        if task.clean_rises and task.recovered_clean is not None:
            ends = "-".join(dict.fromkeys(f"{end:.1f}" for end in task.recovered_clean))
            yield (
                f"{of_family(task, task.task)}: clean success rises too, from "
                f"{task.clean_success:.1f}% to {ends}% at the recovered levels, so recovery is not "
                "robustness alone"
            )
    if any(run.success_interval is not None for run in runs):
        undecided = sum(len(run.undecided_levels) for run in runs)
        of = f"{undecided} of {len(runs) * (len(levels) - 1)} augmented checkpoints"
        yield f"95 % intervals of success leave open whether {of} meet the criterion"
    held = [task for task in tasks if task.different_label_distance is not None]
    if held:
        title = ("different-label distance", lambda task: of_family(task, task.task))
        distances = (
            (f"{level:g}", lambda task, at=at: task.different_label_distance[at], ".3g")
            for at, level in enumerate(levels)
        )
        yield Listing(held, (title, *distances))


def of_family(item: Any, name: str) -> str:  # noqa: ANN401 - a record with a family
    """The name behind the item's model family, where it has one."""
    return f"{item.family} {name}".strip()


def _ranges(held: Sequence[float], levels: Sequence[float]) -> str:
    """Levels as ranges of neighbours in the grid, for example ``0.03-0.07``."""
    places = [levels.index(level) for level in held]
    starts = [f"{levels[place]:g}" for place in places if place - 1 not in places]
    ends = [f"{levels[place]:g}" for place in places if place + 1 not in places]
    pairs = zip(starts, ends, strict=True)
    return ", ".join("-".join(dict.fromkeys(pair)) for pair in pairs) or "-"


def curves(held: TrainingSweep, t_ir: float, t_sr: float) -> Figure:
    """Success, relative IR and SR over the levels, a column per task; recovered levels shaded."""
    tasks = held.by_task()
    columns = len(tasks)
    figure, axes = panels(columns, rows=3, height=1.35)
    half = min(np.diff(held.levels)) / 2
    shade: dict[str, Any] = {"color": hue(2), "alpha": 0.12, "linewidth": 0}
    for column, (task, runs) in enumerate(tasks.items()):
        recovered = of_task(task, runs, 0.0).recovered_levels
        by_row = np.stack([(x.rows.success_noisy, x.ir_rel, x.rows.sr) for x in runs], axis=1)
        for row, (axis, values) in enumerate(zip(axes[column::columns], by_row, strict=True)):
            for level in recovered:
                axis.axvspan(level - half, level + half, **shade)
            mean = values.mean(axis=0)
            axis.plot(held.levels, mean, color=hue(row), marker=marker(0), markersize=3)
        success, ir, sr = axes[column::columns]
        success.set_title(task)
        noisy, mean = by_row[0], by_row[0].mean(axis=0)
        reach = np.stack([mean - noisy.min(axis=0), noisy.max(axis=0) - mean])
        success.errorbar(held.levels, mean, reach, color=hue(0), linewidth=0, elinewidth=0.8)
        clean = float(np.mean([run.clean[0] for run in runs]))
        success.axhline(clean, color=SOFT, linewidth=0.8, linestyle="--")
        zero_line(ir, t_ir)
        zero_line(sr, t_sr)
        ir.set_ylim(bottom=0)
        sr.set_ylim(0, 1.05)
        sr.set_xlabel("augmentation level")
    for row, label in enumerate(("success (%)", "relative IR", "SR")):
        axes[row * columns].set_ylabel(label)
    return figure
