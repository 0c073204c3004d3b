"""Computes what several studies need: spreads, confusion, ridges, success rates, intervals."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from statistics import mean
from typing import Any, TypeVar

import numpy as np
from acpc.arrays import NDArray
from acpc.contract import Record, columns_of
from acpc_client.errors import ArgumentError

from acpc_lab.evidence import wilson
from acpc_lab.tables import Numbers, Texts, groups

Mask = NDArray[np.bool_]
CLEAN_SEEDS = "the same by evaluation seed, for example 95 98 96"
EPISODES = "episodes behind each success rate, for intervals"
Item = TypeVar("Item")
Ratio = TypeVar("Ratio", Fraction, float)
SLACK = 1e-9
"""Percentage points by which rounding may miss a cutoff: 3 of 5 is 60 % in any arithmetic."""


class Spread(Record):
    """Mean over training runs and sample standard deviation, which one run does not have."""

    mean: float
    sd: float

    @classmethod
    def of(cls, values: Iterable[float]) -> Spread:
        """Summarises one value per run."""
        array = np.array(list(values), dtype=np.float64)
        return cls(float(array.mean()), float(array.std(ddof=1)) if len(array) > 1 else math.nan)

    def shown(self, scale: float = 1, unit: str = "") -> str:
        """Writes it with one digit, as ``15.2 +- 2.0%``; a deviation only where there is one."""
        deviation = "" if math.isnan(self.sd) else f" +- {scale * self.sd:.1f}"
        return f"{scale * self.mean:.1f}{deviation}{unit}"


def records(kind: Callable[..., Item], *columns: NDArray[Any]) -> tuple[Item, ...]:
    """A record per row of the columns, which are its fields in order."""
    rows = zip(*(column.tolist() for column in columns), strict=True)
    return tuple(kind(*values) for values in rows)


def grouped(items: Sequence[Item], *names: str) -> dict[tuple[Any, ...], list[Item]]:
    """The items of each combination of these attributes, as they first occur."""
    keys = groups(*columns_of(items, *names).values())
    return {key: [items[index] for index in held] for key, held in keys.items()}


def _ratio(part: int, whole: int) -> Fraction | None:
    return Fraction(part, whole) if whole else None


@dataclass(frozen=True)
class Confusion:
    """Decisions against labels. A ratio of nothing is None."""

    true_positive: int
    false_positive: int
    false_negative: int
    true_negative: int

    @classmethod
    def of(cls, accepted: Mask, positive: Mask) -> Confusion:
        """Counts what was accepted against what is positive."""
        cells = itertools.product((accepted, ~accepted), (positive, ~positive))
        return cls(*(int((taken & real).sum()) for taken, real in cells))

    @property
    def precision(self) -> Fraction | None:
        """Positives among the accepted."""
        return _ratio(self.true_positive, self.true_positive + self.false_positive)

    @property
    def recall(self) -> Fraction | None:
        """Accepted among the positives."""
        return _ratio(self.true_positive, self.true_positive + self.false_negative)

    @property
    def balanced_accuracy(self) -> Fraction:
        """Mean of recall and specificity, or the one of them that is defined.

        Raises ValueError: There is nothing to decide.
        """
        specificity = _ratio(self.true_negative, self.true_negative + self.false_positive)
        return mean(ratio for ratio in (self.recall, specificity) if ratio is not None)


def mean_defined(values: Sequence[Ratio | None]) -> Ratio | None:
    """Mean of the values that are defined; None when none is."""
    defined = [value for value in values if value is not None]
    return sum(defined[1:], defined[0]) / len(defined) if defined else None


def as_float(value: Fraction | None) -> float | None:
    """The nearest float64, None for None."""
    return None if value is None else float(value)


def spearman(left: Numbers, right: Numbers) -> float:
    """Rank correlation with average ranks; NaN when either side is constant or has one value."""

    def ranks(values: Numbers) -> Numbers:
        _, group, counts = np.unique(values, return_inverse=True, return_counts=True)
        found = (np.cumsum(counts) - (counts - 1) / 2)[group]
        centred: Numbers = found - found.mean()
        return centred

    x, y = ranks(left), ranks(right)
    scale = math.sqrt(float(x @ x) * float(y @ y))
    return float(x @ y) / scale if scale else math.nan


def held_out_errors(
    features: Sequence[Numbers], target: Numbers, held_out: NDArray[np.generic], alpha: float
) -> Numbers:
    """Absolute error (n,) of every row, predicted by a ridge fitted on the rows of other groups.

    Features, (n,) each, are standardised with mean and population standard deviation of the rows
    the ridge is fitted on; one that is constant there becomes zero. It minimises ||y - Xw - c||^2 +
    alpha ||w||^2, so that the intercept is not penalised.

    Raises ArgumentError: There are fewer than two groups.
    """
    design = np.stack(features, axis=1)  # (n, features)
    folds = groups(held_out.tolist())
    if len(folds) < 2:
        raise ArgumentError("groups", f"found {len(folds)}, wanted at least 2 to leave one out")
    errors = np.empty(len(target))
    for rows in folds.values():
        seen, wanted = np.delete(design, rows, axis=0), np.delete(target, rows)
        centre, scale = seen.mean(axis=0), seen.std(axis=0)
        # Rounding leaves a constant column with a spread of a few units in the last place.
        scale = np.where(scale <= 10 * np.finfo(float).eps * np.abs(centre), np.inf, scale)
        standard, offset = (seen - centre) / scale, wanted.mean()
        gram = standard.T @ standard + alpha * np.eye(design.shape[1])
        weights = np.linalg.solve(gram, standard.T @ (wanted - offset))
        predicted = (design[rows] - centre) / scale @ weights + offset
        errors[rows] = np.abs(predicted - target[rows])
    return errors


def clean_success(success: Numbers, seeds: Texts) -> tuple[Numbers, Numbers]:
    """Clean success of each row in %, and its deviation over evaluation seeds.

    The deviation is that of the population of seeds, as in the paper's table of SIGReg weights,
    whose 99.3 +- 0.5 % are 99, 99 and 100 of 100 episodes. ``seeds`` has the success of each,
    separated by spaces, in rows that have none in ``success``. NaN where a row has neither.

    Raises ArgumentError: A row has both, or holds something that is no percentage.
    """
    found, deviation = success.copy(), np.full(len(success), np.nan)
    for row, text in enumerate(seeds.tolist()):
        if text:
            if not np.isnan(success[row]):
                wrong = f"row {row + 1}: has success_clean too; give one of them"
                raise ArgumentError("success_clean_seeds", wrong)
            try:
                values = np.array([float(part) for part in text.split()])
            except ValueError:
                values = np.array([np.nan])
            if not ((values >= 0) & (values <= 100)).all():
                wrong = f"row {row + 1}: found {text!r}, wanted percentages separated by spaces"
                raise ArgumentError("success_clean_seeds", wrong)
            found[row] = values.mean()
            deviation[row] = values.std() if len(values) > 1 else np.nan
    return found, deviation


CONFIDENCE = 0.95
Interval = tuple[float, float]
"""Lower and upper end, in % or in percentage points."""


def success_interval(
    percent: float, episodes: float, confidence: float = CONFIDENCE
) -> Interval | None:
    """Wilson's score interval of a success rate, in %; None when ``episodes`` is NaN.

    It speaks of further episodes of the same checkpoint, not of further training runs.

    Raises ArgumentError: So many episodes cannot have this rate.
    """
    if math.isnan(episodes):
        return None
    successes = percent * episodes / 100
    if abs(successes - round(successes)) > 0.0005 * episodes + 1e-6:  # printed to 0.1 %
        wrong = f"{percent:g} % of {episodes:g} episodes is no whole number of successes"
        raise ArgumentError("episodes", wrong)
    low, high = wilson(round(successes), int(episodes), confidence)
    return 100 * low, 100 * high


def success_intervals(percents: Numbers, episodes: Numbers) -> tuple[Interval, ...] | None:
    """``success_interval`` of every rate; None unless all have episodes.

    Raises ArgumentError: So many episodes cannot have such a rate.
    """
    found = list(map(success_interval, percents.tolist(), episodes.tolist()))
    held = tuple(interval for interval in found if interval is not None)
    return held if len(held) == len(found) else None


def gain_interval(
    success: float, reference: float, episodes: float, confidence: float = CONFIDENCE
) -> Interval | None:
    """Newcombe's interval of the difference of two success rates, in points.

    Built from the two Wilson intervals. Both rates are of ``episodes`` episodes; that the two
    planners met the same starts and goals is not used, so the interval is wide rather than narrow.
    None when ``episodes`` is NaN. Raises ArgumentError: So many episodes cannot have such a rate.
    """
    ours = success_interval(success, episodes, confidence)
    theirs = success_interval(reference, episodes, confidence)
    if ours is None or theirs is None:
        return None
    gain = success - reference
    down = math.hypot(success - ours[0], theirs[1] - reference)
    up = math.hypot(ours[1] - success, reference - theirs[0])
    return gain - down, gain + up
