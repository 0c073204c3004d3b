"""Costs, their bounds, excess cost and certificates of pools: the propositions as properties.

Of the paper's cost (numerics/cost_bounds.py), and of others (numerics/objectives.py).
"""

import inspect
import math
from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np
import numpy_reference as reference
import pytest
import torch
from acpc.contract import DistanceTerm, Norm, Objective
from acpc_server.errors import InvalidArgument
from acpc_server.numerics.consistency import acpc, horizon_weights, step_distances
from acpc_server.numerics.cost_bounds import (
    PoolBounds,
    Reduction,
    chained_bounds,
    elite_certificate,
    elite_indices,
    excess_cost,
    pool_bounds,
    top1_certificate,
)
from acpc_server.numerics.objectives import (
    ObjectiveBounds,
    PoolCost,
    chained_objective_bounds,
)
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

BLOCK = 2


class Case(NamedTuple):
    """A pool with its rollouts; without an objective its cost is the paper's."""

    objective: Objective | None
    reduction: Reduction
    goal: Tensor
    candidates: Tensor
    clean: Tensor
    perturbed: Tensor

    def cost(self, **more: object) -> PoolCost:
        width, objective = len(self.goal), self.objective or Objective()
        return PoolCost(objective, width, self.candidates, reduction=self.reduction, **more)

    def bounds(self, **more: object) -> PoolBounds:
        if self.objective is not None:
            return self.cost(**more).bounds(self.clean, self.perturbed, self.goal)
        ends = self.clean[:, -1], self.perturbed[:, :, -1]
        return pool_bounds(*ends, self.goal, reduction=self.reduction, **more)


def weights(size: int) -> st.SearchStrategy[list[float]]:
    some = st.lists(st.sampled_from([0.0, 0.1, 1.0, 30.0]), min_size=size, max_size=size)
    return st.just([]) | some.filter(any)


@st.composite
def cases(draw: st.DrawFn, views: int = 2) -> Case:
    """Pools of every size and cost; perturbations from none to larger than it, or of a half."""
    generator = np.random.default_rng(draw(st.integers(0, 2**32)))
    count, horizon, width = draw(
        st.tuples(st.integers(2, 9), st.integers(1, 4), st.integers(1, 6)),
    )
    term = st.builds(
        DistanceTerm,
        norm=st.sampled_from([Norm.L1, Norm.L2]),
        squared=st.booleans(),
        weight=st.sampled_from([1.0, 0.3, 1e3]),
        step_weights=weights(horizon),
        coordinate_weights=weights(width),
    )
    objectives = st.builds(Objective, st.lists(term, max_size=3).map(tuple), weights(BLOCK))
    size = 10.0 ** draw(st.integers(-8, 1)) * draw(st.integers(0, 1))
    clean = generator.normal(size=(count, horizon, width))
    perturbed = clean + size * generator.normal(size=(views, *clean.shape))
    if draw(st.booleans()):
        perturbed[:, ::2] = clean[::2]
    arrays = (generator.normal(size=width), generator.normal(size=(count, horizon, BLOCK)))
    parts = (torch.from_numpy(part).float() for part in (*arrays, clean, perturbed))
    return Case(draw(st.none() | objectives), draw(st.sampled_from(["sum", "mean"])), *parts)


each_cost = settings(max_examples=40)  # as half of them have the paper's


def plain_costs(case: Case, rollouts: Tensor) -> list[float]:
    """The costs of rollouts (J, H, d) in Python's own numbers."""
    found, objective = [], case.objective or Objective()
    for blocks, steps in zip(
        case.candidates.double().tolist(), rollouts.double().tolist(), strict=True
    ):
        penalty = list(objective.control_weights) or [0.0] * BLOCK
        total = sum(w * a * a for block in blocks for w, a in zip(penalty, block, strict=True))
        for term in objective.terms or (DistanceTerm(),):
            last = [0.0] * (len(steps) - 1) + [1.0]
            for share, latent in zip(term.step_weights or last, steps, strict=True):
                each = list(term.coordinate_weights) or [1.0] * len(latent)
                each = [w / sum(each) for w in each] if case.reduction == "mean" else each
                apart = [a - b for a, b in zip(latent, case.goal.double().tolist(), strict=True)]
                if term.norm is Norm.L1:
                    distance = sum(w * abs(v) for w, v in zip(each, apart, strict=True))
                else:
                    distance = math.sqrt(sum(w * v * v for w, v in zip(each, apart, strict=True)))
                total += term.weight * share * (distance**2 if term.squared else distance)
        found.append(total)
    return found


@each_cost
@given(cases())
def test_costs_and_bounds_are_those_of_the_loops(case: Case) -> None:
    bounds = case.bounds()
    np.testing.assert_allclose(bounds.clean_costs, plain_costs(case, case.clean), rtol=1e-12)
    for view, rollouts in enumerate(case.perturbed):
        expected = plain_costs(case, rollouts)
        for costs in (bounds.perturbed_costs[view], case.cost().costs(rollouts, case.goal)):
            np.testing.assert_allclose(costs, expected, rtol=1e-12)
        ends = (part[:, -1].numpy() for part in (case.clean, rollouts))
        clean, perturbed, displacements, bound = reference.cost_bounds(*ends, case.goal.numpy())
        np.testing.assert_allclose(bounds.displacements[view], displacements, rtol=1e-13)
        if case.objective in (None, Objective()):
            # b is rounded up, by a few hundred roundings of the costs it compares; an objective's
            # by those of its terms, too.
            divisor = len(case.goal) if case.reduction == "mean" else 1
            excess, scale = bounds.bounds[view].numpy() * divisor - bound, clean + perturbed
            assert (-1e-15 * scale <= excess).all()
            assert (excess <= (1e-12 if case.objective else 1e-13) * scale).all()


@given(st.integers(0, 2**32), st.integers(1, 5), st.sampled_from([0.0, 0.1]))
def test_pools_measured_at_once_have_the_bits_they_have_alone(
    seed: int, count: int, tolerance: float
) -> None:
    generator = torch.Generator().manual_seed(seed)
    clean, goals = (torch.randn(count, *shape, generator=generator) for shape in ((9, 5), (5,)))
    perturbed = clean[:, None] + 0.3 * torch.randn(count, 2, 9, 5, generator=generator)

    def measured(*pool: Tensor) -> list[Tensor]:
        bounds = pool_bounds(*pool, endpoint_tolerance=tolerance)
        found = bounds, excess_cost(bounds), top1_certificate(bounds), elite_certificate(bounds, 3)
        values = [value for one in found for value in vars(one).values()]
        return [value for value in values if isinstance(value, Tensor)]

    together = measured(clean[:, None], perturbed, goals[:, None])
    for row, pool in enumerate(zip(clean, perturbed, goals, strict=True)):
        for one, every in zip(measured(*pool), together, strict=True):
            assert torch.equal(one, every[row].reshape(one.shape))


@each_cost
@given(cases())
def test_cost_change_and_excess_are_at_most_their_bounds(case: Case) -> None:
    """Prop. exact-cost-certificate, Prop. term and sum, Eq. fixed-pool-regret-bound, as reported.

    What does not move has no bound, unless latents may be off.
    """
    bounds = case.bounds()
    assert ((bounds.perturbed_costs - bounds.clean_costs).abs() <= bounds.bounds).all()
    unmoved = (case.clean == case.perturbed).flatten(2).all(dim=-1)
    assert (bounds.bounds[unmoved] == 0).all()
    still = bounds.clean_costs.expand_as(unmoved)[unmoved]
    assert torch.equal(bounds.perturbed_costs[unmoved], still)
    assert (case.bounds(endpoint_tolerance=1e-6).bounds > 0).all()
    excess, costs = excess_cost(bounds), bounds.clean_costs
    assert excess.winner == int(np.argmin(costs.numpy()))
    for view, seen in enumerate(bounds.perturbed_costs):
        winner = int(np.argmin(seen.numpy()))
        assert excess.perturbed_winner[view] == winner
        assert excess.excess[view] == costs[winner] - costs[excess.winner]
        assert excess.bound[view] == bounds.bounds[view, [winner, excess.winner]].sum()
        assert 0 <= excess.excess[view] <= excess.bound[view]


def chained(bounds: PoolBounds, values: Tensor, alphas: Tensor) -> Tensor:
    if isinstance(bounds, ObjectiveBounds):
        return chained_objective_bounds(bounds, values, alphas)
    return chained_bounds(bounds, values, alphas[-1].item())


@each_cost
@given(cases(), st.sampled_from([0.0, 1e-6, 0.1]))
def test_the_chain_through_acpc_is_never_tighter(case: Case, tolerance: float) -> None:
    """Prop. chain; Eq. acpc-cost-chain: b_j <= ACPC_H / sqrt(alpha_H) (p + q)."""
    bounds, horizon = case.bounds(endpoint_tolerance=tolerance), case.clean.shape[1]
    alphas = horizon_weights((), horizon)
    values = acpc(step_distances(case.clean[None], case.perturbed), alphas)  # (views, J)
    found = chained(bounds, values, alphas)
    assert (bounds.bounds <= found).all()
    assert torch.isfinite(found).all()
    if horizon == 1 and case.objective is None:
        np.testing.assert_allclose(found, bounds.bounds, rtol=1e-13)
    elif horizon > 1:  # the last step costs, and has no weight
        first = torch.eye(horizon, dtype=torch.float64)[0]
        last = case if case.objective is None else case._replace(objective=Objective())
        assert torch.isinf(chained(last.bounds(), values, first)).all()


@each_cost
@given(cases(), st.data())
def test_certificates_agree_with_the_papers_condition(case: Case, data: st.DataObject) -> None:
    bounds = case.bounds()
    count = data.draw(st.integers(1, len(case.clean) - 1))
    certificate, costs = elite_certificate(bounds, count), bounds.clean_costs.tolist()
    for view, row in enumerate(bounds.bounds):
        expected = reference.elite_margin(costs, row.tolist(), count)
        room = 1e-12 * (max(costs) + row.max().item())
        assert expected - room <= certificate.margin[view].item() <= expected + room
        assert certificate.certified[view] == (certificate.margin[view] > 0)
    assert torch.equal(top1_certificate(bounds).margin, elite_certificate(bounds, 1).margin)


@each_cost
@given(cases(views=4), st.sampled_from([0.0, 1e-4, 1e-2, 0.1]), st.integers(0, 2**32))
def test_certified_selections_survive_any_latents_within_tolerance(
    case: Case, tolerance: float, seed: int
) -> None:
    """Prop. fixed-pool-certificates at the true latents, pushed against the selection."""
    bounds, count = case.bounds(endpoint_tolerance=tolerance), max(1, len(case.clean) // 2)
    certificate = elite_certificate(bounds, count)
    elites = elite_indices(bounds.clean_costs, count)
    sign = torch.ones(len(case.clean), 1, 1, dtype=torch.float64)
    sign[elites] = -1  # elites move away from the goal, their rivals towards it
    generator = torch.Generator().manual_seed(seed)
    goal, clean, perturbed = (x.double() for x in (case.goal, case.clean, case.perturbed))

    def moved(latents: Tensor) -> Iterator[Tensor]:
        noise = torch.randn(latents.shape, generator=generator, dtype=torch.float64)
        for step in (sign * (goal - latents), sign * torch.sign(goal - latents), noise):
            length = torch.linalg.vector_norm(step, dim=-1, keepdim=True).clamp(min=1e-300)
            yield latents + tolerance * (1 - 1e-9) * step / length

    for ours, theirs in zip(moved(clean), moved(perturbed), strict=True):
        true = case._replace(goal=goal, clean=ours, perturbed=theirs).bounds()
        change = (true.perturbed_costs - true.clean_costs).abs()
        assert (change <= bounds.bounds + 1e-11 * (1 + true.perturbed_costs)).all()
        for view in certificate.certified.nonzero()[:, 0]:
            for costs in (true.clean_costs, true.perturbed_costs[view]):
                assert set(elite_indices(costs, count).tolist()) == set(elites.tolist())


def test_tolerance_only_ever_withdraws_certificates() -> None:
    clean, tolerances = torch.tensor([[1.0], [2.0]]), (0.0, 0.01, 0.1, 0.5)
    every = [pool_bounds(clean, clean, torch.zeros(1), endpoint_tolerance=e) for e in tolerances]
    margins = [top1_certificate(bounds).margin.item() for bounds in every]
    # b = 2 eps (2 p + 2 eps) on both sides of a gap of 3.
    expected = [3 - sum(2 * e * (2 * p + 2 * e) for p in (1, 2)) for e in tolerances]
    assert margins == pytest.approx(expected, rel=1e-12)


def test_elites_are_the_lowest_costs_lowest_index_first() -> None:
    costs = torch.tensor([[3.0, 1.0, 1.0, 0.5], [0.0, 0.0, 0.0, 0.0]])
    assert elite_indices(costs, 3).tolist() == [[3, 1, 2], [0, 1, 2]]
    for row in costs:
        assert elite_indices(row, 4).tolist() == reference.elites(row.tolist(), 4)


FLAT = pool_bounds(torch.zeros(3, 1), torch.zeros(3, 1), torch.zeros(1))
UNCHECKED = inspect.unwrap(pool_bounds)  # as in production, where annotations are not run
LATENTS = {
    "clean_endpoints": torch.zeros(2, 3),
    "perturbed_endpoints": torch.zeros(4, 2, 3),
    "goal": torch.zeros(3),
}


def pool_cost(*terms: DistanceTerm, control: tuple[float, ...] = (), **more: object) -> PoolCost:
    return PoolCost(Objective(terms, control), 2, torch.zeros(4, 3, BLOCK), **more)


def broken(name: str, value: float) -> list[Tensor]:
    parts = {key: part.clone() for key, part in LATENTS.items()}
    parts[name].view(-1)[-1] = value
    return [*parts.values()]


REFUSED: list[tuple[Callable[[], object], str]] = [
    *((lambda k=k: elite_certificate(FLAT, k), f"elite_count: is {k}") for k in (0, 3, 4)),
    *((lambda k=k: elite_indices(FLAT.clean_costs, k), "1 to 3 elites") for k in (0, 4)),
    *(
        (lambda name=name, x=x: pool_bounds(*broken(name, x)), f"^{name}: .*NaN or infinity")
        for name in LATENTS
        for x in (math.nan, math.inf)
    ),
    *(
        (lambda x=x: pool_bounds(*LATENTS.values(), endpoint_tolerance=x), "endpoint_tolerance: is")
        for x in (-1e-9, math.nan, math.inf)
    ),
    (lambda: UNCHECKED(torch.zeros(3, 2), torch.zeros(1, 2), torch.zeros(2)),
     r"\(3, 2\) clean, \(1, 2\) perturbed"),
    (lambda: UNCHECKED(torch.zeros(3, 2), torch.zeros(3, 2), torch.zeros(1)), r"\(1,\) goal"),
    (lambda: UNCHECKED(torch.zeros(0, 2), torch.zeros(0, 2), torch.zeros(2)), "none may be 0"),
    (lambda: chained_bounds(FLAT, FLAT.bounds, -0.1), "weights lie in"),
    (lambda: pool_cost(DistanceTerm(step_weights=(1.0, 1.0))),
     r"^objective\.terms\[0\]\.step_weights: "),
    (lambda: pool_cost(DistanceTerm(), DistanceTerm(coordinate_weights=(1.0,))),
     r"^objective\.terms\[1\]\.coordinate_weights: "),
    (lambda: pool_cost(control=(1.0, 1.0, 1.0)), r"^objective\.control_weights: "),
    (lambda: pool_cost(infeasible=[4]), "^infeasible: "),
    (lambda: pool_cost(infeasible=range(4)), "^infeasible: "),
    (lambda: pool_cost(endpoint_tolerance=-1.0), "^endpoint_tolerance: "),
]  # fmt: skip


@pytest.mark.parametrize(("call", "words"), REFUSED)
def test_what_has_no_bounds_is_refused_by_name(call: Callable[[], object], words: str) -> None:
    with pytest.raises(InvalidArgument, match=words):
        call()
