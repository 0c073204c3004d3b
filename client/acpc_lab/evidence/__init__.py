"""Judges many cells at once by their evidence; compares two scores; finds a severity's limit."""

from acpc_lab.evidence.differences import ScoreComparison, compare_scores
from acpc_lab.evidence.family import (
    ERROR_HALFLIFE,
    Correction,
    Family,
    Gate,
    Sureness,
    all_hold,
    any_holds,
    at_epoch,
    benjamini_hochberg,
    benjamini_yekutieli,
    holm,
    wilson,
)
from acpc_lab.evidence.limits import LimitPoint, SeverityLimit, limits
