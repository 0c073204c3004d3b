"""Small statistics that several studies share, in float64 or exactly."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from acpc_client import Record
from numpy.typing import NDArray

SLACK = 1e-9
"""Percentage points by which rounding may miss a cutoff: 3 of 5 is 60 % in any arithmetic."""


@dataclass(frozen=True, repr=False, eq=False)
class Spread(Record):
    """Mean over training runs and sample standard deviation, which one run does not have."""

    mean: float
    sd: float

    @classmethod
    def of(cls, values: Iterable[float]) -> Spread:
        """Of one value per run."""
        array = np.array(list(values), dtype=np.float64)
        return cls(float(array.mean()), float(array.std(ddof=1)) if len(array) > 1 else math.nan)


@dataclass(frozen=True)
class Confusion:
    """Decisions against labels."""

    true_positive: int
    false_positive: int
    false_negative: int
    true_negative: int

    @classmethod
    def of(cls, accepted: NDArray[np.bool_], positive: NDArray[np.bool_]) -> Confusion:
        """Counts what was accepted against what is positive."""
        return cls(
            int((accepted & positive).sum()),
            int((accepted & ~positive).sum()),
            int((~accepted & positive).sum()),
            int((~accepted & ~positive).sum()),
        )

    @property
    def precision(self) -> Fraction | None:
        """Positives among the accepted; None when nothing is accepted."""
        return _ratio(self.true_positive, self.true_positive + self.false_positive)

    @property
    def recall(self) -> Fraction | None:
        """Accepted among the positives; None when nothing is positive."""
        return _ratio(self.true_positive, self.true_positive + self.false_negative)

    @property
    def specificity(self) -> Fraction | None:
        """Rejected among the negatives; None when nothing is negative."""
        return _ratio(self.true_negative, self.true_negative + self.false_positive)

    @property
    def balanced_accuracy(self) -> Fraction:
        """Mean of recall and specificity, or the one of them that is defined.

        Raises:
            ValueError: There is nothing to decide.
        """
        mean = mean_defined([self.recall, self.specificity])
        if mean is None:
            raise ValueError("balanced accuracy of nothing")
        return mean


def _ratio(part: int, whole: int) -> Fraction | None:
    return Fraction(part, whole) if whole else None


def mean_defined(values: Sequence[Fraction | None]) -> Fraction | None:
    """Mean of the values that are defined; None when none is."""
    defined = [value for value in values if value is not None]
    return sum(defined, Fraction(0)) / len(defined) if defined else None


def as_float(value: Fraction | None) -> float | None:
    """The nearest float64, None for None."""
    return None if value is None else float(value)


def average_ranks(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Ranks from 1; equal values share the mean of their ranks."""
    _, group, counts = np.unique(values, return_inverse=True, return_counts=True)
    last = np.cumsum(counts)
    ranks: NDArray[np.float64] = (last - (counts - 1) / 2)[group]
    return ranks


def spearman(left: NDArray[np.float64], right: NDArray[np.float64]) -> float:
    """Rank correlation with average ranks; NaN when either side is constant or has one value."""
    x, y = average_ranks(left), average_ranks(right)
    x, y = x - x.mean(), y - y.mean()
    scale = math.sqrt(float(x @ x) * float(y @ y))
    return float(x @ y) / scale if scale else math.nan
