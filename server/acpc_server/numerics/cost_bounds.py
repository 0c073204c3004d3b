"""Cost bounds and certificates for one candidate pool: can a visual change alter the choice?

**Notation** (Prop. exact-cost-certificate in the paper, where the goal stays). A candidate has the
endpoint x and the goal g, and under a view x~ and g~. With p = ||x - g||, q = ||x~ - g~||, r = ||x
- x~||, m = ||g - g~||, C = p^2 and C~ = q^2 let b = (r + m) (p + q). Then |C~ - C| <= b: x~ - g~ is
(x - g) + (x~ - x) - (g~ - g), so |q - p| <= r + m, and |q^2 - p^2| = |q - p| (q + p). What follows
uses |C~ - C| <= b alone. m = 0 is the proposition.

**Endpoint tolerance.** Let the true endpoints x' and x~' lie within epsilon of those given. Then
r' <= r + 2 epsilon, p' <= p + epsilon and q' <= q + epsilon, so b = (r + m + 2 epsilon) (p + q + 2
epsilon) bounds the true cost change |C~' - C'|. It also bounds both true costs around the clean
cost C of the given endpoints, by the proof above with x~' in place of x~, or x' and g of x~ and g~:

    |C~' - C| <= (||x~' - x|| + m) (||x~' - g~|| + p) <= (r + m + epsilon) (p + q + epsilon) <= b
    |C' - C|  <= ||x' - x||        (||x' - g|| + p)   <= epsilon (2 p + epsilon)             <= b

Hence a gap C_j - C_i > b_j + b_i between given clean costs orders both true costs of i and j.

**Rounding.** The endpoints are exact float64 numbers; everything after them is rounded. Let
u = 2^-53, t = 2^-1022, d the latent width, and n = d + 2. A squared distance S takes one
subtraction, one product and at most d - 1 additions of nonnegative terms, in any order, fused or
not, so its computed value S^ satisfies |S^ - S| <= gamma_n S + 2 d t, where gamma_n = n u / (1 - n
u) and t stands for products that underflow. With G = 4 (d + 16) u and T = 4 (d + 1) t,

    S^ (1 - G) - T  <=  S  <=  S^ (1 + G) + T

holds although both sides are rounded themselves, because G exceeds 2 gamma_n by more than the few
roundings that follow (1 - G and 1 + G are exact). Square roots are correctly rounded; one factor
1 + G more covers the seven roundings at most of the roots, sums and product in b, and another the
two of C + b. Differences are moved to the next float64 below. So ``lower`` <= C - b and C + b <=
``upper`` are proven for each candidate, and so is every margin. What overflows certifies nothing:
``lower`` is minus infinity and b infinity, and nothing is NaN.

**What is reported.** Computed costs carry rounding errors of their own, at most G (C^ + C~^) + T in
all. The reported b_j includes them and is moved up, so that it bounds both the exact cost change
and the difference of the two reported costs; where neither endpoint nor goal moves it is 0. So the
reported excess cost never exceeds its bound either: the proof of Eq. fixed-pool-regret-bound needs
|C~ - C| <= b alone, and rounding keeps the order of sums and differences. ``lower_j`` > ``upper_i``
also orders the *computed* costs under both inputs, because G leaves room for their errors, so a
certified selection is what a planner in float64 sees.

**Choices.** Candidates that are equal in all that a planner evaluates (actions, offset, infeasible
mark) are one choice: ``choices`` names the first of its copies. A planner takes k candidates,
copies counted, and what it goes on with (the winner, the mean and spread of the elites, a softmax
mean) depends on the *multiset* of choices taken. So that is what a certificate is about: under the
view, the k lowest costs belong to the same multiset of choices, however ties between copies are
broken. Copies have equal endpoints, hence equal C and C~, so it suffices that C_j - C_i > b_j + b_i
for each i inside and j outside the clean elite set that are *not copies of each other*. Proof: let
the copies of a choice z lie on both sides. Every choice y that has a copy inside lies strictly
below z under the view (y inside, z outside), every choice y that has a copy outside strictly above
(z inside, y outside). No y != z is both, so z is the only such choice, the choices below z are
inside with all their copies, and z fills the places that they leave with as many copies as before.
Without such a z whole choices are inside or outside, and those inside lie strictly below the
others. A tie of two choices violates the inequality, as b >= 0, and is never certified. Where there
is no such pair, the pool is a single choice: nothing can change, the margin is infinite, whatever
overflows. In a computed elite set more choices than the last elite's may have copies on both sides;
their costs then equal its own. That set is denied: ``choice_gap`` leaves out pairs of copies of the
last elite alone, a minimum over more pairs.

Infeasible candidates cost infinity under every view. Where they reach into the elite set, every
feasible one of finite cost is inside and strictly below them, and the places left are theirs: the
set is certified if they are copies of one choice, and denied as a tie if not.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any, Literal, TypeVar

import torch
from jaxtyping import Bool, Float, Float64, Int64
from torch import Tensor

from acpc_server.errors import InvalidArgument

Reduction = Literal["sum", "mean"]
"""How a squared distance is reduced over latent coordinates: the paper's sum, or the mean."""


@dataclass(frozen=True)
class PoolBounds:
    """Costs and cost-change bounds of a candidate pool under several views, or of many pools.

    Attributes:
        clean_costs: C_j, reduced, (..., J); its leading axes broadcast with those of the others.
        perturbed_costs: C~_j, reduced, (..., J).
        displacements: r_j in latent units, without tolerance, (..., J).
        bounds: b_j, with the tolerance, reduced and rounded up to bound the difference of the
            reported costs too, (..., J).
        lower: Proven lower bounds of C_j - b_j, never reduced, (..., J).
        upper: Proven upper bounds of C_j + b_j, never reduced, (..., J).
        reach: p_j + q_j + 2 epsilon, the factor of r_j in b_j, (..., J).
        slack: m + 2 epsilon, what b_j adds to r_j, in latent units, (..., J).
        divisor: 1 for the sum, the latent width for the mean.
        choices: The first candidate that is the same choice as each; None: all differ.
    """

    clean_costs: Float64[Tensor, "*#views candidates"]
    perturbed_costs: Float64[Tensor, "*views candidates"]
    displacements: Float64[Tensor, "*views candidates"]
    bounds: Float64[Tensor, "*views candidates"]
    lower: Float64[Tensor, "*views candidates"]
    upper: Float64[Tensor, "*views candidates"]
    reach: Float64[Tensor, "*views candidates"]
    slack: Float64[Tensor, "*views candidates"]
    divisor: int
    choices: Int64[Tensor, "candidates"] | None = field(default=None, kw_only=True)


B = TypeVar("B", bound=PoolBounds)


@dataclass(frozen=True)
class ExcessCost:
    """What the perturbed choice costs under the clean prediction, with axes (...).

    Attributes:
        winner: Clean winner w, the lowest index among equals.
        perturbed_winner: Perturbed winner w~ of each view.
        excess: C_w~ - C_w, at least 0.
        bound: b_w~ + b_w, at least ``excess`` as reported here.
    """

    winner: Int64[Tensor, "*#views"]
    perturbed_winner: Int64[Tensor, "*views"]
    excess: Float64[Tensor, "*views"]
    bound: Float64[Tensor, "*views"]


@dataclass(frozen=True)
class Certificate:
    """Whether a selection provably survives each view.

    Attributes:
        certified: True only if exact arithmetic on the same endpoints certifies too, (...).
        margin: Proven lower bound of min(C_j - C_i - b_j - b_i) over the selected i and the other
            j that are no copies of them, reduced like the costs; infinite where there are none;
            certified exactly when above 0, (...).
    """

    certified: Bool[Tensor, "*views"]
    margin: Float64[Tensor, "*views"]


def goal_costs(
    endpoints: Float[Tensor, "*batch dim"],
    goal: Float[Tensor, "*#batch dim"],
    *,
    reduction: Reduction = "sum",
) -> Float64[Tensor, "*batch"]:
    """Compute costs C = ||x - g||^2 alone, reduced, in float64."""
    return _squared_distance(endpoints.double(), goal.double()) / _divisor(goal, reduction)


def pool_bounds(
    clean: Float[Tensor, "*#views candidates dim"],
    perturbed: Float[Tensor, "*views candidates dim"],
    goal: Float[Tensor, "*#views dim"],
    moved_goal: Float[Tensor, "*#views dim"] | None = None,
    *,
    reduction: Reduction = "sum",
    endpoint_tolerance: float = 0.0,
    finite: bool = False,
) -> PoolBounds:
    """Compute costs, displacements and cost-change bounds, Eq. exact-cost-bound in the paper.

    ``"sum"`` is the paper's cost; ``"mean"`` divides costs and bounds by the latent width. The
    bounds hold for endpoints that are off by up to ``endpoint_tolerance`` in l2. ``moved_goal`` is
    the goal of the perturbed costs; None: it stays. Many pools are
    measured at once by leading axes, such as clean endpoints (pools, 1, J, d), perturbed ones
    (pools, views, J, d) and goals (pools, 1, d); each has the bits that it has alone. On a device
    nothing waits where the caller finds out whether the numbers are ``finite``.
    InvalidArgument: shapes that do not fit, an empty pool, or a number that is not finite.
    """
    check_tolerance(endpoint_tolerance)
    moved_goal = goal if moved_goal is None else moved_goal
    _check(clean, perturbed, goal, moved_goal, finite=finite)
    width, divisor = goal.shape[-1], _divisor(goal, reduction)
    ends = (clean, perturbed, goal[..., None, :], moved_goal[..., None, :])
    x, y, g, h = (latents.to(torch.float64) for latents in ends)
    clean_square = _squared_distance(x, g)  # (..., J)
    still = (g == h).all(dim=-1)  # (..., 1)
    unmoved = (x == y).all(dim=-1) & still  # (..., J)
    perturbed_square = torch.where(unmoved, clean_square, _squared_distance(y, h))  # (..., J)
    displacement_square = _squared_distance(y, x)  # (..., J)
    goal_square = _squared_distance(h, g)  # (..., 1)

    slack = 2 * endpoint_tolerance
    reach = clean_square.sqrt() + perturbed_square.sqrt() + slack

    guard = (width + 16) * 2.0**-51  # G
    floor = 4 * (width + 1) * torch.finfo(torch.float64).tiny  # T
    clean_upper, perturbed_upper, displacement_upper, goal_upper = (
        square * (1 + guard) + floor
        for square in (clean_square, perturbed_square, displacement_square, goal_square)
    )
    reach_upper = clean_upper.sqrt() + perturbed_upper.sqrt() + slack
    added = goal_upper.sqrt().masked_fill(still, 0.0) + slack  # to r, (..., 1)
    bound_upper = (displacement_upper.sqrt() + added) * reach_upper * (1 + guard) + floor
    rounding = guard * (clean_square + perturbed_square) + floor
    bounds = _above((bound_upper + rounding) * (1 + guard) / divisor)
    lower = _below(clean_square * (1 - guard) - floor - bound_upper)
    return PoolBounds(
        clean_costs=clean_square / divisor,
        perturbed_costs=perturbed_square / divisor,
        displacements=displacement_square.sqrt(),
        bounds=bounds.masked_fill(unmoved & (slack == 0), 0.0),
        # What overflows, infinity less infinity, has no bound but this.
        lower=lower.nan_to_num(nan=-math.inf, posinf=math.inf, neginf=-math.inf),
        upper=(clean_upper + bound_upper) * (1 + guard),
        reach=reach,
        slack=added.expand_as(reach),
        divisor=divisor,
    )


def check_tolerance(endpoint_tolerance: float) -> None:
    """Reject, with InvalidArgument, a tolerance that is negative or not finite."""
    if not (math.isfinite(endpoint_tolerance) and endpoint_tolerance >= 0):
        raise InvalidArgument(
            "endpoint_tolerance", f"is {endpoint_tolerance}; give a finite distance of at least 0"
        )


def join_bounds(parts: Sequence[B], choices: Int64[Tensor, "candidates"] | None = None) -> B:
    """Join the bounds of the parts of a pool; copies of a choice get the first one's numbers."""
    if len(parts) == 1 and choices is None:
        return parts[0]
    joined: dict[str, Any] = {"choices": choices}
    for name in (each.name for each in fields(parts[0])):
        columns = [getattr(part, name) for part in parts]
        if isinstance(columns[0], Tensor):
            axis = -2 if name == "slopes" else -1  # slopes have one for each step too
            whole = torch.cat(columns, dim=axis)
            joined[name] = whole if choices is None else whole.index_select(axis, choices)
    return replace(parts[0], **joined)


def chained_bounds(
    bounds: PoolBounds, acpc: Float64[Tensor, "*views candidates"], last_weight: float
) -> Float64[Tensor, "*views candidates"]:
    """Bound cost changes through ACPC_H / sqrt(alpha_H), Eq. acpc-cost-chain in the paper.

    Never tighter than ``bounds.bounds``, which is used where rounding would make it so. Infinite
    where ``last_weight``, alpha_H, is 0; InvalidArgument where it is outside [0, 1].
    """
    if not 0 <= last_weight <= 1:
        raise InvalidArgument("weights", f"end with {last_weight}; weights lie in [0, 1]")
    if last_weight == 0:
        return torch.full_like(bounds.bounds, math.inf)
    displacements = acpc / math.sqrt(last_weight) + bounds.slack
    chained = torch.where(displacements > 0, displacements * bounds.reach, 0.0)
    return torch.maximum(chained / bounds.divisor, bounds.bounds)


def excess_cost(bounds: PoolBounds) -> ExcessCost:
    """Compute the excess cost of the perturbed winner, Eq. fixed-pool-regret-bound in the paper.

    Where the winner does not change, the excess is 0 and the bound is twice the winner's. Of costs
    that overflow it is infinite.
    """
    winner = bounds.clean_costs.argmin(dim=-1, keepdim=True)
    perturbed_winner = bounds.perturbed_costs.argmin(dim=-1, keepdim=True)  # (..., 1)
    winners = winner.expand_as(perturbed_winner)
    costs = bounds.clean_costs.expand_as(bounds.bounds)
    excess, bound = costs.gather(-1, perturbed_winner), bounds.bounds.gather(-1, perturbed_winner)
    excess = torch.where(perturbed_winner == winner, 0.0, excess - costs.gather(-1, winners))
    return ExcessCost(
        winner=winner[..., 0],
        perturbed_winner=perturbed_winner[..., 0],
        excess=excess[..., 0].nan_to_num(nan=math.inf, posinf=math.inf),
        bound=(bound + bounds.bounds.gather(-1, winners))[..., 0],
    )


def elite_indices(
    costs: Float[Tensor, "*batch candidates"], elite_count: int
) -> Int64[Tensor, "*batch elites"]:
    """Return the k in 1..J lowest costs, lowest first; of equal costs the lower index first."""
    candidates = costs.shape[-1]
    if not 1 <= elite_count <= candidates:
        raise InvalidArgument(
            "elite_count", f"is {elite_count}; a pool of {candidates} has 1 to {candidates} elites"
        )
    return costs.argsort(dim=-1, stable=True)[..., :elite_count]


def top1_certificate(bounds: PoolBounds) -> Certificate:
    """Certify that the clean winner stays the winner, Eq. top1-certificate-main in the paper.

    Ties of two choices are never certified. A pool of one choice is, with an infinite margin.
    """
    return _certificate(bounds, 1)


def elite_certificate(bounds: PoolBounds, elite_count: int) -> Certificate:
    """Certify that the clean top-k set stays, Eq. elite-certificate-main in the paper.

    The set is one of choices, copies counted. Ties between an elite and another choice outside are
    never certified. InvalidArgument where no candidate, or every one, is an elite.
    """
    candidates = bounds.clean_costs.shape[-1]
    if not 1 <= elite_count < candidates:
        raise InvalidArgument(
            "elite_count",
            f"is {elite_count}; an elite certificate in a pool of {candidates} needs at least 1 "
            "elite and at least 1 candidate outside the elite set",
        )
    return _certificate(bounds, elite_count)


def choice_gap(
    lower: Float64[Tensor, "*views candidates"],
    upper: Float64[Tensor, "*views candidates"],
    elite: Int64[Tensor, "*#views elites"],
    choices: Int64[Tensor, "candidates"] | None = None,
) -> Float64[Tensor, "*views"]:
    """Return min(lower_j - upper_i) over elites i and other candidates j that are no copies, (...).

    ``elite`` are lowest first. Separates into minima and maxima: the copies of the last elite that
    are outside count against the other elites alone. Infinite where there is no such pair.
    """
    shape = *elite.shape[:-1], lower.shape[-1]
    inside = torch.zeros(shape, dtype=torch.bool, device=lower.device)
    inside.scatter_(-1, elite, True)
    if choices is None:
        outside = lower.masked_fill(inside, math.inf).amin(dim=-1)
        return outside - upper.masked_fill(~inside, -math.inf).amax(dim=-1)
    copies = choices == choices[elite[..., -1:]]  # of the last elite, (..., J)
    rival = lower.masked_fill(inside | copies, math.inf).amin(dim=-1)
    copy = lower.masked_fill(inside | ~copies, math.inf).amin(dim=-1)
    others = upper.masked_fill(~inside | copies, -math.inf).amax(dim=-1)
    highest = upper.masked_fill(~inside, -math.inf).amax(dim=-1)
    return torch.minimum(rival - highest, copy - others)


def _certificate(bounds: PoolBounds, elite_count: int) -> Certificate:
    """Minimise (C_j - b_j) - (C_i + b_i) over pairs of choices."""
    lower, upper, choices = bounds.lower, bounds.upper, bounds.choices
    if lower.shape[-1] == 1 or (choices is not None and not choices.any()):  # a single choice
        margin = torch.full_like(lower[..., 0], math.inf)
        return Certificate(certified=margin > 0, margin=margin)
    elite = elite_indices(bounds.clean_costs, elite_count)
    gap = choice_gap(lower, upper.clamp(max=torch.finfo(upper.dtype).max), elite, choices)
    finite = torch.isfinite(lower) & torch.isfinite(upper)
    # An infeasible candidate costs infinity; what overflows has no such lower bound.
    finite = (finite | torch.isposinf(lower)).all(dim=-1) | torch.isposinf(gap)
    infeasible, last = torch.isposinf(lower), elite[..., -1:]
    alone = torch.zeros_like(infeasible[..., :1])  # whether one choice alone is infeasible
    if choices is not None:
        alone = ~(infeasible & (choices != choices[last])).any(dim=-1, keepdim=True)
    for costs in (bounds.clean_costs, bounds.perturbed_costs):
        known = torch.isfinite(costs) | (infeasible & alone)
        finite = finite & known.gather(-1, elite.expand(*known.shape[:-1], -1)).all(dim=-1)
    # Above 0 it also proves that the computed order put the true elites first.
    margin = _below(_below(gap) / bounds.divisor)
    margin = margin.masked_fill(torch.isposinf(gap), math.inf)  # no feasible rival
    margin = margin.masked_fill(~finite, -math.inf)
    return Certificate(certified=margin > 0, margin=margin)


def _squared_distance(a: Tensor, b: Tensor) -> Tensor:
    return (a - b).square().sum(dim=-1)


def _divisor(goal: Tensor, reduction: Reduction) -> int:
    return goal.shape[-1] if reduction == "mean" else 1


def _above(values: Tensor) -> Tensor:
    """Return the next float64 towards infinity: at least the exact value that was rounded."""
    return torch.nextafter(values, values.new_full((), math.inf))


def _below(values: Tensor) -> Tensor:
    """Return the next float64 towards minus infinity: at most the exact value that was rounded."""
    return torch.nextafter(values, values.new_full((), -math.inf))


def _check(
    clean: Tensor, perturbed: Tensor, goal: Tensor, moved_goal: Tensor, *, finite: bool
) -> None:
    if perturbed.shape[-2:] != clean.shape[-2:] or goal.shape[-1:] != clean.shape[-1:]:
        raise InvalidArgument(
            "endpoints",
            f"have shapes {tuple(clean.shape)} clean, {tuple(perturbed.shape)} perturbed and "
            f"{tuple(goal.shape)} goal; give (..., J, d), (views, J, d) and (..., d)",
        )
    if 0 in clean.shape:
        raise InvalidArgument("candidates", f"have endpoints {tuple(clean.shape)}; none may be 0")
    fields = ("clean_endpoints", "perturbed_endpoints", "goal", "moved_goal")
    for name, latents in zip(fields, (clean, perturbed, goal, moved_goal), strict=True):
        if not finite and not torch.isfinite(latents).all():
            raise InvalidArgument(
                name,
                "hold NaN or infinity; costs and certificates need finite latents",
            )
