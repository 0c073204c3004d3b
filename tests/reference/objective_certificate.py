"""Certificates of costs of every kind, in wide and in exact arithmetic.

Written from the propositions in numerics/objectives.py alone. Most pools are judged with the 64
significant bits of ``numpy.longdouble`` (on x86): costs and bounds are sums of K products of values
that are not negative, each of a few more than 3 d roundings, so they are known to within the
relative error E = 16 (3 d + K + 8) eps, of which most is room; the rest goes to ``exact_margin``,
in fractions with roots enclosed at growing precision. The type's exponent reaches 2^-16445, so that
no square of a float64 underflows. Where it is no wider than float64 the error is infinite: nothing
is judged so.
"""

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
from acpc.arrays import NDArray
from acpc.contract import DistanceTerm, Norm, Objective

Array = NDArray[np.float64]
Wide = NDArray[np.longdouble]
Goals = tuple[Array, Array]
"""The goal (d,), and that under the view."""
EPS = np.finfo(np.longdouble).eps
PRECISIONS = (200, 2000)
"""Significant bits of the roots, tried in turn. Margins still undecided count as zero."""


def coefficients(term: DistanceTerm, horizon: int) -> list[Fraction]:
    """The weight of each step, times that of the term."""
    steps = term.step_weights or (*[0.0] * (horizon - 1), 1.0)
    return [Fraction(term.weight) * Fraction(step) for step in steps]


def coordinate_weights(term: DistanceTerm, width: int, mean: bool) -> list[Fraction]:
    """The weight of each coordinate; for the mean, they sum to 1."""
    weights = [Fraction(weight) for weight in term.coordinate_weights or [1.0] * width]
    return [weight / sum(weights) for weight in weights] if mean else weights


@dataclass(frozen=True)
class Asked:
    """An objective of pools of one shape, what is added to costs, and who is infeasible, (n, J)."""

    objective: Objective
    mean: bool
    added: NDArray[Any]
    infeasible: NDArray[np.bool_]

    @property
    def terms(self) -> tuple[DistanceTerm, ...]:
        return self.objective.terms or (DistanceTerm(),)


@dataclass(frozen=True)
class JudgedObjective:
    """Pools (n, J, H, d) under views (n, views, J, H, d).

    Attributes:
        costs: (n, J); infinite where infeasible.
        bounds: b_j, (n, views, J).
        error: How far bounds and margins may be off, (n, views).
        largest: Largest finite |C| + b of the pool, (n, views).
    """

    costs: Wide
    bounds: Wide
    error: Wide
    largest: Wide

    def margins(self, elites: NDArray[np.int64]) -> Wide:
        """min(C_j - C_i - b_j - b_i) for elite sets (n, k), to within ``error``; (n, views)."""
        chosen = np.zeros(self.costs.shape, bool)
        np.put_along_axis(chosen, elites, True, axis=1)
        chosen, costs = chosen[:, None], self.costs[:, None]
        lower = np.where(chosen, np.inf, costs - self.bounds).min(axis=-1)
        upper = np.where(chosen, costs + self.bounds, -np.inf).max(axis=-1)
        return np.where(np.isinf(upper), -np.inf, lower - np.where(np.isinf(upper), 0, upper))


def judge(
    clean: Array, perturbed: Array, goal: Array, moved: Array, asked: Asked
) -> JudgedObjective:
    """Costs and bounds of every pool and view, whose goals are ``moved``, (n, views, d)."""
    x, y, g, h = (part.astype(np.longdouble) for part in (clean, perturbed, goal, moved))
    (horizon, width), counted = clean.shape[-2:], 0
    costs: Wide = np.zeros(clean.shape[:2], np.longdouble)
    bounds: Wide = np.zeros(perturbed.shape[:3], np.longdouble)
    for term in asked.terms:
        weights = np.array([wide(w) for w in coordinate_weights(term, width, asked.mean)])
        for step, coefficient in enumerate(map(wide, coefficients(term, horizon))):
            if not coefficient:
                continue
            counted += 1
            ours, theirs = x[..., step, :], y[..., step, :]
            p = norm(ours - g[:, None], weights, term)
            q = norm(theirs - h[:, :, None], weights, term)
            r = norm(theirs - ours[:, None], weights, term)
            r = r + norm(h - g[:, None], weights, term)[..., None]
            costs = costs + coefficient * (p**2 if term.squared else p)
            bounds = bounds + coefficient * (r * (p[:, None] + q) if term.squared else r)
    costs = costs + asked.added.astype(np.longdouble)
    bounds = np.where(asked.infeasible[:, None], 0, bounds)
    size = costs + np.abs(asked.added)
    largest = np.where(asked.infeasible[:, None], 0, np.abs(size)[:, None] + bounds).max(axis=-1)
    relative = 16 * (3 * width + counted + 8) * EPS
    error = relative * (largest + np.abs(asked.added).max(axis=-1)[:, None])
    if np.finfo(np.float64).eps / 1024 < EPS:
        error = error * np.inf
    return JudgedObjective(np.where(asked.infeasible, np.inf, costs), bounds, error, largest)


def wide(value: Fraction) -> np.longdouble:
    """The nearest long double or one beside it: a quotient of two sums of float64 numbers."""
    scale = value.numerator.bit_length() - value.denominator.bit_length() - 70
    return np.ldexp(np.longdouble(str(round(value / Fraction(2) ** scale))), scale)


def norm(difference: Wide, weights: Wide, term: DistanceTerm) -> Wide:
    if term.norm is Norm.L1:
        return (np.abs(difference) * weights).sum(axis=-1)
    return np.sqrt((difference**2 * weights).sum(axis=-1))


def exact_added(
    objective: Objective, candidates: NDArray[np.float32], offsets: NDArray[np.float32]
) -> list[Fraction]:
    """What is added to the costs of one pool (J, H, block width) with offsets (J,)."""
    weights = [Fraction(weight) for weight in objective.control_weights or (0.0,)]
    weights *= candidates.shape[2] // len(weights)
    return [
        Fraction(float(offset))
        + sum(w * Fraction(a) ** 2 for block in pool for w, a in zip(weights, block, strict=True))
        for pool, offset in zip(candidates.astype(float).tolist(), offsets, strict=True)
    ]


def exact_margin(
    clean: Array, perturbed: Array, goals: Goals, asked: Asked, elites: set[int]
) -> tuple[Fraction, Fraction]:
    """Enclosure of min(C_j - C_i - b_j - b_i) of one pool (J, H, d), view and pair of goals.

    ``asked`` is of that pool, with what is added as fractions.
    """
    for bits in PRECISIONS:
        ends: dict[bool, list[tuple[Fraction, Fraction]]] = {True: [], False: []}
        for j in np.flatnonzero(~asked.infeasible[0]).tolist():
            cost, bound = exact_candidate(clean[j], perturbed[j], goals, asked, bits)
            sign, added = (1 if j in elites else -1), Fraction(asked.added[0, j])
            sides = sorted(added + cost[i] + sign * bound[i if sign > 0 else 1 - i] for i in (0, 1))
            ends[j in elites].append((sides[0], sides[1]))
        low, high = (
            min(end[i] for end in ends[False]) - max(end[1 - i] for end in ends[True])
            for i in (0, 1)
        )
        if low > 0 or high <= 0:
            return low, high
    return Fraction(0), Fraction(0)


Interval = tuple[Fraction, Fraction]


def exact_candidate(
    x: Array, y: Array, goals: Goals, asked: Asked, bits: int
) -> tuple[Interval, Interval]:
    """Enclosures of the cost without what is added, and of the bound."""
    cost, bound, (g, h) = [Fraction(0)] * 2, [Fraction(0)] * 2, goals
    for term in asked.terms:
        weights = coordinate_weights(term, len(g), asked.mean)
        for step, c in enumerate(coefficients(term, len(x))):
            p, q, r, m = (
                _norm(a, b, weights, term, bits)
                for a, b in ((x[step], g), (y[step], h), (y[step], x[step]), (h, g))
            )
            for i in (0, 1):
                cost[i] += c * (p[i] ** 2 if term.squared else p[i])
                bound[i] += c * (r[i] + m[i]) * (p[i] + q[i] if term.squared else 1)
    return (cost[0], cost[1]), (bound[0], bound[1])


def _norm(a: Array, b: Array, weights: list[Fraction], term: DistanceTerm, bits: int) -> Interval:
    apart = [Fraction(u) - Fraction(v) for u, v in zip(a.tolist(), b.tolist(), strict=True)]
    if term.norm is Norm.L1:
        total = sum((w * abs(v) for w, v in zip(weights, apart, strict=True)), Fraction(0))
        return total, total
    square = sum((w * v * v for w, v in zip(weights, apart, strict=True)), Fraction(0))
    size = square.numerator.bit_length() - square.denominator.bit_length()
    shift = bits - size // 2
    root = math.isqrt(math.floor(square * Fraction(4) ** shift))
    exact = root * root == square * Fraction(4) ** shift
    return Fraction(root) / Fraction(2) ** shift, Fraction(root + (not exact)) / Fraction(
        2
    ) ** shift
