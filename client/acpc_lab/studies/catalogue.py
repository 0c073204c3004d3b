"""Lists the studies by name."""

from __future__ import annotations

from acpc_lab.studies import (
    collapse,
    drift,
    geometry,
    horizons,
    planner,
    sensitivity,
    shifts,
    thresholds,
)
from acpc_lab.studies.base import Study

_MODULES = (thresholds, shifts, drift, planner, geometry, sensitivity, horizons, collapse)
STUDIES: dict[str, Study] = {module.STUDY.name: module.STUDY for module in _MODULES}
