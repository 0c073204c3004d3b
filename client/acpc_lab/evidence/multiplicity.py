"""Corrects p-values for the number of statements that are made at once.

What each procedure promises, and why, is in docs/statistics.md.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from enum import StrEnum


class FamilyWise(StrEnum):
    """How the chance of any wrong statement in a family of them is kept."""

    HOLM = "holm"
    NONE = "none"


def holm(p_values: Sequence[float]) -> list[float]:
    """Holm's adjusted p-values (1979), in the order given; valid however the tests depend.

    At most one in twenty families has any true hypothesis with an adjusted p-value of at most
    0.05, and so at any other level. None rises when a p-value of the family falls.
    """
    adjusted = [1.0] * len(p_values)
    largest = 0.0
    for rank, place in enumerate(sorted(range(len(p_values)), key=p_values.__getitem__)):
        largest = max(largest, min(1.0, (len(p_values) - rank) * p_values[place]))
        adjusted[place] = largest
    return adjusted


def all_hold(p_values: Sequence[float]) -> float:
    """p-value of "every one of these holds": the largest (Berger 1982), without correction."""
    return max(p_values, default=1.0)


def any_holds(p_values: Sequence[float]) -> float:
    """p-value of "at least one of these holds": the smallest times their number (Bonferroni)."""
    return min(1.0, len(p_values) * min(p_values, default=math.inf))


def held_in_sequence(sequences: Sequence[Sequence[float]], level: float) -> list[int]:
    """How many p-values from the start of each sequence hold; any wrong one with chance ``level``.

    Within a sequence, whose order must not depend on the data, each is tested at the whole share
    of the sequence until one does not hold (Maurer, Hothorn and Lehmacher 1995). Sequences share
    the level equally, and one that holds to its end hands its share to the others (Bretz, Maurer,
    Brannath and Posch 2009). Sequences of length one make this Holm's procedure.
    """
    whole = [p <= level for p in holm([all_hold(sequence) for sequence in sequences])]
    share = level / max(1, whole.count(False))
    return [
        len(sequence)
        if held
        else next((place for place, p in enumerate(sequence) if p > share), len(sequence))
        for sequence, held in zip(sequences, whole, strict=True)
    ]
