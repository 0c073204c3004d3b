"""The paper's studies: rows in, a typed summary, figures and a bundle out. No GPU, no server.

A row holds one measurement; every number of a summary is computed from rows alone, so that it can
be checked again wherever the rows are. Needs NumPy; figures and t-SNE need the lab's extras.
"""

from acpc_lab.studies import bundle
from acpc_lab.studies.base import Evidence, LevelRows, Parameters, Study, gathered
from acpc_lab.studies.bundle import STUDIES, verify
from acpc_lab.studies.figures import Listing
from acpc_lab.studies.measuring import (
    Ask,
    CheckpointRows,
    MeasuringProgress,
    MeasuringTask,
    StudyCheckpoint,
    measure,
    read_checkpoints,
)
from acpc_lab.studies.paper import PAPER_ROWS
from acpc_lab.studies.shifts import ShiftRows, chosen_elsewhere
from acpc_lab.studies.statistics import gain_interval, success_interval
from acpc_lab.studies.thresholds import SweepRows, calibrated
