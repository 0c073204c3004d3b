"""Fig. full-sweep-diagnostics in the paper, and how chosen thresholds do on other tasks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from acpc_lab.plotting import INK, SOFT, hue, marker, panels, zero_line
from acpc_lab.studies.catalogue import Evidence
from acpc_lab.studies.recovery import Sweep, SweepRows, read_sweep, recovered_levels
from acpc_lab.studies.screen import Pair
from acpc_lab.studies.threshold_summary import Split, ThresholdSummary
from acpc_lab.studies.thresholds import ThresholdParameters

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


def draw(
    evidence: Evidence[SweepRows, ThresholdParameters, ThresholdSummary],
) -> Mapping[str, Figure]:
    """The figures of a threshold study."""
    rows, summary, parameters = evidence.rows, evidence.summary, evidence.parameters
    read = read_sweep(rows, recovery=parameters.recovery, clean_loss=parameters.clean_loss)
    commonest = summary.choices[0]
    return {
        "sweep": sweep(read, Pair(commonest.t_ir, commonest.t_sr)),
        "splits": splits(summary.splits),
    }


def sweep(held: Sweep, thresholds: Pair) -> Figure:
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


def splits(held: Sequence[Split]) -> Figure:
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
    left.set_yticks(list(places), [_name(split) for split in held])
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
    right.set_xlabel("onset mismatch (grid levels)")
    right.legend(loc="lower left", bbox_to_anchor=(0.0, 1.0), ncols=2)
    figure.supylabel("chosen on (left); thresholds of IR / SR (right)", fontsize=7, color=SOFT)
    return figure


def _name(split: Split) -> str:
    return " + ".join(split.source)
