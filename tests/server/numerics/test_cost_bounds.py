"""Cost bounds, excess cost and certificates: the propositions of the paper as properties."""

import inspect
import math
from collections.abc import Iterator

import numpy as np
import numpy_reference as reference
import pytest
import torch
from acpc_server.errors import InvalidArgument
from acpc_server.numerics.consistency import acpc, horizon_weights, step_distances
from acpc_server.numerics.cost_bounds import (
    Reduction,
    chained_bounds,
    elite_certificate,
    elite_indices,
    excess_cost,
    pool_bounds,
    top1_certificate,
)
from hypothesis import given
from hypothesis import strategies as st

Pool = tuple[torch.Tensor, torch.Tensor, torch.Tensor]


@st.composite
def pools(draw: st.DrawFn, views: int = 2) -> Pool:
    """Float32 pools; perturbations from none to larger than the pool."""
    generator = np.random.default_rng(draw(st.integers(0, 2**32)))
    candidates, width = draw(st.integers(2, 9)), draw(st.integers(1, 6))
    size = 10.0 ** draw(st.integers(-8, 1)) * draw(st.integers(0, 1))
    clean = generator.normal(size=(candidates, width))
    perturbed = clean + size * generator.normal(size=(views, candidates, width))
    goal = generator.normal(size=width)
    return tuple(torch.from_numpy(part).float() for part in (clean, perturbed, goal))


@given(pools())
def test_costs_and_bounds_are_the_papers(pool: Pool) -> None:
    clean, perturbed, goal = pool
    bounds = pool_bounds(clean, perturbed, goal)
    for view, endpoints in enumerate(perturbed):
        expected = reference.cost_bounds(clean.numpy(), endpoints.numpy(), goal.numpy())
        actual = (bounds.clean_costs, bounds.perturbed_costs[view], bounds.displacements[view])
        for ours, theirs in zip(actual, expected[:3], strict=True):
            np.testing.assert_allclose(ours.numpy(), theirs, rtol=1e-14)
        # b is rounded up, by a few hundred roundings of the costs it compares.
        excess = bounds.bounds[view].numpy() - expected[3]
        scale = expected[0] + expected[1]
        assert (-1e-15 * scale <= excess).all()
        assert (excess <= 1e-13 * scale).all()


@given(st.integers(0, 2**32), st.integers(1, 5), st.sampled_from([0.0, 0.1]))
def test_pools_measured_at_once_have_the_bits_they_have_alone(
    seed: int, count: int, tolerance: float
) -> None:
    generator = torch.Generator().manual_seed(seed)
    clean, goals = (torch.randn(count, *shape, generator=generator) for shape in ((9, 5), (5,)))
    perturbed = clean[:, None] + 0.3 * torch.randn(count, 2, 9, 5, generator=generator)

    def measured(*pool: torch.Tensor) -> list[torch.Tensor]:
        bounds = pool_bounds(*pool, endpoint_tolerance=tolerance)
        found = bounds, excess_cost(bounds), top1_certificate(bounds), elite_certificate(bounds, 3)
        values = [value for one in found for value in vars(one).values()]
        return [value for value in values if isinstance(value, torch.Tensor)]

    together = measured(clean[:, None], perturbed, goals[:, None])
    for row, pool in enumerate(zip(clean, perturbed, goals, strict=True)):
        for one, every in zip(measured(*pool), together, strict=True):
            assert torch.equal(one, every[row].reshape(one.shape))


@given(pools())
def test_cost_change_is_at_most_the_bound(pool: Pool) -> None:
    """Prop. exact-cost-certificate, for the costs as they are reported."""
    bounds = pool_bounds(*pool)
    change = (bounds.perturbed_costs - bounds.clean_costs).abs()
    assert (change <= bounds.bounds).all()


@given(pools(views=1), st.sampled_from(["sum", "mean"]))
def test_an_unmoved_endpoint_has_no_bound(pool: Pool, reduction: Reduction) -> None:
    clean, perturbed, goal = pool
    perturbed[:, ::2] = clean[::2]
    bounds = pool_bounds(clean, perturbed, goal, reduction=reduction)
    assert (bounds.bounds[0, ::2] == 0).all()
    assert torch.equal(bounds.perturbed_costs[0, ::2], bounds.clean_costs[::2])
    loose = pool_bounds(clean, perturbed, goal, reduction=reduction, endpoint_tolerance=1e-6)
    assert (loose.bounds > 0).all()


@pytest.mark.parametrize(("s", "t"), [(3.0, 5.0), (8.0, 1.0), (0.0, 2.0), (4.0, 4.0)])
def test_cost_bound_is_attained_on_a_ray(s: float, t: float) -> None:
    """Appendix, Tightness of the bounds: g = 0, x = s u, x~ = t u."""
    unit = torch.tensor([[0.0, 1.0, 0.0]])
    bounds = pool_bounds(s * unit, t * unit, torch.zeros(3))
    change = (bounds.perturbed_costs - bounds.clean_costs).abs()
    assert change.item() == abs(t - s) * (t + s)
    assert change.item() <= bounds.bounds.item() <= change.item() + 1e-13 * (s + t) ** 2


@given(pools())
def test_excess_cost_is_at_most_the_two_bounds(pool: Pool) -> None:
    """Eq. fixed-pool-regret-bound."""
    bounds = pool_bounds(*pool)
    excess = excess_cost(bounds)
    costs = bounds.clean_costs
    assert excess.winner == int(np.argmin(costs.numpy()))
    for view in range(len(pool[1])):
        winner = int(np.argmin(bounds.perturbed_costs[view].numpy()))
        assert excess.perturbed_winner[view] == winner
        assert excess.excess[view] == costs[winner] - costs[excess.winner]
        assert (
            excess.bound[view] == bounds.bounds[view, winner] + bounds.bounds[view, excess.winner]
        )
        assert 0 <= excess.excess[view] <= excess.bound[view]


@given(pools(views=3), st.integers(1, 8), st.sampled_from([0.0, 1e-6, 0.1]))
def test_the_chain_through_acpc_is_never_tighter(
    pool: Pool, horizon: int, tolerance: float
) -> None:
    """Eq. acpc-cost-chain: b_j <= ACPC_H / sqrt(alpha_H) (p + q)."""
    clean, perturbed, goal = pool
    bounds = pool_bounds(clean, perturbed, goal, endpoint_tolerance=tolerance)
    weights = horizon_weights((), horizon)
    generator = torch.Generator().manual_seed(horizon)
    early = torch.randn(2, len(clean), horizon - 1, clean.shape[1], generator=generator)
    ours = torch.cat([early[0], clean[:, None]], dim=1)  # (J, H, dim)
    theirs = torch.cat([early[1].expand(3, -1, -1, -1), perturbed[:, :, None]], dim=2)
    values = acpc(step_distances(ours, theirs), weights)  # (views, J)
    chained = chained_bounds(bounds, values, weights[-1].item())
    assert (bounds.bounds <= chained).all()
    if horizon == 1:
        np.testing.assert_allclose(chained.numpy(), bounds.bounds.numpy(), rtol=1e-13)


def test_the_chain_is_infinite_without_weight_on_the_last_step() -> None:
    bounds = pool_bounds(torch.zeros(2, 1), torch.zeros(2, 1), torch.zeros(1))
    chained = chained_bounds(bounds, torch.ones(2, dtype=torch.float64), 0.0)
    assert chained.tolist() == [math.inf, math.inf]
    with pytest.raises(InvalidArgument, match="weights lie in"):
        chained_bounds(bounds, torch.ones(2, dtype=torch.float64), -0.1)


@given(pools(), st.data())
def test_certificates_agree_with_the_papers_condition(pool: Pool, data: st.DataObject) -> None:
    bounds = pool_bounds(*pool)
    candidates = len(pool[0])
    count = data.draw(st.integers(1, candidates - 1))
    certificate = elite_certificate(bounds, count)
    costs = bounds.clean_costs.tolist()
    for view, row in enumerate(bounds.bounds):
        expected = reference.elite_margin(costs, row.tolist(), count)
        room = 1e-12 * (max(costs) + row.max().item())
        assert expected - room <= certificate.margin[view].item() <= expected + room
        assert certificate.certified[view] == (certificate.margin[view] > 0)
    top1, elite1 = top1_certificate(bounds), elite_certificate(bounds, 1)
    assert torch.equal(top1.margin, elite1.margin)


@given(pools(views=4), st.sampled_from([0.0, 1e-4, 1e-2, 0.1]), st.integers(0, 2**32))
def test_certified_selections_survive_any_endpoints_within_tolerance(
    pool: Pool, tolerance: float, seed: int
) -> None:
    """Prop. fixed-pool-certificates at the true endpoints, pushed against the selection."""
    clean, perturbed, goal = (part.double() for part in pool)
    count = max(1, len(clean) // 2)
    bounds = pool_bounds(clean, perturbed, goal, endpoint_tolerance=tolerance)
    certificate = elite_certificate(bounds, count)
    elites = elite_indices(bounds.clean_costs, count)
    sign = torch.ones(len(clean), 1, dtype=torch.float64)
    sign[elites] = -1  # elites move away from the goal, their rivals towards it
    generator = torch.Generator().manual_seed(seed)

    def moved(points: torch.Tensor) -> Iterator[torch.Tensor]:
        noise = torch.randn(points.shape, generator=generator, dtype=torch.float64)
        for step in (sign * (goal - points), noise):
            length = torch.linalg.vector_norm(step, dim=-1, keepdim=True).clamp(min=1e-300)
            yield points + tolerance * (1 - 1e-9) * step / length

    for true_clean, true_perturbed in zip(moved(clean), moved(perturbed), strict=True):
        true = pool_bounds(true_clean, true_perturbed, goal)
        change = (true.perturbed_costs - true.clean_costs).abs()
        assert (change <= bounds.bounds + 1e-13 * (1 + true.perturbed_costs)).all()
        for view in certificate.certified.nonzero()[:, 0]:
            for costs in (true.clean_costs, true.perturbed_costs[view]):
                assert set(elite_indices(costs, count).tolist()) == set(elites.tolist())


def test_tolerance_only_ever_withdraws_certificates() -> None:
    clean = torch.tensor([[1.0], [2.0]])
    margins = [
        top1_certificate(
            pool_bounds(clean, clean, torch.zeros(1), endpoint_tolerance=tolerance)
        ).margin.item()
        for tolerance in (0.0, 0.01, 0.1, 0.5)
    ]
    assert margins == sorted(margins, reverse=True)
    # b = 2 eps (2 p + 2 eps) on both sides of a gap of 3.
    expected = [3 - sum(2 * e * (2 * p + 2 * e) for p in (1, 2)) for e in (0.0, 0.01, 0.1, 0.5)]
    assert margins == pytest.approx(expected, rel=1e-12)


@given(pools())
def test_mean_and_sum_certify_alike(pool: Pool) -> None:
    width = pool[0].shape[1]
    total, mean = (pool_bounds(*pool, reduction=kind) for kind in ("sum", "mean"))
    np.testing.assert_allclose(mean.clean_costs.numpy() * width, total.clean_costs.numpy())
    np.testing.assert_allclose(mean.bounds.numpy() * width, total.bounds.numpy())
    assert torch.equal(mean.displacements, total.displacements)
    by_sum, by_mean = top1_certificate(total), top1_certificate(mean)
    assert torch.equal(by_sum.certified, by_mean.certified)
    np.testing.assert_allclose(by_mean.margin.numpy() * width, by_sum.margin.numpy())


@pytest.mark.parametrize("size", [0.0, 1e-3])
def test_equal_candidates_are_never_certified(size: float) -> None:
    clean = torch.tensor([[1.0, 2.0], [1.0, 2.0], [5.0, 5.0], [-1.0, -2.0]])
    for rows in ([0, 1, 2], [0, 3, 2]):  # a mirrored candidate is a tie too
        bounds = pool_bounds(clean[rows], clean[rows] * (1 + size), torch.zeros(2))
        assert not top1_certificate(bounds).certified
        assert elite_certificate(bounds, 2).certified


def test_a_pool_of_one_cannot_change_its_winner() -> None:
    certificate = top1_certificate(pool_bounds(torch.ones(1, 2), torch.zeros(1, 2), torch.zeros(2)))
    assert certificate.certified
    assert certificate.margin == math.inf


@pytest.mark.parametrize("scale", [1e200, 1e160])
def test_overflow_certifies_nothing(scale: float) -> None:
    clean = torch.tensor([[0.0], [scale]], dtype=torch.float64)
    certificate = top1_certificate(pool_bounds(clean, clean, torch.zeros(1)))
    assert not certificate.certified
    assert certificate.margin == -math.inf


def test_elites_are_the_lowest_costs_lowest_index_first() -> None:
    costs = torch.tensor([[3.0, 1.0, 1.0, 0.5], [0.0, 0.0, 0.0, 0.0]])
    assert elite_indices(costs, 3).tolist() == [[3, 1, 2], [0, 1, 2]]
    for row in costs:
        assert elite_indices(row, 4).tolist() == reference.elites(row.tolist(), 4)


@pytest.mark.parametrize("count", [0, 3, 4])
def test_elite_counts_without_an_outside_are_refused(count: int) -> None:
    bounds = pool_bounds(torch.zeros(3, 1), torch.zeros(3, 1), torch.zeros(1))
    with pytest.raises(InvalidArgument, match=f"elite_count: is {count}"):
        elite_certificate(bounds, count)
    if count != 3:
        with pytest.raises(InvalidArgument, match="1 to 3 elites"):
            elite_indices(bounds.clean_costs, count)


@pytest.mark.parametrize("value", [math.nan, math.inf])
@pytest.mark.parametrize("part", [0, 1, 2])
def test_latents_that_are_not_finite_are_refused(part: int, value: float) -> None:
    parts = [torch.zeros(2, 3), torch.zeros(4, 2, 3), torch.zeros(3)]
    parts[part].view(-1)[-1] = value
    with pytest.raises(InvalidArgument, match="NaN or infinity") as caught:
        pool_bounds(*parts)
    assert caught.value.field == ("clean_endpoints", "perturbed_endpoints", "goal")[part]


@pytest.mark.parametrize("tolerance", [-1e-9, math.nan, math.inf])
def test_bad_tolerances_are_refused(tolerance: float) -> None:
    with pytest.raises(InvalidArgument, match="endpoint_tolerance: is"):
        pool_bounds(
            torch.zeros(2, 1), torch.zeros(2, 1), torch.zeros(1), endpoint_tolerance=tolerance
        )


def test_shapes_that_do_not_fit_are_refused() -> None:
    """Also where shape annotations are not checked, as in production."""
    unchecked = inspect.unwrap(pool_bounds)
    with pytest.raises(InvalidArgument, match=r"\(3, 2\) clean, \(1, 2\) perturbed"):
        unchecked(torch.zeros(3, 2), torch.zeros(1, 2), torch.zeros(2))
    with pytest.raises(InvalidArgument, match=r"\(1,\) goal"):
        unchecked(torch.zeros(3, 2), torch.zeros(3, 2), torch.zeros(1))
    with pytest.raises(InvalidArgument, match="none may be 0"):
        pool_bounds(torch.zeros(0, 2), torch.zeros(0, 2), torch.zeros(2))
