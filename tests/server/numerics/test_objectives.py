"""Costs beyond the squared endpoint distance: the propositions of numerics/objectives.py."""

import math
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import pytest
import torch
from acpc.contract import DistanceTerm, Norm, Objective
from acpc_server.errors import InvalidArgument
from acpc_server.numerics.consistency import acpc, horizon_weights, step_distances
from acpc_server.numerics.cost_bounds import (
    elite_certificate,
    elite_indices,
    excess_cost,
    pool_bounds,
    top1_certificate,
)
from acpc_server.numerics.objectives import PoolCost, chained_objective_bounds
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

BLOCK = 2


class Case(NamedTuple):
    """A pool with its rollouts and what is asked of it."""

    objective: Objective
    goal: Tensor
    candidates: Tensor
    clean: Tensor
    perturbed: Tensor
    mean: bool

    def cost(self, **more: object) -> PoolCost:
        return PoolCost(
            self.objective,
            len(self.goal),
            self.candidates,
            reduction="mean" if self.mean else "sum",
            **more,
        )


def weights(size: int) -> st.SearchStrategy[list[float]]:
    some = st.lists(st.sampled_from([0.0, 0.1, 1.0, 30.0]), min_size=size, max_size=size)
    return st.just([]) | some.filter(any)


@st.composite
def cases(draw: st.DrawFn, views: int = 2) -> Case:
    """Pools of every size under every objective; perturbations from none to larger than it."""
    generator = np.random.default_rng(draw(st.integers(0, 2**32)))
    count, horizon, width = (
        draw(st.integers(2, 7)),
        draw(st.integers(1, 4)),
        draw(st.integers(1, 5)),
    )
    terms = draw(
        st.lists(
            st.builds(
                DistanceTerm,
                norm=st.sampled_from([Norm.L1, Norm.L2]),
                squared=st.booleans(),
                weight=st.sampled_from([1.0, 0.3, 1e3]),
                step_weights=weights(horizon),
                coordinate_weights=weights(width),
            ),
            max_size=3,
        )
    )
    objective = Objective(tuple(terms), tuple(draw(weights(BLOCK))))
    size = 10.0 ** draw(st.integers(-8, 1)) * draw(st.integers(0, 1))
    clean = generator.normal(size=(count, horizon, width))
    perturbed = clean + size * generator.normal(size=(views, *clean.shape))
    arrays = (generator.normal(size=width), generator.normal(size=(count, horizon, BLOCK)))
    goal, candidates, ours, theirs = (
        torch.from_numpy(part).float() for part in (*arrays, clean, perturbed)
    )
    return Case(objective, goal, candidates, ours, theirs, draw(st.booleans()))


def plain_costs(case: Case, rollouts: Tensor) -> list[float]:
    """The costs of rollouts (J, H, d) in Python's own numbers."""
    found = []
    for blocks, steps in zip(
        case.candidates.double().tolist(), rollouts.double().tolist(), strict=True
    ):
        penalty = list(case.objective.control_weights) or [0.0] * BLOCK
        total = sum(w * a * a for block in blocks for w, a in zip(penalty, block, strict=True))
        for term in case.objective.terms or (DistanceTerm(),):
            last = [0.0] * (len(steps) - 1) + [1.0]
            for share, latent in zip(term.step_weights or last, steps, strict=True):
                each = list(term.coordinate_weights) or [1.0] * len(latent)
                each = [w / sum(each) for w in each] if case.mean else each
                apart = [a - b for a, b in zip(latent, case.goal.double().tolist(), strict=True)]
                if term.norm is Norm.L1:
                    distance = sum(w * abs(v) for w, v in zip(each, apart, strict=True))
                else:
                    distance = math.sqrt(sum(w * v * v for w, v in zip(each, apart, strict=True)))
                total += term.weight * share * (distance**2 if term.squared else distance)
        found.append(total)
    return found


@given(cases())
def test_costs_are_what_the_page_says(case: Case) -> None:
    bounds = case.cost().bounds(case.clean, case.perturbed, case.goal)
    np.testing.assert_allclose(
        bounds.clean_costs.numpy(), plain_costs(case, case.clean), rtol=1e-12
    )
    for view, rollouts in enumerate(case.perturbed):
        expected = plain_costs(case, rollouts)
        np.testing.assert_allclose(bounds.perturbed_costs[view].numpy(), expected, rtol=1e-12)
        alone = case.cost().costs(rollouts, case.goal).numpy()
        np.testing.assert_allclose(alone, expected, rtol=1e-12)


@given(cases())
def test_cost_change_is_at_most_the_bound(case: Case) -> None:
    """Prop. term and Prop. sum, for the costs as they are reported; so is the excess cost."""
    bounds = case.cost().bounds(case.clean, case.perturbed, case.goal)
    assert ((bounds.perturbed_costs - bounds.clean_costs).abs() <= bounds.bounds).all()
    excess = excess_cost(bounds)
    assert (excess.excess >= 0).all()
    assert (excess.excess <= excess.bound).all()


@given(cases(views=4), st.integers(1, 6))
def test_a_certified_choice_stays(case: Case, count: int) -> None:
    count = min(count, len(case.clean) - 1)
    bounds = case.cost().bounds(case.clean, case.perturbed, case.goal)
    chosen = set(elite_indices(bounds.clean_costs, count).tolist())
    for view in elite_certificate(bounds, count).certified.nonzero()[:, 0].tolist():
        assert set(elite_indices(bounds.perturbed_costs[view], count).tolist()) == chosen


@given(cases(views=1), st.sampled_from([1e-4, 0.1]), st.integers(0, 2**32))
def test_certified_choices_hold_for_any_latents_within_the_tolerance(
    case: Case, tolerance: float, seed: int
) -> None:
    """Every predicted latent, clean and perturbed, moved in the worst directions that are known."""
    bounds = case.cost(endpoint_tolerance=tolerance).bounds(case.clean, case.perturbed, case.goal)
    count = max(1, len(case.clean) // 2)
    certified = elite_certificate(bounds, count).certified[0]
    elites = elite_indices(bounds.clean_costs, count)
    sign = torch.ones(len(case.clean), 1, 1, dtype=torch.float64)
    sign[elites] = -1
    generator = torch.Generator().manual_seed(seed)
    latents = ("goal", "clean", "perturbed")
    exact = case._replace(**{name: getattr(case, name).double() for name in latents})
    for towards in (sign * (exact.goal - exact.clean), sign * torch.sign(exact.goal - exact.clean),
                    torch.randn(case.clean.shape, generator=generator).double()):  # fmt: skip
        step = towards / towards.norm(dim=-1, keepdim=True).clamp(min=1e-300)
        moved = [part + tolerance * (1 - 1e-9) * step for part in (exact.clean, exact.perturbed)]
        true = exact.cost().bounds(*moved, exact.goal)
        change = (true.perturbed_costs - true.clean_costs).abs()
        assert (change <= bounds.bounds + 1e-11 * (1 + true.perturbed_costs)).all()
        if certified:
            for costs in (true.clean_costs, true.perturbed_costs[0]):
                assert set(elite_indices(costs, count).tolist()) == set(elites.tolist())


@given(cases(), st.floats(0.0, 100.0))
def test_what_depends_on_actions_alone_cancels(case: Case, size: float) -> None:
    """Prop. added: a penalty or offset moves costs, and neither bounds nor the gap's change."""
    offsets = size * torch.randn(len(case.clean), generator=torch.Generator().manual_seed(1))
    free = case._replace(objective=replace(case.objective, control_weights=()))
    alone = free.cost().bounds(case.clean, case.perturbed, case.goal)
    full = case.cost(offsets=offsets).bounds(case.clean, case.perturbed, case.goal)
    scale = 1e-12 * (full.clean_costs.abs().max() + alone.clean_costs.max() + 1 + 10 * size)
    moved = full.perturbed_costs - full.clean_costs - (alone.perturbed_costs - alone.clean_costs)
    assert (moved.abs() <= scale).all()
    assert ((full.bounds - alone.bounds).abs() <= scale).all()
    unmoved = (case.clean == case.perturbed).flatten(2).all(dim=-1)
    assert (full.bounds[unmoved] == 0).all()


@given(cases(), st.data())
def test_an_infeasible_candidate_is_never_chosen_and_limits_nothing(
    case: Case, data: st.DataObject
) -> None:
    """Prop. constraints: certificates are those of the pool without it."""
    count = len(case.clean)
    out = data.draw(st.integers(0, count - 1))
    left = [j for j in range(count) if j != out]
    bounds = case.cost(infeasible=[out]).bounds(case.clean, case.perturbed, case.goal)
    pool = case._replace(
        candidates=case.candidates[left], clean=case.clean[left], perturbed=case.perturbed[:, left]
    )
    without = pool.cost().bounds(pool.clean, pool.perturbed, pool.goal)
    assert bounds.clean_costs[out] == math.inf
    assert excess_cost(bounds).winner != out
    assert torch.equal(top1_certificate(bounds).margin, top1_certificate(without).margin)
    for elites in range(1, count - 1):
        ours, theirs = (elite_certificate(part, elites) for part in (bounds, without))
        assert torch.equal(ours.margin, theirs.margin)
    fewer_feasible = case.cost(infeasible=range(1, count)).bounds(
        case.clean, case.perturbed, case.goal
    )
    assert top1_certificate(fewer_feasible).certified.all()
    if count > 2:
        assert not elite_certificate(fewer_feasible, 2).certified.any()


@given(cases())
def test_the_chain_through_acpc_is_never_tighter(case: Case) -> None:
    """Prop. chain."""
    horizon = case.clean.shape[1]
    alphas = horizon_weights((), horizon)
    values = acpc(step_distances(case.clean[None], case.perturbed), alphas)
    for tolerance in (0.0, 0.1):
        bounds = case.cost(endpoint_tolerance=tolerance).bounds(
            case.clean, case.perturbed, case.goal
        )
        chained = chained_objective_bounds(bounds, values, alphas)
        assert (bounds.bounds <= chained).all()
        assert torch.isfinite(chained).all()
    if horizon > 1:
        first = torch.zeros(horizon, dtype=torch.float64)
        first[0] = 1.0
        last = case._replace(objective=Objective())
        bounds = last.cost().bounds(case.clean, case.perturbed, case.goal)
        assert torch.isinf(chained_objective_bounds(bounds, values, first)).all()


@given(cases())
def test_the_default_is_the_papers(case: Case) -> None:
    plain = case._replace(objective=Objective())
    reduction = "mean" if case.mean else "sum"
    ours = plain.cost().bounds(case.clean, case.perturbed, case.goal)
    theirs = pool_bounds(
        case.clean[:, -1], case.perturbed[:, :, -1], case.goal, reduction=reduction
    )
    for name in ("clean_costs", "perturbed_costs", "displacements"):
        np.testing.assert_allclose(getattr(ours, name), getattr(theirs, name), rtol=1e-13)
    room = 1e-12 * (1 + theirs.clean_costs.max() + theirs.perturbed_costs.max())
    assert ((ours.bounds - theirs.bounds).abs() <= room).all()
    margins = [top1_certificate(bounds).margin for bounds in (ours, theirs)]
    np.testing.assert_allclose(*margins, atol=float(room))


@pytest.mark.parametrize(
    ("objective", "more", "field"),
    [
        (
            Objective((DistanceTerm(step_weights=(1.0, 1.0)),)),
            {},
            "objective.terms[0].step_weights",
        ),
        (
            Objective((DistanceTerm(), DistanceTerm(coordinate_weights=(1.0,)))),
            {},
            "objective.terms[1].coordinate_weights",
        ),
        (Objective(control_weights=(1.0, 1.0, 1.0)), {}, "objective.control_weights"),
        (Objective(), {"infeasible": [4]}, "infeasible"),
        (Objective(), {"infeasible": range(4)}, "infeasible"),
        (Objective(), {"endpoint_tolerance": -1.0}, "endpoint_tolerance"),
    ],
)
def test_what_does_not_fit_the_pool_is_named(
    objective: Objective, more: dict[str, object], field: str
) -> None:
    with pytest.raises(InvalidArgument) as caught:
        PoolCost(objective, 2, torch.zeros(4, 3, BLOCK), **more)
    assert caught.value.field == field
