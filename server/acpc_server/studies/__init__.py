"""The measurements behind the paper's studies, one checkpoint a job."""

from acpc_server.studies.kind import StudyJobKind
from acpc_server.studies.spec import StudySpec, goal_offset
