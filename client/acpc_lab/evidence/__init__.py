"""Judges many cells at once by their evidence; compares two scores; finds a severity's limit."""

from acpc_lab.evidence.differences import ScoreComparison, compare_scores
from acpc_lab.evidence.family import (
    Correction,
    Family,
    Sureness,
    all_hold,
    any_holds,
    benjamini_hochberg,
    benjamini_yekutieli,
    holm,
    wilson,
)
from acpc_lab.evidence.limits import LimitPoint, SeverityLimit, limit_numbers, limits
from acpc_lab.evidence.spending import ERROR_HALFLIFE, at_epoch
