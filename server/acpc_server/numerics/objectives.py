"""Costs beyond the squared endpoint distance: what they are, and how far a view can change them.

**Notation.** A term measures v = x - g, of the latent x after a predicted step, by a seminorm N:
sqrt(sum w_i v_i^2) (l2) or sum w_i |v_i| (l1), for the mean with w_i / sum w in place of w_i. Its
cost is f(N), f(n) = n^2 or n. A view has x~ and, where it moves the goal too, g~. With p = N(x -
g), q = N(x~ - g~), r = N(x - x~), m = N(g - g~), a tolerance of epsilon, which N sees as s = kappa
epsilon, and f' = p + q + 2 s for the square and 1 otherwise, b = (r + m + 2 s) f' bounds the
change. Costs and bounds of steps and terms are summed with coefficients c >= 0. What depends on the
actions alone, A, is added to the cost and not to the bound.

**Prop. term.** |f(q) - f(p)| <= b. By the triangle inequality |q - p| <= r + m, and |q^2 - p^2| =
|q - p| (q + p). Where each prediction may be off by epsilon in l2, N changes by at most s, with
kappa = max(w_i)^(1/2) for l2 and (sum w_i^2)^(1/2) for l1 (Cauchy-Schwarz); b then also bounds both
true costs around the computed clean one.

**Prop. sum.** If J = sum_k c_k f_k, c_k >= 0, and b_k bounds the change of f_k, sum_k c_k b_k
bounds that of J: the triangle inequality. **Prop. added.** Of C = J + A the bounds are those of J,
since A cancels in C~ - C; certificates compare C_j - C_i, in which A takes part.

**Prop. constraints.** Where candidates have infinite cost under every view, the choice and its
certificates are those of the pool without them, as long as the selected are feasible: such a rival
is neither chosen nor limits a margin.

**Prop. objective certificates.** Prop. fixed-pool-certificates, the bound on the excess cost and
Cor. adaptive-cem-alignment hold for C_j and b_j: their proofs use |C~_j - C_j| <= b_j alone.

**Prop. chain.** Let ACPC_H^2 = sum_k alpha_k d_k^2, d_k the l2 distance after step k, and m_k the
sum over terms of c_k kappa (p_k + q_k), or c_k kappa where not squared. Then sum_k m_k d_k, above
what r adds to the bound since N(v) <= kappa |v|, is at most ACPC_H (sum_k m_k^2 / alpha_k)^(1/2) by
Cauchy-Schwarz on (m_k / alpha_k^(1/2)) (alpha_k^(1/2) d_k). For one term at the last step it is Eq.
acpc-cost-chain.

**Rounding.** u, t and d are those of ``cost_bounds``; K counts coefficients above 0. The measure m
= N^2 (l2) or N (l1) takes a subtraction, a square or absolute value and a product per coordinate, d
- 1 additions, and for the mean a division by a sum of d weights: fewer than n = 2 d + 4 roundings
of values that are not negative. Products that underflow are off by at most t each, times a weight:
by T0 = 2 (d + 2) t max(1, w_i) in all, which the mean divides by sum w where that is below 1. So m^
misses m by at most gamma_n m + T0, and N^, the root of m^ or m^ itself, misses N by at most
gamma_(n+1) N + F / 4, where F is 4 sqrt(T0) (l2) or 4 T0 (l1). With G = 4 (2 d + K + 32) u, more
than twice gamma of any number of roundings below,

    (N^ - F) (1 - G)  <=  N  <=  (N^ + F) (1 + G).

Weights lie in 0 or [1e-30, 1e30], so coefficients, products of two, neither overflow nor underflow;
a product of a coefficient that underflows is off by t, and the square that it multiplies by t times
the coefficient: 4 (K + 1) t max(1, c) stands for all. f and the sums are of values that are not
negative, and each is moved outwards by one more factor of 1 + G or 1 - G. Of the room F that r
takes, F / 2 is needed; the rest covers the floors of the *computed* costs, of either input, as the
surplus of G does for their relative errors. The control penalty sums n squares of float32 numbers,
which float64 holds, times a weight: fewer than n + 1 roundings; the offset is exact. S = 4 (n + 16)
u (J + b + |A|), the cost J without A, covers these, the last sums, and the two roundings of the
reported costs. So ``lower`` <= C - b and C + b <= ``upper`` for both exact and computed costs, and
the reported bound holds for the reported costs as it does there. Of a cost that overflows no lower
bound is known: infinity is the infeasible candidates' alone.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from acpc.contract import DistanceTerm, Norm, Objective
from jaxtyping import Float, Float64
from torch import Tensor

from acpc_server.errors import InvalidArgument
from acpc_server.numerics.cost_bounds import PoolBounds, Reduction, check_tolerance

UNIT = 2.0**-53
TINY = torch.finfo(torch.float64).tiny


@dataclass(frozen=True)
class ObjectiveBounds(PoolBounds):
    """Bounds of a pool under an objective; ``reach`` is not used, and the divisor is 1.

    Attributes:
        slopes: How much of each step's l2 displacement the bound holds, (..., J, H).
        slack: What a moved goal and the tolerance add to the bound, (..., J).
    """

    slopes: Float64[Tensor, "*views candidates horizon"]


class _Term(NamedTuple):
    """A term for pools of one horizon: coefficients (H,), weights (d,) or None, their divisor."""

    asked: DistanceTerm
    coefficients: Tensor
    weights: Tensor | None
    divisor: float
    kappa: float
    floor: float


class PoolCost:
    """An objective's inputs for one pool; InvalidArgument names a field that does not fit it.

    Args:
        objective: The terms and the control penalty.
        width: Of the latents, d.
        candidates: Action sequences, float32 (J, H, block width).
        reduction: Sum over the coordinates, or their weighted mean.
        endpoint_tolerance: Every predicted latent may be off by this, l2.
        offsets: Added to the costs, float32 (J,); None: nothing.
        infeasible: Candidates of infinite cost, by index; one must be feasible.
    """

    def __init__(
        self,
        objective: Objective,
        width: int,
        candidates: Float[Tensor, "candidates horizon width"],
        *,
        reduction: Reduction = "sum",
        endpoint_tolerance: float = 0.0,
        offsets: Float[Tensor, "candidates"] | None = None,
        infeasible: Sequence[int] = (),
    ) -> None:
        check_tolerance(endpoint_tolerance)
        check_objective(objective, width, candidates.shape[2])
        self._tolerance = endpoint_tolerance
        horizon = candidates.shape[1]
        self._terms = [
            _fitted(term, f"objective.terms[{index}]", horizon, width, reduction)
            for index, term in enumerate(objective.terms or (DistanceTerm(),))
        ]
        self.infeasible = _infeasible(infeasible, len(candidates))
        weights = torch.tensor(objective.control_weights or (0.0,), dtype=torch.float64)
        self._penalty = (candidates.double().square() * weights).sum(dim=(1, 2))  # (J,)
        self._added = self._penalty if offsets is None else self._penalty + offsets.double()
        counted = sum(int((term.coefficients > 0).sum()) for term in self._terms)
        self._guard = 4 * (2 * width + counted + 32) * UNIT  # G
        dearest = max(1.0, *(float(term.coefficients.max()) for term in self._terms))
        self._least = 4 * (counted + 1) * TINY * dearest
        penalised = candidates[0].numel() if objective.control_weights else 0
        self._spread = 4 * (penalised + 16) * UNIT  # of S

    def of(self, rows: slice) -> PoolCost:
        """Return the cost of some of the candidates."""
        part = copy.copy(self)
        part.infeasible = self.infeasible[rows]
        part._penalty = self._penalty[rows]  # noqa: SLF001 - of this class
        part._added = self._added[rows]  # noqa: SLF001 - of this class
        return part

    def costs(
        self, rollouts: Float[Tensor, "*batch candidates horizon dim"], goal: Float[Tensor, "dim"]
    ) -> Float64[Tensor, "*batch candidates"]:
        """Compute costs alone, (..., J); infinite for infeasible candidates."""
        total = torch.zeros(rollouts.shape[:-2], dtype=torch.float64)
        for term in self._terms:
            for step in _steps(term):
                distance = _distance(rollouts[..., step, :].double() - goal.double(), term)
                total += term.coefficients[step] * _cost(distance, term)
        return (total + self._added).masked_fill(self.infeasible, math.inf)

    def bounds(
        self,
        clean: Float[Tensor, "candidates horizon dim"],
        perturbed: Float[Tensor, "*views candidates horizon dim"],
        goal: Float[Tensor, "dim"],
        moved_goal: Float[Tensor, "*#views dim"] | None = None,
    ) -> ObjectiveBounds:
        """Compute costs and cost-change bounds of finite rollouts; axes before J are views.

        ``moved_goal`` is the goal of the perturbed costs; None: it stays.
        """
        found, g = _Sums(perturbed.shape[:-1]), goal.double()
        h = g if moved_goal is None else moved_goal.double()[..., None, :]
        for term in self._terms:
            for step in _steps(term):
                x, y = clean[..., step, :].double(), perturbed[..., step, :].double()
                self._add(found, term, step, x - g, y - h, (y - x, h - g))
        costs, changed = (
            (part + self._added).masked_fill(self.infeasible, math.inf)
            for part in (found.clean, torch.where(found.unmoved, found.clean, found.changed))
        )
        grown = 1 + self._guard
        change = found.change * grown + self._least
        highest, lowest = found.highest * grown + self._least, found.lowest * (1 - self._guard)
        spread = self._spread * (highest + change + self._added.abs() + self._penalty)
        rounding = self._guard * (found.clean + found.changed)
        rounding = rounding + 4 * UNIT * (costs.abs() + changed.abs())
        unmoved = (found.unmoved & (self._tolerance == 0)) | self.infeasible
        lower = lowest - change + self._added - spread
        lower = lower.masked_fill(~torch.isfinite(lower), -math.inf)
        ends = clean[:, -1].double() - perturbed[..., -1, :].double()
        return ObjectiveBounds(
            clean_costs=costs,
            perturbed_costs=changed,
            displacements=ends.square().sum(dim=-1).sqrt(),
            bounds=((change + rounding) * grown).masked_fill(unmoved, 0.0),
            lower=lower.masked_fill(self.infeasible, math.inf),
            upper=(highest + change + self._added + spread).masked_fill(self.infeasible, math.inf),
            reach=torch.ones_like(changed),
            divisor=1,
            slopes=found.slopes.masked_fill(self.infeasible[:, None], 0.0),
            slack=found.slack.masked_fill(self.infeasible, 0.0),
        )

    def _add(
        self, found: _Sums, term: _Term, step: int, x: Tensor, y: Tensor, moved: tuple[Tensor, ...]
    ) -> None:
        """Add a step of a term, of latents less the goal, x (J, d) and y.

        ``moved`` is how far the latents move, and the goal.
        """
        unmoved, goal_stays = ((part == 0).all(dim=-1) for part in moved)
        still = unmoved & goal_stays  # (..., J)
        p, r, m = (_distance(part, term) for part in (x, *moved))
        q = torch.where(still, p, _distance(y, term))
        c, grown = term.coefficients[step], 1 + self._guard
        tolerated = 2 * term.kappa * self._tolerance * grown
        slack = ((m + term.floor) * grown).masked_fill(goal_stays, 0.0) + tolerated  # to r
        p_upper, q_upper, r_upper = ((part + term.floor) * grown for part in (p, q, r))
        p_lower = (p - term.floor).clamp(min=0) * (1 - self._guard)
        factor = p_upper + q_upper + tolerated if term.asked.squared else torch.ones_like(q)
        found.unmoved &= still
        found.clean = found.clean + c * _cost(p, term)
        found.changed = found.changed + c * _cost(q, term)
        found.highest = found.highest + c * _cost(p_upper, term) * grown
        found.lowest = found.lowest + c * _cost(p_lower, term) * (1 - self._guard)
        found.change = found.change + c * (r_upper + slack) * factor * grown
        found.slopes[..., step] += c * term.kappa * factor
        added = c * slack * factor  # NaN where the factor is infinite and nothing is added
        found.slack = found.slack + torch.where(slack > 0, added, 0.0)


class _Sums:
    """Sums over the steps and terms seen so far, of views (..., J, H)."""

    def __init__(self, shape: Sequence[int]) -> None:
        zero = torch.zeros(shape[-2], dtype=torch.float64)
        self.clean = self.highest = self.lowest = zero  # (J,)
        self.changed = self.change = self.slack = torch.zeros(shape[:-1], dtype=torch.float64)
        self.slopes = torch.zeros(shape, dtype=torch.float64)
        self.unmoved = torch.ones(shape[:-1], dtype=torch.bool)


def chained_objective_bounds(
    bounds: ObjectiveBounds,
    acpc: Float64[Tensor, "*views candidates"],
    weights: Float64[Tensor, "horizon"],
) -> Float64[Tensor, "*views candidates"]:
    """Bound cost changes through ACPC_H (Prop. chain), never tighter than ``bounds.bounds``.

    Infinite where a step that costs something has no weight in ACPC.
    """
    shares = torch.where(bounds.slopes > 0, bounds.slopes.square() / weights, 0.0).sum(dim=-1)
    chained = torch.where(shares > 0, acpc * shares.sqrt(), 0.0) + bounds.slack
    return torch.maximum(chained.masked_fill(chained.isnan(), math.inf), bounds.bounds)


def check_objective(objective: Objective, width: int, block_width: int) -> None:
    """Raise InvalidArgument for weights that do not fit latents and blocks of these widths."""
    for index, term in enumerate(objective.terms):
        path = f"objective.terms[{index}].coordinate_weights"
        _check_count(path, term.coordinate_weights, width, "latent coordinate")
    if len(objective.control_weights) != 1:
        path = "objective.control_weights"
        _check_count(path, objective.control_weights, block_width, "coordinate of a block")


def _check_count(path: str, weights: Sequence[float], wanted: int, each: str) -> None:
    if weights and len(weights) != wanted:
        found = f"has {len(weights)} entries, wanted {wanted}: one for each {each}"
        raise InvalidArgument(path, found)


def _fitted(term: DistanceTerm, path: str, horizon: int, width: int, reduction: str) -> _Term:
    """Fit a term to pools of a horizon and latents of a width."""
    steps, coordinates = term.step_weights, term.coordinate_weights
    _check_count(f"{path}.step_weights", steps, horizon, "predicted step of the candidates")
    last = [0.0] * (horizon - 1) + [1.0]
    coefficients = term.weight * torch.tensor(steps or last, dtype=torch.float64)
    weights = torch.tensor(coordinates, dtype=torch.float64) if coordinates else None
    total = float(width) if weights is None else float(weights.sum())
    divisor = total if reduction == "mean" else 1.0
    largest = 1.0 if weights is None else float(weights.max())
    floor = 2 * (width + 2) * TINY * max(1.0, largest) / min(1.0, divisor)  # T0
    if term.norm is Norm.L1:
        square = float(width) if weights is None else float(weights.square().sum())
        return _Term(term, coefficients, weights, divisor, math.sqrt(square) / divisor, 4 * floor)
    kappa = math.sqrt(largest / divisor)
    return _Term(term, coefficients, weights, divisor, kappa, 4 * math.sqrt(floor))


def _steps(term: _Term) -> list[int]:
    """List the steps that a term counts."""
    found: list[int] = term.coefficients.nonzero()[:, 0].tolist()
    return found


def _distance(difference: Tensor, term: _Term) -> Tensor:
    """Compute N of some differences (..., d)."""
    l1 = term.asked.norm is Norm.L1
    parts = difference.abs() if l1 else difference.square()
    if term.weights is not None:  # what has no weight may overflow
        parts = (parts * term.weights).masked_fill(term.weights == 0, 0.0)
    measure = parts.sum(dim=-1) / term.divisor
    return measure if l1 else measure.sqrt()


def _cost(distance: Tensor, term: _Term) -> Tensor:
    return distance.square() if term.asked.squared else distance


def _infeasible(indices: Sequence[int], candidates: int) -> Tensor:
    """Mark the infeasible candidates, (J,)."""
    mask = torch.zeros(candidates, dtype=torch.bool)
    if not indices:
        return mask
    if max(indices) >= candidates:
        raise InvalidArgument(
            "infeasible", f"names candidate {max(indices)} of a pool of {candidates}, from 0"
        )
    mask[torch.tensor(indices)] = True
    if mask.all():
        raise InvalidArgument("infeasible", "names every candidate; a choice needs a feasible one")
    return mask
