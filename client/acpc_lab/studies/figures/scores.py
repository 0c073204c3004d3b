"""Draws the studies of scores: thresholds, shifts, horizons and the collapse control."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from acpc_lab.plotting import INK, SOFT, hue, light, marker, panels, swatch, zero_line
from acpc_lab.studies.catalogue import Evidence
from acpc_lab.studies.collapse import CollapseLine
from acpc_lab.studies.horizons import IrReduction
from acpc_lab.studies.recovery import (
    ThresholdPair,
    TrainingSweep,
    read_training_sweep,
    recovered_levels,
)
from acpc_lab.studies.shifts import ShiftPair
from acpc_lab.studies.threshold_summary import Split

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


def draw_thresholds(evidence: Evidence) -> Mapping[str, Figure]:
    """The figures of a threshold study."""
    rows, summary, parameters = evidence.rows, evidence.summary, evidence.parameters
    read = read_training_sweep(rows, recovery=parameters.recovery, clean_loss=parameters.clean_loss)
    figures: dict[str, Figure] = {}
    for family, held in read.by_family().items():
        mine = [split for split in summary.splits if split.family == family]
        commonest = next(choice for choice in summary.choices if choice.family == family)
        suffix = f"-{family}" if len(summary.families) > 1 else ""
        figures[f"sweep{suffix}"] = sweep(held, ThresholdPair(commonest.t_ir, commonest.t_sr))
        figures[f"splits{suffix}"] = splits(mine, summary.onset_unit)
    return figures


def sweep(held: TrainingSweep, thresholds: ThresholdPair) -> Figure:
    """Success, relative IR and SR over the levels, a column per task; recovered levels shaded."""
    tasks = held.by_task()
    figure, axes = panels(len(tasks), rows=3, height=1.35)
    columns = len(tasks)
    for column, (task, runs) in enumerate(tasks.items()):
        success, ir, sr = (axes[row * columns + column] for row in range(3))
        success.set_title(task)
        recovered = recovered_levels(runs)
        for axis in (success, ir, sr):
            _shade(axis, held.levels, recovered.tolist())
        _curve(success, held.levels, [run.noisy for run in runs], 0, spread=True)
        clean = float(np.mean([run.clean[0] for run in runs]))
        success.axhline(clean, color=SOFT, linewidth=0.8, linestyle="--")
        _curve(ir, held.levels, [run.ir_rel for run in runs], 1)
        zero_line(ir, thresholds.ir)
        _curve(sr, held.levels, [run.sr for run in runs], 2)
        zero_line(sr, thresholds.sr)
        ir.set_ylim(bottom=0)
        sr.set_ylim(0, 1.05)
        sr.set_xlabel("augmentation level")
    for row, label in enumerate(("success (%)", "relative IR", "SR")):
        axes[row * columns].set_ylabel(label)
    return figure


def _shade(axis: Axes, levels: Sequence[float], recovered: Sequence[bool]) -> None:
    half = min(np.diff(levels)) / 2
    for level, held in zip(levels, recovered, strict=True):
        if held:
            axis.axvspan(level - half, level + half, color=hue(2), alpha=0.12, linewidth=0)


def _curve(
    axis: Axes,
    levels: Sequence[float],
    runs: Sequence[np.ndarray],
    index: int,
    *,
    spread: bool = False,
) -> None:
    values = np.stack(runs)
    mean = values.mean(axis=0)
    axis.plot(levels, mean, color=hue(index), marker=marker(0), markersize=3)
    if spread:
        reach = np.stack([mean - values.min(axis=0), values.max(axis=0) - mean])
        axis.errorbar(levels, mean, reach, color=hue(index), linewidth=0, elinewidth=0.8)


def splits(held: Sequence[Split], onset_unit: str = "grid steps") -> Figure:
    """A line per split: balanced accuracy, precision and recall, and onset mismatch."""
    figure, (left, right) = panels(2, width=3.3, height=0.19 * len(held) + 0.9)
    places = range(len(held), 0, -1)
    for index, name in enumerate(("balanced_accuracy", "precision", "recall")):
        values = [getattr(split, name) for split in held]
        at = [
            (value, place) for value, place in zip(values, places, strict=True) if value is not None
        ]
        left.plot(
            *zip(*at, strict=True),
            marker(index),
            color=hue(index),
            markersize=4.5,
            label=name.replace("_", " "),
        )
    left.set_yticks(list(places), [" + ".join(split.source) for split in held])
    left.set_xlabel("on the other tasks")
    left.set_xlim(right=1.03)
    left.legend(loc="lower left", bbox_to_anchor=(0.0, 1.0), ncols=3, columnspacing=0.8)
    right.barh(places, [split.mismatch for split in held], color=hue(0), height=0.6, label="mean")
    right.plot(
        [split.worst_mismatch for split in held],
        places,
        "|",
        color=INK,
        markersize=8,
        label="worst",
    )
    right.set_yticks(list(places), [f"{s.t_ir:g} / {s.t_sr:g}" for s in held])
    right.set_xlabel(f"onset mismatch ({onset_unit})")
    right.legend(loc="lower left", bbox_to_anchor=(0.0, 1.0), ncols=2)
    figure.supylabel("chosen on (left); thresholds of IR / SR (right)", fontsize=7, color=SOFT)
    return figure


GAIN, DELTA = "change of success (points)", "change of the screen score S"


def shift_bars(pairs: Sequence[ShiftPair]) -> Figure:
    """Means over runs by task and shift: behaviour on the left, the diagnostic on the right."""
    figure, (left, right) = panels(2, width=3.0)
    _shift_bars(left, pairs, "success_gain", GAIN)
    _shift_bars(right, pairs, "delta_score", DELTA)
    left.legend()
    return figure


def _shift_bars(axis: Axes, pairs: Sequence[ShiftPair], field: str, label: str) -> None:
    tasks = list(dict.fromkeys(pair.task for pair in pairs))
    shifts = list(dict.fromkeys(pair.shift for pair in pairs))
    width = 0.8 / len(shifts)
    for index, shift in enumerate(shifts):
        for place, task in enumerate(tasks):
            values = [
                getattr(pair, field) for pair in pairs if (pair.task, pair.shift) == (task, shift)
            ]
            if values:
                at = place + (index - (len(shifts) - 1) / 2) * width
                named = None if place else shift
                axis.bar(at, np.mean(values), 0.9 * width, color=hue(index), label=named)
                axis.plot([at] * len(values), values, ".", color=INK, markersize=3)
    axis.set_xticks(range(len(tasks)), tasks)
    axis.set_ylabel(label)
    zero_line(axis)


def shift_scatter(pairs: Sequence[ShiftPair]) -> Figure:
    """Every pair; filled when the sign of delta S tells what the behaviour does."""
    figure, (axis,) = panels(1, width=4.2, height=2.8)
    shifts = list(dict.fromkeys(pair.shift for pair in pairs))
    tasks = list(dict.fromkeys(pair.task for pair in pairs))
    for pair in pairs:
        colour = hue(tasks.index(pair.task))
        axis.plot(
            pair.delta_score,
            pair.success_gain,
            marker(shifts.index(pair.shift)),
            color=colour,
            markerfacecolor=colour if pair.agrees else "none",
            markersize=5,
        )
    keys = [swatch(task, hue(index)) for index, task in enumerate(tasks)]
    for index, shift in enumerate(shifts):
        keys += axis.plot([], [], marker(index), color=INK, label=shift)
    keys.append(swatch("hollow: sign disagrees", INK, "none"))
    zero_line(axis)
    axis.axvline(0, color="grey", linewidth=0.8, linestyle=":", zorder=0)
    axis.set_xlabel(DELTA)
    axis.set_ylabel(GAIN)
    axis.legend(handles=keys, loc="upper left", bbox_to_anchor=(1.0, 1.0))
    return figure


def horizon_ratios(entries: Sequence[IrReduction], horizon: int, quantile: float) -> Figure:
    """Left: by horizon at one quantile. Right: by quantile at one horizon."""
    figure, (left, right) = panels(2, width=2.9, sharey=True)
    for index, task in enumerate(dict.fromkeys(entry.task for entry in entries)):
        mine = [entry for entry in entries if entry.task == task]
        look: dict[str, Any] = {"color": hue(index), "marker": marker(index), "markersize": 4}
        across = sorted((e.horizon, e.ratio) for e in mine if e.quantile == quantile)
        if across:
            left.plot(*zip(*across, strict=True), label=task, **look)
        along = sorted((e.quantile, e.ratio) for e in mine if e.horizon == horizon)
        if along:
            right.plot(*zip(*along, strict=True), **look)
    left.set_xlabel(f"horizon H, at q = {quantile:g}")
    left.set_ylabel("IR over the unaugmented one's")
    right.set_xlabel(f"quantile q, at H = {horizon}")
    left.set_xticks(sorted({entry.horizon for entry in entries}))
    right.set_xticks(sorted({entry.quantile for entry in entries}))
    left.set_ylim(0, 1.08 * max(entry.ratio for entry in entries))
    left.legend(loc="lower left", bbox_to_anchor=(0.0, 1.0), ncols=4, columnspacing=0.8)
    return figure


COLLAPSE_PANELS = (
    ("ir_raw", "raw IR"),
    ("sr", "SR"),
    ("median_latent_distance", "median latent distance"),
    ("success_clean", "clean success (%)"),
)


def collapse_bars(lines: Sequence[CollapseLine]) -> Figure:
    """A bar per checkpoint in each panel; collapsed ones in the colour of failure."""
    shown = [
        panel
        for panel in COLLAPSE_PANELS
        if all(getattr(line, panel[0]) is not None for line in lines)
    ]
    names = 0.065 * max(len(line.checkpoint) for line in lines)  # inches
    width, height = 1.8 + names / len(shown), 0.25 * len(lines) + 0.9
    figure, axes = panels(len(shown), width=width, height=height, sharey=True)
    colours = [light("fail") if line.collapsed else light("pass") for line in lines]
    for axis, (field, title) in zip(axes, shown, strict=True):
        drawn = axis.barh(
            range(len(lines)), [getattr(line, field) for line in lines], color=colours
        )
        axis.bar_label(drawn, fmt="%.3g", fontsize=6, padding=2)
        axis.margins(x=0.2)
        axis.set_title(title)
    # The names stand once, on the left; first come first from the top.
    axes[0].set_yticks(range(len(lines)), [line.checkpoint for line in lines])
    axes[0].invert_yaxis()
    told = (("collapsed", "fail"), ("not collapsed", "pass"))
    keys = [swatch(name, light(colour)) for name, colour in told]
    figure.legend(handles=keys, loc="outside upper right", ncols=2)
    return figure
