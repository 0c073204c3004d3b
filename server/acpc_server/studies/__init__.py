"""The measurements behind the paper's studies, one checkpoint a job."""

from acpc_server.studies.job import StudyMeasuring
from acpc_server.studies.plan import (
    AnyStudy,
    DriftStudy,
    GeometryStudy,
    PlannerStudy,
    SensitivityStudy,
    StudyPlan,
)
from acpc_server.studies.table import Arrays, Table
