"""Prints a study's summary."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

from acpc_lab import studies
from acpc_lab.cli.render import columns, line, number, table
from acpc_lab.cli.table import Column
from acpc_lab.studies import CONTROLS

_CHECKPOINT = (Column("task", "task"), Column("run", "run"), Column("level", "level", "g"))


def show(evidence: studies.Evidence) -> None:
    """Prints the summary of a study."""
    line(evidence.study.question)
    _SHOWN[evidence.study.name](evidence.summary)


def _spread(spread: studies.Spread) -> str:
    """In percent, with the sample deviation over runs where there are several."""
    deviation = "" if math.isnan(spread.sd) else f" +- {100 * spread.sd:.1f}"
    return f"{100 * spread.mean:.1f}{deviation}%"


def _ranges(held: Sequence[float], levels: Sequence[float]) -> str:
    """Levels as ranges of neighbours in the grid, for example ``0.03-0.07``."""
    places = [levels.index(level) for level in held]
    starts = [place for place in places if place - 1 not in places]
    ends = [place for place in places if place + 1 not in places]
    shown = [
        f"{levels[start]:g}" if start == end else f"{levels[start]:g}-{levels[end]:g}"
        for start, end in zip(starts, ends, strict=True)
    ]
    return ", ".join(shown) or "-"


def _thresholds(summary: studies.ThresholdSummary) -> None:
    family = _family([mean.family for mean in summary.families])
    columns(
        summary.tasks,
        *family,
        ("task", "task"),
        ("unaugmented", lambda task: f"{task.base_success:.1f}%"),
        ("loses", lambda task: _points(task.loss)),
        ("best", lambda task: f"{task.best_success:.1f}%"),
        ("at", "best_level", "g"),
        ("relative IR", "best_ir_rel", ".2f"),
        ("SR", lambda task: f"{task.base_sr:.2f} -> {task.best_sr:.2f}"),
        ("recovered levels", lambda task: _ranges(task.recovered_levels, summary.levels)),
    )
    line("loses: points of success under the shift, unaugmented, over runs")
    for task in summary.tasks:
        if task.clean_rises and task.recovered_clean is not None:
            line(
                f"{_of(task.family, task.task)}: clean success rises too, from "
                f"{task.clean_success:.1f}% to {_between(*task.recovered_clean)}% at the recovered "
                "levels, so recovery is not robustness alone"
            )
    if any(run.success_interval is not None for run in summary.runs):
        undecided = sum(len(run.undecided_levels) for run in summary.runs)
        augmented = len(summary.runs) * (len(summary.levels) - 1)
        line(
            f"95 % intervals of success leave open whether {undecided} of {augmented} augmented "
            "checkpoints meet the criterion"
        )
    _different_labels(summary)
    _splits(summary, family)


def _family(names: Sequence[str]) -> list[Column]:
    """The column of the model family, where one is named."""
    return [Column("family", "family")] if any(names) else []


def _of(family: str, name: str) -> str:
    return f"{family} {name}" if family else name


def _points(spread: studies.Spread) -> str:
    deviation = "" if math.isnan(spread.sd) else f" +- {spread.sd:.1f}"
    return f"{spread.mean:.1f}{deviation}"


def _between(low: float, high: float) -> str:
    return f"{low:.1f}" if round(low, 1) == round(high, 1) else f"{low:.1f}-{high:.1f}"


def _different_labels(summary: studies.ThresholdSummary) -> None:
    held = [task for task in summary.tasks if task.different_label_distance is not None]
    if held:
        table(
            ["different-label distance", *(f"{level:g}" for level in summary.levels)],
            [
                [
                    _of(task.family, task.task),
                    *(number(value, ".3g") for value in task.different_label_distance or ()),
                ]
                for task in held
            ],
        )


def _splits(summary: studies.ThresholdSummary, family: Sequence[Column]) -> None:
    columns(
        summary.splits,
        *family,
        ("chosen on", lambda split: " + ".join(split.source)),
        ("t_IR", "t_ir", "g"),
        ("t_SR", "t_sr", "g"),
        ("BA", "balanced_accuracy", ".3f"),
        ("precision", "precision", ".3f"),
        ("recall", "recall", ".3f"),
        ("onset off by, worst", lambda s: f"{s.mismatch:.2g}, {s.worst_mismatch:g}"),
    )
    if summary.onset_unit == "levels":
        line("onsets differ by levels, not by steps of the grid")
    for mean in summary.families:
        _mean("one source task", mean.family, mean.single_source)
        if mean.several_sources is not None:
            _mean("several source tasks", mean.family, mean.several_sources)
    tried = Counter(split.family for split in summary.splits)
    for choice in summary.choices:
        line(
            _of(choice.family, f"({choice.t_ir:g}, {choice.t_sr:g}) chosen by {choice.splits} of ")
            + f"{tried[choice.family]} splits; accepts {choice.rows_accepted} of "
            f"{_checkpoints(summary, choice.family)} checkpoints ({choice.rows_below_ir} by IR "
            "alone)"
        )


def _checkpoints(summary: studies.ThresholdSummary, family: str) -> int:
    return len(summary.levels) * sum(run.family == family for run in summary.runs)


def _mean(name: str, family: str, mean: studies.SplitMean) -> None:
    line(
        f"{_of(family, name)}: BA {mean.balanced_accuracy:.3f} "
        f"({mean.lowest_balanced_accuracy:.3f} to {mean.highest_balanced_accuracy:.3f}), "
        f"precision {number(mean.precision, '.3f')}, recall {number(mean.recall, '.3f')}, "
        f"onset mismatch {mean.mismatch:.2f}, worst {mean.worst_mismatch:g}"
    )


def _shifts(summary: studies.ShiftSummary) -> None:
    columns(
        summary.pairs,
        *_family([pair.family for pair in summary.pairs]),
        ("task", "task"),
        ("run", "run"),
        ("shift", "shift"),
        ("S", "score", ".3f"),
        ("delta S", "delta_score", ".3f"),
        ("success gain", _gain),
        ("criterion", lambda pair: "met" if pair.better else "not met"),
        ("agrees", lambda p: "boundary" if p.boundary else "yes" if p.agrees else "no"),
    )
    line("S: the smaller of the margins to both thresholds; delta S: above the reference's S")
    rising = [pair for pair in summary.pairs if pair.clean_rises]
    if rising:
        named = ", ".join(dict.fromkeys(f"{pair.task} {pair.run}" for pair in rising))
        line(f"clean success rises too in {named}: the gain is not robustness alone")
    columns(
        summary.agreement,
        ("shift", "shift"),
        ("pairs", "pairs"),
        ("BA", "balanced_accuracy", ".3f"),
        ("precision", "precision", ".3f"),
        ("recall", "recall", ".3f"),
        ("Spearman", "spearman", ".3f"),
        ("boundary", "boundary"),
    )


def _gain(pair: studies.ShiftPair) -> str:
    """In points, with its 95 % interval where the rows tell episodes."""
    ends = "" if pair.gain_interval is None else " [{:+.0f}, {:+.0f}]".format(*pair.gain_interval)
    return f"{pair.success_gain:+.1f}{ends}"


def _drift(summary: studies.DriftSummary) -> None:
    table(
        ["task", "run", "Base", *(f"+{name}" for name in CONTROLS), "+ACPC", "wins"],
        [
            [
                cell.task,
                cell.run,
                number(cell.base, ".3f"),
                *(
                    number(value, ".3f") + (" *" if name == cell.selected else "")
                    for name, value in zip(CONTROLS, controls, strict=True)
                ),
                number(cell.acpc, ".3f"),
                f"{cell.wins}/{cell.folds}",
            ]
            for cell, controls in zip(summary.cells, summary.controls, strict=True)
        ],
    )
    line("out-of-group MAE of the error drift; * marks the control it is compared with")
    reduction = summary.reduction
    line(
        f"ACPC lowers it by {_spread(reduction.over_base)} against Base and by "
        f"{_spread(reduction.over_control)} against Base and control, over "
        f"{len(reduction.runs)} run(s); best in {reduction.improved} of {reduction.cells} cells"
    )
    line(
        f"bound |error drift| <= ACPC: {summary.bound_violations} violations in {summary.rows} "
        f"rows, largest ratio {summary.tightest:.3f}"
    )


def _planner(summary: studies.PlannerSummary) -> None:
    columns(
        summary.cells,
        ("test task", "task"),
        ("run", "run"),
        ("baseline MAE", "baseline", ".4f"),
        ("with the feature", "expanded", ".4f"),
    )
    line(
        f"the distance at the planner's horizon lowers the MAE of log(1 + regret) by "
        f"{_spread(summary.reduction)} over {len(summary.runs)} run(s); better in "
        f"{summary.improved} of {len(summary.cells)} cells"
    )
    line(
        f"{summary.changed:.1%} of {summary.rows} paired runs diverged, "
        f"{summary.certified:.1%} were certified, {summary.broken_certificates} "
        f"certificates broken; mean regret {summary.mean_regret:.4g}"
    )
    if summary.candidate_pairs is not None:
        line(
            f"bounds: {summary.bound_violations} violations in {summary.candidate_pairs} candidate "
            "pairs"
        )


def _geometry(summary: studies.GeometrySummary) -> None:
    columns(
        summary.spaces,
        *_CHECKPOINT,
        ("space", "space"),
        ("median r/NN", "median_ratio", ".2f"),
        ("r < NN", "below_nearest", ".1%"),
        ("fully disjoint", "disjoint", ".1%"),
    )


def _sensitivity(summary: studies.SensitivitySummary) -> None:
    method = Column("method", lambda item: item.method.replace("_", " "))
    columns(
        summary.checkpoints,
        *_CHECKPOINT,
        method,
        ("squared norm", "mean", ".4g"),
        ("standard error", "standard_error", ".2g"),
    )
    if summary.ratios:
        columns(
            summary.ratios,
            *_CHECKPOINT,
            method,
            ("over the unaugmented one", "ratio", ".4f"),
            ("standard error", "standard_error", ".4f"),
        )


def _horizons(summary: studies.HorizonSummary) -> None:
    at_horizon, at_quantile = summary.horizon, summary.quantile
    places = sorted(
        {
            (entry.horizon, entry.quantile)
            for entry in summary.entries
            if entry.horizon == at_horizon or entry.quantile == at_quantile
        }
    )
    ratios = {(e.task, e.horizon, e.quantile): e.ratio for e in summary.entries}
    tasks = dict.fromkeys(entry.task for entry in summary.entries)
    table(
        ["task", *(f"H{horizon} q{100 * quantile:g}" for horizon, quantile in places)],
        [[task, *(number(ratios.get((task, *at)), ".2f") for at in places)] for task in tasks],
    )
    line("IR over the unaugmented checkpoint's, median over runs; lower is a larger reduction")


def _clean_success(item: studies.CollapseLine) -> str:
    if item.success_clean is None:
        return "-"
    sd = "" if item.success_clean_sd is None else f" +- {item.success_clean_sd:.1f}"
    return f"{item.success_clean:.1f}{sd}%"


def _collapse(summary: studies.CollapseSummary) -> None:
    columns(
        summary.checkpoints,
        ("checkpoint", "checkpoint"),
        ("median latent distance", "median_latent_distance", ".4g"),
        ("raw IR", "ir_raw", ".3f"),
        ("SR", "sr", ".3f"),
        ("clean success", _clean_success),
        ("collapsed", lambda item: "yes" if item.collapsed else "no"),
    )
    line(f"raw IR alone prefers {summary.lowest_ir}" + (", which has collapsed" * summary.fooled))
    if summary.exposed is not None:
        line(f"SR {'exposes' if summary.exposed else 'does not expose'} the collapse")


_SHOWN: dict[str, Callable[[Any], None]] = {
    "thresholds": _thresholds,
    "shifts": _shifts,
    "drift": _drift,
    "planner": _planner,
    "geometry": _geometry,
    "sensitivity": _sensitivity,
    "horizons": _horizons,
    "collapse": _collapse,
}
