"""Selects thresholds on some tasks and tests them on the others: the paper's threshold study."""

from acpc_lab.studies.thresholds.study import STUDY, Split, ThresholdSummary, calibrated, splits
from acpc_lab.studies.thresholds.sweep import SweepRows, ThresholdParameters
