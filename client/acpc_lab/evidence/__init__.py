"""Judges many cells at once by their evidence."""

from acpc_lab.evidence.family import (
    Family,
    FamilyWise,
    Sureness,
    all_hold,
    any_holds,
    holm,
    wilson,
)
from acpc_lab.evidence.limits import limit_numbers, limits
from acpc_lab.evidence.spending import ERROR_HALFLIFE, at_epoch
