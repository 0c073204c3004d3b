"""How a study's summary looks on a terminal."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from acpc_lab.cli.render import line, table
from acpc_lab.studies import (
    CONTROLS,
    AnyEvidence,
    CollapseSummary,
    DriftSummary,
    GeometrySummary,
    HorizonSummary,
    PlannerSummary,
    SensitivitySummary,
    ShiftSummary,
    SplitMean,
    Spread,
    ThresholdSummary,
)


def show(evidence: AnyEvidence) -> None:
    """Prints the summary of a study."""
    line(evidence.study.question)
    _SHOWN[evidence.study.name](evidence.summary)


def _number(value: float | None, digits: int = 3) -> str:
    return "-" if value is None or math.isnan(value) else f"{value:.{digits}f}"


def _percent(value: float) -> str:
    return "-" if math.isnan(value) else f"{100 * value:.1f}%"


def _spread(spread: Spread) -> str:
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


def _thresholds(summary: ThresholdSummary) -> None:
    table(
        ["task", "unaugmented", "best", "at", "relative IR", "SR", "recovered levels"],
        [
            [
                task.task,
                f"{task.base_success:.1f}%",
                f"{task.best_success:.1f}%",
                f"{task.best_level:g}",
                _number(task.best_ir_rel, 2),
                f"{task.base_sr:.2f} -> {task.best_sr:.2f}",
                _ranges(task.recovered_levels, summary.levels),
            ]
            for task in summary.tasks
        ],
    )
    table(
        ["chosen on", "t_IR", "t_SR", "BA", "precision", "recall", "onset off by, worst"],
        [
            [
                " + ".join(split.source),
                f"{split.t_ir:g}",
                f"{split.t_sr:g}",
                _number(split.balanced_accuracy),
                _number(split.precision),
                _number(split.recall),
                f"{split.mismatch:.1f}, {split.worst_mismatch:.0f}",
            ]
            for split in summary.splits
        ],
    )
    _mean("one source task", summary.single_source)
    if summary.several_sources is not None:
        _mean("several source tasks", summary.several_sources)
    for choice in summary.choices:
        line(
            f"({choice.t_ir:g}, {choice.t_sr:g}) chosen by {choice.splits} of "
            f"{len(summary.splits)} splits; accepts {choice.rows_accepted} of "
            f"{summary.checkpoints} checkpoints ({choice.rows_below_ir} by IR alone)"
        )


def _mean(name: str, mean: SplitMean) -> None:
    line(
        f"{name}: BA {mean.balanced_accuracy:.3f} ({mean.lowest_balanced_accuracy:.3f} to "
        f"{mean.highest_balanced_accuracy:.3f}), precision {_number(mean.precision)}, recall "
        f"{_number(mean.recall)}, onset mismatch {mean.mismatch:.2f}, worst "
        f"{mean.worst_mismatch:.0f}"
    )


def _shifts(summary: ShiftSummary) -> None:
    table(
        ["task", "run", "shift", "S", "delta S", "success gain", "criterion", "agrees"],
        [
            [
                pair.task,
                pair.run,
                pair.shift,
                _number(pair.score),
                _number(pair.delta_score),
                f"{pair.success_gain:+.1f}",
                "met" if pair.better else "not met",
                "boundary" if pair.boundary else "yes" if pair.agrees else "no",
            ]
            for pair in summary.pairs
        ],
    )
    table(
        ["shift", "pairs", "BA", "precision", "recall", "Spearman", "boundary"],
        [
            [
                item.shift,
                str(item.pairs),
                _number(item.balanced_accuracy),
                _number(item.precision),
                _number(item.recall),
                _number(item.spearman),
                str(item.boundary),
            ]
            for item in summary.agreement
        ],
    )


def _drift(summary: DriftSummary) -> None:
    columns = ["task", "run", "Base", *(f"+{name}" for name in CONTROLS), "+ACPC", "wins"]
    table(
        columns,
        [
            [
                cell.task,
                cell.run,
                _number(cell.base),
                *(
                    _number(value) + (" *" if name == cell.selected else "")
                    for name, value in zip(CONTROLS, controls, strict=True)
                ),
                _number(cell.acpc),
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


def _planner(summary: PlannerSummary) -> None:
    table(
        ["test task", "run", "baseline MAE", "with ACPC_H"],
        [
            [cell.task, cell.run, _number(cell.baseline, 4), _number(cell.expanded, 4)]
            for cell in summary.cells
        ],
    )
    line(
        f"ACPC at the planner's horizon lowers the MAE of log(1 + regret) by "
        f"{_spread(summary.reduction)} over {len(summary.runs)} run(s); better in "
        f"{summary.improved} of "
        f"{len(summary.cells)} cells"
    )
    line(
        f"{_percent(summary.changed)} of {summary.rows} paired runs diverged, "
        f"{_percent(summary.certified)} were certified, {summary.broken_certificates} "
        f"certificates broken; mean regret {summary.mean_regret:.4g}"
    )


def _geometry(summary: GeometrySummary) -> None:
    table(
        ["task", "run", "level", "space", "median r/NN", "r < NN", "fully disjoint"],
        [
            [
                item.task,
                item.run,
                f"{item.level:g}",
                item.space,
                _number(item.median_ratio, 2),
                _percent(item.below_nearest),
                _percent(item.disjoint),
            ]
            for item in summary.spaces
        ],
    )


def _sensitivity(summary: SensitivitySummary) -> None:
    table(
        ["task", "run", "level", "method", "squared norm", "standard error"],
        [
            [
                item.task,
                item.run,
                f"{item.level:g}",
                item.method.replace("_", " "),
                f"{item.mean:.4g}",
                f"{item.standard_error:.2g}",
            ]
            for item in summary.checkpoints
        ],
    )
    if summary.ratios:
        table(
            ["task", "run", "level", "method", "over the unaugmented one", "standard error"],
            [
                [
                    item.task,
                    item.run,
                    f"{item.level:g}",
                    item.method.replace("_", " "),
                    _number(item.ratio, 4),
                    _number(item.standard_error, 4),
                ]
                for item in summary.ratios
            ],
        )


def _horizons(summary: HorizonSummary) -> None:
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
        [[task, *(_number(ratios.get((task, *at)), 2) for at in places)] for task in tasks],
    )
    line("IR over the unaugmented checkpoint's, median over runs; lower is a larger reduction")


def _collapse(summary: CollapseSummary) -> None:
    table(
        ["checkpoint", "median latent distance", "raw IR", "SR", "clean success", "collapsed"],
        [
            [
                item.checkpoint,
                f"{item.median_latent_distance:.4g}",
                _number(item.ir_raw),
                _number(item.sr),
                "-" if item.success_clean is None else f"{item.success_clean:.1f}%",
                "yes" if item.collapsed else "no",
            ]
            for item in summary.checkpoints
        ],
    )
    line(f"raw IR alone prefers {summary.lowest_ir}" + (", which has collapsed" * summary.fooled))
    told = {True: "SR exposes the collapse", False: "SR does not expose the collapse", None: ""}
    if summary.exposed is not None:
        line(told[summary.exposed])


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
