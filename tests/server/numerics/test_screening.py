"""Motion scale, radii, IR and SR follow the paper."""

import math
from collections.abc import Callable

import numpy as np
import numpy_reference as reference
import pytest
import torch
from acpc_server.errors import FailedPrecondition, InvalidArgument
from acpc_server.numerics.consistency import horizon_weights
from acpc_server.numerics.screening import (
    check_eligible,
    deciding_anchors,
    different_state_distance,
    invariance_radius,
    median_latent_distance,
    motion_scale,
    normalised_radius,
    separation_rate,
    step_radius,
    transitions,
)
from hypothesis import assume, given
from hypothesis import strategies as st

ANCHORS, DRAWS, HORIZON, WIDTH = 12, 3, 8, 5
ONE = torch.ones(1, dtype=torch.float64)


@pytest.fixture
def latents() -> torch.Generator:
    return torch.Generator().manual_seed(11)


@pytest.mark.parametrize("horizon", [1, 2, 7, 8])
def test_motion_scale_is_the_median_transition(latents: torch.Generator, horizon: int) -> None:
    observed = torch.randn(ANCHORS, horizon + 1, WIDTH, generator=latents)
    expected = [reference.motion_scale(anchor.numpy()) for anchor in observed]
    np.testing.assert_allclose(motion_scale(transitions(observed)).numpy(), expected, rtol=1e-14)


def test_invariance_radius_averages_draws_before_the_quantile(latents: torch.Generator) -> None:
    distances = torch.rand(ANCHORS, DRAWS, generator=latents, dtype=torch.float64)
    scale = torch.rand(ANCHORS, generator=latents, dtype=torch.float64)
    expected = [
        reference.mean_radius(row.tolist(), s.item())
        for row, s in zip(distances, scale, strict=True)
    ]
    radius = normalised_radius(distances, scale)
    np.testing.assert_allclose(radius.mean(dim=1).numpy(), expected, rtol=1e-14)
    for quantile in (0.80, 0.90, 0.95):
        assert invariance_radius(radius, quantile) == pytest.approx(
            reference.invariance_radius(expected, quantile), rel=1e-14
        )


@pytest.mark.parametrize(
    ("quantile", "ranks"),
    [(0.9, [8, 9, 10, 11]), (0.0, [0, 1, 2]), (1.0, [10, 11]), (0.5, [4, 5, 6, 7])],
)
def test_ir_lies_between_the_radii_that_decide_it(quantile: float, ranks: list[int]) -> None:
    order = torch.randperm(ANCHORS, generator=torch.Generator().manual_seed(3))
    radius = torch.empty(ANCHORS, dtype=torch.float64)
    radius[order] = torch.arange(ANCHORS, dtype=torch.float64) ** 2
    assert deciding_anchors(radius, quantile) == order[ranks].tolist()
    ir = invariance_radius(radius[:, None], quantile)
    middle = radius[order[ranks]]
    assert middle.min() <= ir <= middle.max()
    assert deciding_anchors(radius[:1], quantile) == [0]


def test_step_radius_is_each_steps_distance_in_units_of_motion(latents: torch.Generator) -> None:
    distances = torch.rand(ANCHORS, DRAWS, HORIZON, generator=latents, dtype=torch.float64)
    scale = torch.rand(ANCHORS, generator=latents, dtype=torch.float64)
    found = step_radius(distances, scale)
    for anchor in range(ANCHORS):
        for step in range(HORIZON):
            draws = distances[anchor, :, step].tolist()
            expected = reference.mean_radius(draws, scale[anchor].item())
            assert found[anchor, step].item() == pytest.approx(expected, rel=1e-14)


def test_a_motionless_anchor_is_divided_by_the_stabiliser() -> None:
    assert normalised_radius(2 * ONE[None], 0 * ONE).item() == 2.0 / 1e-8


def test_different_state_distance_is_the_papers(latents: torch.Generator) -> None:
    own, other = torch.randn(2, ANCHORS, HORIZON, WIDTH, generator=latents)
    scale = torch.rand(ANCHORS, generator=latents, dtype=torch.float64)
    weights = horizon_weights((), HORIZON)
    expected = [
        reference.different_state_distance(a.numpy(), b.numpy(), weights.tolist(), s.item())
        for a, b, s in zip(own, other, scale, strict=True)
    ]
    actual = different_state_distance(own, other, weights, scale)
    np.testing.assert_allclose(actual.numpy(), expected, rtol=1e-14)


@given(
    st.lists(st.one_of(st.just(math.nan), st.floats(0, 5)), min_size=1, max_size=30),
    st.floats(0, 5),
    st.floats(0, 1),
)
def test_separation_rate_counts_eligible_anchors(
    distances: list[float], ir_raw: float, margin: float
) -> None:
    assume(not all(math.isnan(d) for d in distances))
    actual = separation_rate(torch.tensor(distances, dtype=torch.float64), ir_raw, margin)
    assert actual == reference.separation_rate(distances, ir_raw, margin)


def test_separation_is_strict_and_counts_are_exact() -> None:
    """95 of 100 separated pairs is 0.95, not a rounding below it."""
    boundary = 0.25 + 0.10
    distances = [math.nextafter(boundary, math.inf)] * 95 + [boundary] * 5 + [math.nan]
    assert separation_rate(torch.tensor(distances, dtype=torch.float64), 0.25, 0.10) == 0.95


def test_median_latent_distance_is_over_all_pairs(latents: torch.Generator) -> None:
    points = torch.randn(ANCHORS, WIDTH, generator=latents)
    expected = reference.median_latent_distance(points.numpy())
    assert median_latent_distance(points) == pytest.approx(expected, rel=1e-14)


@pytest.mark.parametrize("broken", [math.nan, math.inf])
def test_predictions_that_are_not_finite_are_refused(broken: float) -> None:
    radius = torch.tensor([[0.1, 0.2], [0.3, broken]], dtype=torch.float64)
    with pytest.raises(FailedPrecondition, match="not finite for 1 of 2 anchors"):
        invariance_radius(radius, 0.9)
    rollouts = torch.tensor([[[0.0]], [[broken]]])
    scale = torch.ones(2, dtype=torch.float64)
    with pytest.raises(FailedPrecondition, match="no SR"):
        different_state_distance(rollouts, torch.zeros(2, 1, 1), horizon_weights((), 1), scale)


REFUSED: list[tuple[Callable[[], object], type[Exception], str]] = [
    (lambda: check_eligible(0, 9), FailedPrecondition, "none of the 9 anchors has a nearby anchor"),
    (lambda: transitions(torch.zeros(3, 1, 4)), InvalidArgument, "motion needs at least 2"),
    (lambda: invariance_radius(ONE.new_zeros(3, 0), 0.9), InvalidArgument, "at least 1 draw"),
    (lambda: invariance_radius(ONE.new_zeros(0, 3), 0.9), InvalidArgument, "give more anchors"),
    (lambda: separation_rate(ONE, 0.1, -0.1), InvalidArgument, "margin: is"),
    (lambda: separation_rate(ONE, 0.1, math.nan), InvalidArgument, "margin: is"),
    (lambda: separation_rate(ONE, 0.1, math.inf), InvalidArgument, "margin: is"),
    (lambda: separation_rate(ONE * math.nan, 0.1, 0.1), FailedPrecondition, "none of the 1 anch"),
]


@pytest.mark.parametrize(("call", "kind", "words"), REFUSED)
def test_what_has_no_number_is_refused(
    call: Callable[[], object], kind: type[Exception], words: str
) -> None:
    with pytest.raises(kind, match=words):
        call()
