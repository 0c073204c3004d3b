"""The measurements behind the paper's studies, one checkpoint a job."""

from acpc_server.diagnostics.studies.measuring import StudyMeasuring
from acpc_server.diagnostics.studies.plan import (
    AnyStudy,
    DriftStudy,
    GeometryStudy,
    PlannerStudy,
    SensitivityStudy,
    StudyPlan,
)

__all__ = [
    "AnyStudy",
    "DriftStudy",
    "GeometryStudy",
    "PlannerStudy",
    "SensitivityStudy",
    "StudyMeasuring",
    "StudyPlan",
]
