"""What evidence says of many statements at once."""

from acpc_lab.evidence.multiplicity import (
    FamilyWise,
    all_hold,
    any_holds,
    held_in_sequence,
    holm,
)

__all__ = ["FamilyWise", "all_hold", "any_holds", "held_in_sequence", "holm"]
