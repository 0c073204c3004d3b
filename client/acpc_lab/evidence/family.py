"""Decides many cells at once: p-values corrected for their number, and one error for many epochs.

What each procedure promises, and why, is in docs/statistics.md.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from statistics import NormalDist

from acpc_client import Evidence, EvidenceOptions, Outcome


class Gate(StrEnum):
    """Which verdict decides: of the numbers as they are, or the confident one."""

    POINT = "point"
    CONFIDENT = "confident"


class Correction(StrEnum):
    """How p-values of many statements are corrected for their number, named as in R's p.adjust.

    ``HOLM`` bounds the chance of any wrong statement, however they depend. ``BH`` (Benjamini and
    Hochberg 1995) and ``BY`` (Benjamini and Yekutieli 2001) bound the expected share of wrong ones
    among those made: where statements depend positively, and however they depend.
    """

    HOLM = "holm"
    BH = "bh"
    BY = "by"
    NONE = "none"

    @property
    def of_share(self) -> bool:
        """Whether it bounds the share of wrong statements instead of the chance of any."""
        return self in (Correction.BH, Correction.BY)


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


def benjamini_hochberg(p_values: Sequence[float]) -> list[float]:
    """Adjusted p-values of Benjamini and Hochberg (1995), in the order given.

    Of the hypotheses with one of at most 0.05, at most 0.05 are expected to be true (0 where there
    are none), if those that are true are independent of the others or depend on them positively
    (PRDS; Benjamini and Yekutieli 2001). None rises when a p-value of the family falls.
    """
    adjusted, least = [1.0] * len(p_values), 1.0
    largest_first = sorted(range(len(p_values)), key=p_values.__getitem__, reverse=True)
    for place, rank in zip(largest_first, range(len(p_values), 0, -1), strict=True):
        least = min(least, len(p_values) / rank * p_values[place])
        adjusted[place] = least
    return adjusted


def benjamini_yekutieli(p_values: Sequence[float]) -> list[float]:
    """The same times 1 + 1/2 + ... + 1/n (Benjamini and Yekutieli 2001): however they depend."""
    dependence = sum(1 / rank for rank in range(1, len(p_values) + 1))
    return [min(1.0, dependence * p) for p in benjamini_hochberg(p_values)]


_ADJUSTED = {
    Correction.HOLM: holm,
    Correction.BH: benjamini_hochberg,
    Correction.BY: benjamini_yekutieli,
}


def all_hold(p_values: Sequence[float]) -> float:
    """p-value of "every one of these holds": the largest (Berger 1982), without correction."""
    return max(p_values, default=1.0)


def any_holds(p_values: Sequence[float]) -> float:
    """p-value of "at least one of these holds": the smallest times their number (Bonferroni)."""
    return min(1.0, len(p_values) * min(p_values, default=math.inf))


def wilson(successes: int, trials: int, confidence: float = 0.95) -> tuple[float, float]:
    """Wilson's score interval (1927) of the probability of a success, without correction."""
    z = NormalDist().inv_cdf(0.5 + confidence / 2)
    rate = successes / trials
    centre = (rate + z * z / (2 * trials)) / (1 + z * z / trials)
    spread = math.sqrt(rate * (1 - rate) / trials + (z / (2 * trials)) ** 2)
    half = z * spread / (1 + z * z / trials)
    low = 0.0 if successes == 0 else centre - half
    return low, 1.0 if successes == trials else centre + half


@dataclass(frozen=True)
class Sureness:
    """Confident verdict of a cell, or of all cells of a checkpoint, within its family.

    Attributes:
        alone: The confident outcome by itself; None: not measured, or without evidence.
        outcome: The same, corrected for the family; ``alone`` where that was not asked for.
        p_passed: Adjusted p-value against "does not pass".
        p_failed: Adjusted p-value against "passes".
    """

    alone: Outcome | None
    outcome: Outcome | None
    p_passed: float
    p_failed: float


@dataclass(frozen=True)
class Family:
    """Cells that are judged together. A cell without evidence may still turn out either way.

    Cells of one confidence share its error, which is corrected for their number; those of another,
    as another epoch of a training run, have an error of their own, and the errors add up. A cell
    without evidence counts among those of every confidence.

    Attributes:
        cells: What is known of each cell; references, which cannot pass, are no members.
        method: How the statements are corrected for their number.
    """

    cells: Sequence[Evidence | None]
    method: Correction = Correction.HOLM

    @property
    def confidence(self) -> float:
        """Confidence in all statements together, uncorrected in each by itself; 1 without any.

        Where the share of wrong ones is bounded, what is left of them at least, as is expected.
        """
        errors = {1 - cell.sure for cell in self.cells if cell is not None}
        return 1 - (max(errors, default=0.0) if self.method is Correction.NONE else sum(errors))

    def each(self) -> list[Sureness]:
        """Judges each cell among all."""
        alone = [None if cell is None else cell.confident_outcome for cell in self.cells]
        return self._judged(alone, *self._p_values(), [(place,) for place in range(len(alone))])

    def everywhere(self, groups: Sequence[Sequence[int]]) -> list[Sureness]:
        """Which groups of cells pass as a whole, and which fail somewhere.

        A group holds the places of its cells, for example of a checkpoint's shifts.
        """
        passed, failed = self._p_values()
        whole = [all_hold([passed[place] for place in group]) for group in groups]
        broken = [any_holds([failed[place] for place in group]) for group in groups]
        alone = [
            self._whole([self.cells[place] for place in group], p <= self._level(group))
            for group, p in zip(groups, broken, strict=True)
        ]
        return self._judged(alone, whole, broken, groups)

    def _p_values(self) -> tuple[list[float], list[float]]:
        """Against "does not pass" and against "passes"; 1 where nothing is known."""
        found = [(1.0, 1.0) if cell is None else _p_values(cell) for cell in self.cells]
        return [passed for passed, _ in found], [failed for _, failed in found]

    def _level(self, group: Sequence[int]) -> float:
        """The smallest error in a group; 0 where nothing is known."""
        cells = (self.cells[place] for place in group)
        return min((1 - cell.sure for cell in cells if cell is not None), default=0.0)

    def _judged(
        self,
        alone: Sequence[Outcome | None],
        passed: Sequence[float],
        failed: Sequence[float],
        groups: Sequence[Sequence[int]],
    ) -> list[Sureness]:
        """Statements of groups of cells: those of one level are corrected for their number."""
        if self.method is Correction.NONE:
            return [Sureness(*cell) for cell in zip(alone, alone, passed, failed, strict=True)]
        found = [Sureness(None, None, 1.0, 1.0)] * len(alone)
        levels, adjust = [self._level(group) for group in groups], _ADJUSTED[self.method]
        for level in set(levels) - {0.0}:
            together = [place for place, its in enumerate(levels) if its in (level, 0.0)]
            p_values = [adjust([of[place] for place in together]) for of in (passed, failed)]
            for place, p_passed, p_failed in zip(together, *p_values, strict=True):
                own = alone[place]
                against = {Outcome.PASSED: p_passed, Outcome.FAILED: p_failed}
                lost = own is not None and against.get(own, 0.0) > level
                outcome = Outcome.UNDECIDED if lost else own
                found[place] = Sureness(own, outcome, p_passed, p_failed)
        return found

    @staticmethod
    def _whole(cells: Sequence[Evidence | None], fails: bool) -> Outcome | None:
        if fails:
            return Outcome.FAILED
        if any(cell is None for cell in cells):
            return None
        outcomes = {cell.confident_outcome for cell in cells if cell is not None}
        if Outcome.DOES_NOT_FIT in outcomes:
            return Outcome.DOES_NOT_FIT
        agreed = outcomes in ({Outcome.PASSED}, {Outcome.INCONCLUSIVE})
        return outcomes.pop() if agreed else Outcome.UNDECIDED


def _p_values(cell: Evidence) -> tuple[float, float]:
    """Returns a cell's p-values; after several looks, the smallest of p / share of the error.

    At most a share p of such jobs gives so small a value, whichever look it comes from (Bonferroni
    with the weights of the looks).
    """
    if cell.looks is None:
        return cell.p_passed, cell.p_failed
    error, looks = 1 - cell.looks.confidence, cell.looks.looks
    passed = [look.p_passed * error / look.passing for look in looks if look.passing > 0]
    failed = [look.p_failed * error / look.failing for look in looks if look.failing > 0]
    return min(1.0, *passed, 1.0), min(1.0, *failed, 1.0)


# About as many epochs as a run has.
ERROR_HALFLIFE = 100
_IN_TAILS = 4
_FINEST = 100_000


def at_epoch(options: EvidenceOptions, epoch: int | None, halflife: int | None) -> EvidenceOptions:
    """The options at the share of the error that one epoch has.

    By epoch k, counted from 1, alpha k / (k + halflife) of the error alpha is spent, so that all
    epochs together have alpha and half of it is spent by the halflife (a spending function, Lan and
    DeMets 1983; with a halflife of 1 the error of epoch k is alpha / (k (k + 1))). The number of an
    epoch decides, not how many were scored, so a run that is resumed goes on where it was. Errors
    that the bootstrap cannot resolve are raised to the least it can: with the defaults from epoch
    400 on, and what was left over lasts until epoch 800.

    Args:
        options: Confidence over all epochs, and what else the evidence is made of.
        epoch: Its number, from 0; None: it is not one of many.
        halflife: Epochs over which half of the error is spent; None: each has all of it.
    """
    if epoch is None or halflife is None:
        return options
    alpha, k = 1 - options.confidence, epoch + 1
    error = alpha * halflife / ((halflife + k) * (halflife + k - 1))
    error = max(error, 2 / (_FINEST - 1))
    resamples = min(max(options.resamples, math.ceil(_IN_TAILS / error)), _FINEST)
    return replace(options, confidence=1 - error, resamples=resamples)
