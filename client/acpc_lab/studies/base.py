"""Defines what studies share: parameters, small statistics, and a ridge fitted on other groups."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Self, TypeVar, get_origin, get_type_hints

import numpy as np
from acpc.contract import Record
from acpc_client.errors import ArgumentError
from numpy.typing import NDArray

from acpc_lab.tables import groups as groups_of


@dataclass(frozen=True)
class Parameters:
    """Base of the parameters of a study; each default is the paper's."""

    def to_dict(self) -> dict[str, Any]:
        """Plain values."""
        return dataclasses.asdict(self)

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Self:
        """Reads ``to_dict`` after a journey through JSON.

        Raises ArgumentError: A parameter is unknown or out of range.
        """
        hints = get_type_hints(cls)
        for name in values:
            if name not in hints:
                raise ArgumentError(name, f"is no parameter; there are {', '.join(hints)}")
        return cls(
            **{
                name: tuple(value) if get_origin(hints[name]) is tuple else value
                for name, value in values.items()
            }
        )

    def decide(self, name: str, undecided: object, defaults: Mapping[str, Any]) -> None:
        """Gives a parameter that is left open the value of the reading, ``self.reading``.

        Raises ArgumentError: There is no such reading.
        """
        reading = getattr(self, "reading", "")
        self.require("reading", reading in defaults, f"one of {', '.join(defaults)}")
        if getattr(self, name) == undecided:
            object.__setattr__(self, name, defaults[reading])

    def require(self, name: str, fits: bool, wanted: str) -> None:
        """Rejects a parameter that does not fit.

        Raises ArgumentError: With the value found and the value wanted.
        """
        if not fits:
            raise ArgumentError(name, f"found {getattr(self, name)!r}, wanted {wanted}")


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


Item = TypeVar("Item")


def records(kind: Callable[..., Item], *columns: NDArray[Any]) -> tuple[Item, ...]:
    """A record per row of the columns, which are its fields in order."""
    rows = zip(*(column.tolist() for column in columns), strict=True)
    return tuple(kind(*values) for values in rows)


def or_none(column: NDArray[np.float64]) -> NDArray[np.object_]:
    """The column with None for NaN, for a record."""
    values = column.astype(object)
    values[np.isnan(column)] = None
    return values


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

        Raises ValueError: There is nothing to decide.
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


Matrix = NDArray[np.float64]


def held_out_errors(
    features: Sequence[Matrix], target: Matrix, held_out: NDArray[np.generic], alpha: float
) -> Matrix:
    """Absolute error of every row, predicted by a ridge fitted on the rows of other groups.

    Features are standardised with mean and population standard deviation of the rows the ridge is
    fitted on; a feature that is constant there becomes zero. The intercept is not penalised.

    Args:
        features: One (n,) array per feature.
        target: What is predicted, (n,).
        held_out: Group of each row, (n,).
        alpha: Penalty, in the sum of squares ||y - Xw - c||^2 + alpha ||w||^2.

    Returns:
        |prediction - target|, (n,).

    Raises ArgumentError: There are fewer than two groups.
    """
    design = np.stack(features, axis=1)  # (n, features)
    folds = groups_of(held_out.tolist())
    if len(folds) < 2:
        raise ArgumentError("groups", f"found {len(folds)}, wanted at least 2 to leave one out")
    errors = np.empty(len(target))
    for rows in folds.values():
        rest = np.ones(len(target), dtype=bool)
        rest[rows] = False
        errors[rows] = np.abs(
            _predict(design[rest], target[rest], design[rows], alpha) - target[rows]
        )
    return errors


def _predict(design: Matrix, target: Matrix, unseen: Matrix, alpha: float) -> Matrix:
    centre, scale = design.mean(axis=0), design.std(axis=0)
    # Rounding leaves a constant column with a spread of a few units in the last place.
    scale = np.where(scale <= 10 * np.finfo(float).eps * np.abs(centre), np.inf, scale)
    standard = (design - centre) / scale
    offset = target.mean()
    gram = standard.T @ standard + alpha * np.eye(design.shape[1])
    weights = np.linalg.solve(gram, standard.T @ (target - offset))
    predicted: Matrix = (unseen - centre) / scale @ weights + offset
    return predicted
