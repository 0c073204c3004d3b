"""The studies' figures, in the paper's manner and in the report's colours.

``DRAW`` holds, by the study's name, what draws its figures by their names. They need the lab's
extras and are deterministic.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from acpc_lab.studies.figures.models import (
    draw_drift,
    draw_geometry,
    draw_planner,
    draw_sensitivity,
    drift_errors,
    envelope,
    planner_errors,
    sensitivity_ratios,
)
from acpc_lab.studies.figures.scores import (
    collapse_bars,
    draw_collapse,
    draw_horizons,
    draw_shifts,
    draw_thresholds,
    horizon_ratios,
    shift_bars,
    shift_scatter,
    splits,
)

DRAW: dict[str, Callable[[Any], Mapping[str, Any]]] = {
    "thresholds": draw_thresholds,
    "shifts": draw_shifts,
    "drift": draw_drift,
    "planner": draw_planner,
    "geometry": draw_geometry,
    "sensitivity": draw_sensitivity,
    "horizons": draw_horizons,
    "collapse": draw_collapse,
}
