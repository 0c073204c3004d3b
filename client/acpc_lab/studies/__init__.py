"""The paper's studies: rows in, a typed summary, figures and a bundle out. No GPU, no server.

A row holds one measurement; every number of a summary is computed from rows alone, so that it can
be checked again wherever the rows are. Needs NumPy; figures, Parquet and t-SNE need the lab's
extras.
"""

from acpc_lab.studies import bundle
from acpc_lab.studies.base import Parameters, Spread
from acpc_lab.studies.bundle import verify
from acpc_lab.studies.catalogue import STUDIES, Evidence, chosen_elsewhere
from acpc_lab.studies.checkpoints import (
    CheckpointRows,
    StudyCheckpoint,
    collapse_rows,
    horizon_rows,
    read_checkpoints,
    require_one_per_run,
    study_arrays,
    study_rows,
)
from acpc_lab.studies.collapse import CollapseLine, CollapseParameters, CollapseSummary
from acpc_lab.studies.drift import CONTROLS, DriftParameters, DriftSummary
from acpc_lab.studies.geometry import GeometryParameters, GeometrySummary, embedded
from acpc_lab.studies.horizons import HorizonParameters, HorizonSummary
from acpc_lab.studies.measuring import (
    Ask,
    AskScore,
    AskStudy,
    Measured,
    MeasuringProgress,
    MeasuringTask,
    measure,
)
from acpc_lab.studies.paper import PAPER_ROWS
from acpc_lab.studies.planner import PlannerParameters, PlannerSummary
from acpc_lab.studies.recovery import SweepRows
from acpc_lab.studies.sensitivity import SensitivityParameters, SensitivitySummary
from acpc_lab.studies.shifts import ShiftPair, ShiftParameters, ShiftRows, ShiftSummary
from acpc_lab.studies.success import gain_interval, success_interval
from acpc_lab.studies.threshold_summary import SplitMean, ThresholdSummary
from acpc_lab.studies.thresholds import ThresholdParameters, calibrated
