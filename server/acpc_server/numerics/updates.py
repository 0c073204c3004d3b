"""A planner's updates: CEM's sample and fit, iCEM's kept elites, MPPI's softmax mean under views.

**CEM.** Facts of the public solver: proposals start at mean 0 and standard deviation 1, candidate 0
is the current mean, the elites are the k lowest costs, and the next standard deviation is the
unbiased one of the elites. The fit is unweighted and, as Cor. adaptive-cem-alignment in the paper
needs it, permutation-invariant to the last bit: elites are taken in the order of their indices.

**Prop. softmax.** Of actions a_j and costs C_j MPPI's update is sum w_j a_j / sum w_j with w_j =
exp(-C_j / lambda). Let |C~_j - C_j| <= b_j and e = max_j b_j. (i) Every weight changes by at most
the factor exp(2 e / lambda): exp(-C~_j / lambda) is exp(-C_j / lambda) times f_j in [1/F, F], F =
exp(e / lambda), and the normaliser changes by a factor in the same interval. (ii) The total
variation distance is at most tanh(e / (2 lambda)): w~(S) - w(S) with w(S) = s is largest where f =
F on S and 1/F elsewhere, s F^2 / (s F^2 + 1 - s) - s, at its maximum s = 1 / (1 + F) equal to (F -
1) / (F + 1). So a coordinate of the mean moves by at most that times the range of the actions.
(iii) Costs between ``lower`` and ``upper`` put each weight v_j between two numbers. The derivative
of the mean m by v_j is (a_j - m) / sum v, so m is largest where v_j is at its upper end for the t
largest actions and at its lower one for all others: one of J splits, all of which are looked at.

**Prop. kept elites.** Let two iCEM runs start alike and share their random numbers, k elites be
fitted and m <= k kept. If in every pool, kept elites included, the certificates of the top-k *and*
the top-m set hold, the runs agree in every proposal, by induction: with equal pools both sets are
equal, so the fits and the candidates that the next pool starts with are. k alone is not enough: two
elites may change places across the edge of the kept ones.

**Rounding.** u = 2^-53. Exponents are at most 0, and each is within 3 u of its size, so below
-745 (where exp is 0) they do not matter and above it 2^-50 of them covers it. ``torch.exp`` is
taken to be right to 8 units in the last place (its kernels promise 1), so that 1 + 2^-48 covers
it, and the smallest normal number what underflows. Actions are shifted to be at least 0, and
weights scaled by 2^400, so that no product of a weight and a difference of float32 actions
underflows; sums of J terms have the relative error 2 (J + 8) u, and their quotient, where it does
not underflow, less than 8 (J + 8) u; the next float64 above is above both. Costs and temperatures
above 1 are scaled by 2^-64, so that no difference of costs and no temperature overflows.
"""

import math
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float, Float32, Float64, Int64
from torch import Tensor

from acpc_server.errors import InvalidArgument
from acpc_server.numerics.cost_bounds import Certificate, PoolBounds, elite_certificate
from acpc_server.numerics.keyed_random import keyed_generator

UNIT = 2.0**-53
SCALE = 2.0**400  # of weights
_DOMAIN = b"acpc/pool/1\0"


@dataclass(frozen=True)
class CemProposal:
    """An independent Gaussian for every action coordinate; ``std`` is nowhere negative."""

    mean: Float32[Tensor, "horizon width"]
    std: Float32[Tensor, "horizon width"]


def pool_normals(
    seed: int, iteration: int, *, candidates: int, horizon: int, width: int
) -> Float32[Tensor, "{candidates} {horizon} {width}"]:
    """Draw the random numbers of one pool; a larger pool starts with those of a smaller one.

    Runs that share a seed share their numbers. InvalidArgument where a number is not a uint64.
    """
    generator = keyed_generator(_DOMAIN, {"seed": seed, "iteration": iteration})
    shape = candidates, horizon, width
    return torch.from_numpy(generator.standard_normal(shape, np.float32))


def sample_pool(
    proposal: CemProposal, normals: Float32[Tensor, "candidates horizon width"]
) -> Float32[Tensor, "candidates horizon width"]:
    """Sample candidates mean + std * normal; the first is the mean itself."""
    candidates = proposal.mean + proposal.std * normals
    candidates[0] = proposal.mean
    return candidates


def fit_proposal(
    candidates: Float[Tensor, "candidates horizon width"], elites: Int64[Tensor, "elites"]
) -> CemProposal:
    """Fit mean and unbiased standard deviation of 2 or more elites, in float64, as float32."""
    if len(elites) < 2:
        raise InvalidArgument("elites", f"are {len(elites)}; a standard deviation needs 2")
    chosen = candidates[elites.sort().values].double()  # (k, H, width)
    return CemProposal(chosen.mean(dim=0).float(), chosen.std(dim=0, correction=1).float())


@dataclass(frozen=True)
class SoftmaxUpdate:
    """The softmax mean of a pool, and where views may move it.

    Attributes:
        mean: Of the clean costs, (H, block width).
        lower: At most the exact mean of each view, (..., H, block width).
        upper: At least that mean.
        displacement: Largest distance of a coordinate from ``mean``, (...).
        total_variation: At most that of the weights of the clean costs and of a view's, (...).
    """

    mean: Float64[Tensor, "horizon width"]
    lower: Float64[Tensor, "*views horizon width"]
    upper: Float64[Tensor, "*views horizon width"]
    displacement: Float64[Tensor, "*views"]
    total_variation: Float64[Tensor, "*views"]


def kept_certificate(bounds: PoolBounds, elite_count: int, kept: int) -> Certificate:
    """Certify that the top-k set and its ``kept`` lowest stay (Prop. kept elites).

    InvalidArgument where an elite set has no outside, or more are kept than it has.
    """
    if not 1 <= kept <= elite_count:
        raise InvalidArgument(
            "kept_elites", f"is {kept} of {elite_count} elites; keep some of them"
        )
    every, lowest = (elite_certificate(bounds, count) for count in (elite_count, kept))
    return Certificate(
        certified=every.certified & lowest.certified,
        margin=torch.minimum(every.margin, lowest.margin),
    )


def softmax_mean(
    costs: Float64[Tensor, "candidates"],
    candidates: Float[Tensor, "candidates horizon width"],
    temperature: float,
    elites: Int64[Tensor, "elites"] | None = None,
) -> Float64[Tensor, "horizon width"]:
    """Average the candidates, or some, weighted by exp(-C_j / temperature)."""
    used = slice(None) if elites is None else elites
    costs = costs[used]
    weights = torch.softmax((costs.amin() - costs) / temperature, dim=0)
    return (weights[:, None, None] * candidates[used].double()).sum(dim=0)


def softmax_update(
    bounds: PoolBounds,
    candidates: Float[Tensor, "candidates horizon width"],
    temperature: float,
    elites: Int64[Tensor, "elites"] | None = None,
) -> SoftmaxUpdate:
    """Bound the softmax mean of one pool under every view.

    With ``elites`` it is over those alone; without their certificate only that the mean is one of
    feasible actions is known. InvalidArgument where the temperature is not above 0 and finite.
    """
    if not (math.isfinite(temperature) and temperature > 0):
        raise InvalidArgument("temperature", f"is {temperature}; give a finite one above 0")
    actions = candidates.double().flatten(1)  # (J, H * width)
    clean = bounds.clean_costs.reshape(len(candidates))
    feasible = ~torch.isposinf(bounds.lower).reshape(-1, len(candidates)).any(dim=0)
    fixed = torch.ones(bounds.lower.shape[:-1], dtype=torch.bool)
    chosen = feasible
    if elites is not None:
        fixed = elite_certificate(bounds, len(elites)).certified
        chosen = torch.zeros_like(feasible).scatter_(0, elites, True) & feasible
    used = actions[chosen]
    mean = softmax_mean(clean, candidates, temperature, elites).flatten()
    change = bounds.bounds[..., chosen].amax(dim=-1)  # (...)
    least, most = actions[feasible].amin(dim=0), actions[feasible].amax(dim=0)
    lower, upper = (side.expand(*fixed.shape, -1).clone() for side in (least, most))
    lowest, highest = bounds.lower[..., chosen], bounds.upper[..., chosen]
    fixed &= (torch.isfinite(lowest) & torch.isfinite(highest)).all(dim=-1)
    for view in fixed.nonzero().tolist():
        at = tuple(view)
        scale = 2.0**-64 if temperature > 1 else 1.0
        light, heavy = _weights(
            lowest[at] * scale, highest[at] * scale, temperature * scale * bounds.divisor
        )
        upper[at] = torch.minimum(_greatest(used, light, heavy), most)
        lower[at] = torch.maximum(-_greatest(-used, light, heavy), least)
    tiny = torch.finfo(torch.float64).tiny * (change > 0)  # what underflows is not nothing
    varied = torch.tanh(change * (1 + 4 * UNIT) / 2 / temperature) * (1 + 64 * UNIT) + tiny
    farthest = torch.maximum(upper - mean, mean - lower).amax(dim=-1) * (1 + 4 * UNIT)
    shape = candidates.shape[1:]
    return SoftmaxUpdate(
        mean=mean.reshape(shape),
        lower=lower.reshape(*fixed.shape, *shape),
        upper=upper.reshape(*fixed.shape, *shape),
        displacement=farthest.clamp(min=0),
        total_variation=varied.clamp(max=1).masked_fill(~fixed, 1.0),
    )


def _weights(lower: Tensor, upper: Tensor, temperature: float) -> tuple[Tensor, Tensor]:
    """Bound each candidate's weight x SCALE, of costs from ``lower`` to ``upper``."""
    room, last = 2.0**-50, 2.0**-48
    light = torch.exp((lower.amin() - upper) / temperature * (1 + room)) * (1 - last)
    heavy = torch.exp((lower.amin() - lower) / temperature * (1 - room)) * (1 + last)
    tiny = torch.finfo(torch.float64).tiny
    return (light - tiny).clamp(min=0) * SCALE, (heavy + tiny) * SCALE


def _greatest(actions: Tensor, light: Tensor, heavy: Tensor) -> Tensor:
    """Return the greatest mean of actions (J, n) with weights between two (J,), rounded up."""
    ordered, order = actions.sort(dim=0, descending=True)
    least = ordered[-1]
    shifted = ordered - least  # at least 0
    top, rest = heavy[order], light[order]  # (J, n)

    weighed = (top * shifted).cumsum(0) + _after(rest * shifted)
    means = weighed / (top.cumsum(0) + _after(rest))
    greatest = means.amax(dim=0) * (1 + 8 * (len(actions) + 8) * UNIT)
    return torch.nextafter(
        least + greatest + 4 * UNIT * (least.abs() + greatest), torch.full_like(least, math.inf)
    )


def _after(values: Tensor) -> Tensor:
    """Sum the later rows; from the end on, so that nothing cancels."""
    sums = values.flip(0).cumsum(0).flip(0)
    return torch.cat([sums[1:], torch.zeros_like(sums[:1])])
