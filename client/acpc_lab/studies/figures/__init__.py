"""The studies' figures, in the paper's manner and in the report's colours.

``DRAW`` holds, by the study's name, what draws its figures by their names. They need the lab's
extras and are deterministic.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from acpc_lab.studies.figures.models import (
    draw_geometry,
    draw_sensitivity,
    drift_errors,
    envelope,
    numbers,
    planner_errors,
    sensitivities,
    sensitivity_ratios,
)
from acpc_lab.studies.figures.scores import (
    collapse_bars,
    draw_thresholds,
    horizon_ratios,
    shift_bars,
    shift_scatter,
    splits,
)

DRAW: dict[str, Callable[[Any], Mapping[str, Any]]] = {
    "thresholds": draw_thresholds,
    "shifts": lambda evidence: {
        "bars": shift_bars(evidence.summary.pairs),
        "pairs": shift_scatter(evidence.summary.pairs),
    },
    "drift": lambda evidence: {"errors": drift_errors(evidence.summary.cells)},
    "planner": lambda evidence: {
        "errors": planner_errors(evidence.summary.cells, evidence.summary.reduction)
    },
    "geometry": draw_geometry,
    "sensitivity": draw_sensitivity,
    "horizons": lambda evidence: {
        "ratios": horizon_ratios(
            evidence.summary.entries, evidence.summary.horizon, evidence.summary.quantile
        )
    },
    "collapse": lambda evidence: {"checkpoints": collapse_bars(evidence.summary.checkpoints)},
}
