"""What evidence says of many cells at once, and as columns of a table."""

from acpc_lab.evidence.columns import evidence_columns
from acpc_lab.evidence.family import Family, Sureness
from acpc_lab.evidence.multiplicity import (
    FamilyWise,
    all_hold,
    any_holds,
    held_in_sequence,
    holm,
)
from acpc_lab.evidence.proportions import wilson
from acpc_lab.evidence.spending import ERROR_HALFLIFE, at_epoch

__all__ = [
    "ERROR_HALFLIFE",
    "Family",
    "FamilyWise",
    "Sureness",
    "all_hold",
    "any_holds",
    "at_epoch",
    "evidence_columns",
    "held_in_sequence",
    "holm",
    "wilson",
]
