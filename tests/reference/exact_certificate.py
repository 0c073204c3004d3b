"""Certificates in exact integer arithmetic: the judge of the product's rounding analysis.

Every float64 is an integer times a power of two, so squared distances of a pool are exact integers
in one common unit. Square roots are enclosed by integer square roots at growing precision.
"""

import math
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from acpc.arrays import NDArray

Array = NDArray[np.float64]

PRECISIONS = (80, 600, 6000)
"""Fractional bits of the enclosures, tried in turn. Margins still undecided count as zero."""


def exponent_of(arrays: list[Array]) -> int:
    """The largest power of two that divides every entry, as an exponent."""
    values = np.concatenate([array.ravel() for array in arrays])
    mantissa, exponent = np.frexp(values[values != 0])
    return int(exponent.min()) - 53 if len(mantissa) else 0


def integers(array: Array, exponent: int) -> list[list[int]]:
    """Rows of ``array`` in units of ``2 ** exponent``."""
    mantissa, exponents = np.frexp(array)
    return [
        [int(m) << max(int(e), 0) if m else 0 for m, e in zip(row_m, row_e, strict=True)]
        for row_m, row_e in zip(
            np.ldexp(mantissa, 53).astype(object), exponents - 53 - exponent, strict=True
        )
    ]


def squared_distance(a: list[int], b: list[int]) -> int:
    return sum((p - q) ** 2 for p, q in zip(a, b, strict=True))


@dataclass(frozen=True)
class ExactPool:
    """Squared distances of one view in units of ``2 ** (2 * exponent)``."""

    clean: list[int]
    perturbed: list[int]
    displacement: list[int]
    exponent: int

    def elites(self, count: int) -> set[int] | None:
        """The clean top set, or None when a tie leaves it open."""
        return top_set(self.clean, count)

    def selection_survives(self, count: int) -> bool:
        """Whether both views have the same, untied, top set."""
        elites = self.elites(count)
        return elites is not None and elites == top_set(self.perturbed, count)

    def encloses(self, candidate: int, lower: float, upper: float) -> bool:
        """Whether ``lower <= C - b`` and ``C + b <= upper``, to 80 fractional bits."""
        bits = PRECISIONS[0]
        cost = self.clean[candidate]
        bound = math.isqrt(self.displacement[candidate] * cost << 2 * bits) + math.isqrt(
            self.displacement[candidate] * self.perturbed[candidate] << 2 * bits
        )
        scaled = cost << bits
        return Fraction(lower) <= self._value(scaled - bound, bits) and self._value(
            scaled + bound, bits
        ) <= Fraction(upper)

    def margin(self, elites: set[int]) -> tuple[Fraction, Fraction]:
        """Enclosure of min(C_j - C_i - b_j - b_i), tight enough to show its sign or zero."""
        low = high = 0
        for bits in PRECISIONS:
            low, high = self._enclosure(elites, bits)
            if low > 0 or high <= 0:
                return self._value(low, bits), self._value(high, bits)
        return Fraction(0), Fraction(0)

    def _enclosure(self, elites: set[int], bits: int) -> tuple[int, int]:
        lowest = [math.inf, math.inf]
        highest = [-math.inf, -math.inf]
        for j, (cost, other, moved) in enumerate(
            zip(self.clean, self.perturbed, self.displacement, strict=True)
        ):
            bound = math.isqrt(moved * cost << 2 * bits) + math.isqrt(moved * other << 2 * bits)
            scaled = cost << bits
            if j in elites:
                highest = [max(highest[0], scaled + bound), max(highest[1], scaled + bound + 2)]
            else:
                lowest = [min(lowest[0], scaled - bound - 2), min(lowest[1], scaled - bound)]
        return int(lowest[0] - highest[1]), int(lowest[1] - highest[0])

    def _value(self, scaled: int, bits: int) -> Fraction:
        return Fraction(scaled) * Fraction(2) ** (2 * self.exponent - bits)


def top_set(costs: list[int], count: int) -> set[int] | None:
    """Indices of the ``count`` lowest costs, or None when a tie leaves the set open."""
    order = sorted(range(len(costs)), key=costs.__getitem__)
    if costs[order[count - 1]] == costs[order[count]]:
        return None
    return set(order[:count])


def exact_pools(clean: Array, perturbed: Array, goal: Array) -> list[ExactPool]:
    """One exact pool per view; ``clean`` (J, d), ``perturbed`` (views, J, d), ``goal`` (d,)."""
    exponent = exponent_of([clean, perturbed, goal])
    x = integers(clean, exponent)
    (g,) = integers(goal[None], exponent)
    costs = [squared_distance(row, g) for row in x]
    pools = []
    for view in perturbed:
        y = integers(view, exponent)
        pools.append(
            ExactPool(
                clean=costs,
                perturbed=[squared_distance(row, g) for row in y],
                displacement=[squared_distance(a, b) for a, b in zip(x, y, strict=True)],
                exponent=exponent,
            )
        )
    return pools
