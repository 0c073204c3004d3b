"""ACPC and its companions agree with the paper's text and obey its propositions."""

import inspect
import math
from collections.abc import Callable

import numpy as np
import numpy_reference as reference
import pytest
import torch
from acpc_server.errors import InvalidArgument
from acpc_server.numerics.consistency import (
    acpc,
    drift_bound,
    encoder_shift,
    error_drift,
    horizon_weights,
    prediction_error,
    step_distances,
)
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

LATENTS = hnp.arrays(
    np.float32,
    st.tuples(st.integers(1, 5), st.integers(1, 6)),
    elements=st.floats(-100, 100, width=32),
)


@st.composite
def rollouts(draw: st.DrawFn, count: int) -> tuple[list[torch.Tensor], torch.Tensor]:
    """``count`` rollouts of one shape, and horizon weights."""
    first = draw(LATENTS)
    same = hnp.arrays(np.float32, first.shape, elements=st.floats(-100, 100, width=32))
    others = [draw(same) for _ in range(count - 1)]
    raw = draw(st.lists(st.integers(0, 9), min_size=len(first), max_size=len(first)).filter(sum))
    weights = torch.tensor([value / sum(raw) for value in raw], dtype=torch.float64)
    return [torch.from_numpy(array) for array in (first, *others)], weights


@given(rollouts(2))
def test_acpc_is_the_papers_weighted_norm(drawn: tuple[list[torch.Tensor], torch.Tensor]) -> None:
    (clean, perturbed), weights = drawn
    expected = reference.acpc(clean.numpy(), perturbed.numpy(), weights.tolist())
    assert acpc(step_distances(clean, perturbed), weights).item() == pytest.approx(
        expected, rel=1e-13, abs=1e-300
    )
    # The other side of Eq. acpc-h: the distance between the two stacked, weighted rollouts.
    root = weights.sqrt()[:, None]
    stacked = torch.linalg.vector_norm(root * clean.double() - root * perturbed.double())
    assert stacked.item() == pytest.approx(expected, rel=1e-12, abs=1e-12)
    # Appendix, Relation to ACPC: sqrt(alpha_H) r <= ACPC_H.
    last = weights[-1].sqrt() * step_distances(clean, perturbed)[-1]
    assert last.item() <= acpc(step_distances(clean, perturbed), weights).item() * (1 + 1e-14)


@given(rollouts(3))
def test_error_change_is_at_most_acpc(drawn: tuple[list[torch.Tensor], torch.Tensor]) -> None:
    """Prop. target-free-error-drift, with room for the rounding of the two errors only."""
    (clean, perturbed, observed), weights = drawn
    before = prediction_error(clean, observed, weights)
    after = prediction_error(perturbed, observed, weights)
    assert before.item() == pytest.approx(
        reference.prediction_error(clean.numpy(), observed.numpy(), weights.tolist()), rel=1e-12
    )
    rounding = 1e-14 * (before + after).item()
    bound = acpc(step_distances(clean, perturbed), weights).item()
    assert error_drift(before, after).item() <= bound + rounding


Measure = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]
WIDE = 360_000


@pytest.mark.parametrize("measure", [step_distances, encoder_shift])
def test_leading_axes_broadcast_over_views(measure: Measure) -> None:
    """Distances keep the steps; the encoder's shift stacks the whole history."""
    generator = torch.Generator().manual_seed(2)
    clean = torch.randn(2, 1, 3, 4, generator=generator)
    views = torch.randn(2, 5, 3, 4, generator=generator)
    found, by_loops = measure(clean, views), getattr(reference, measure.__name__)
    expected = [
        [by_loops(x[0].numpy(), y.numpy()) for y in ys] for x, ys in zip(clean, views, strict=True)
    ]
    np.testing.assert_allclose(found, expected, rtol=1e-14)


@pytest.mark.parametrize("measure", [step_distances, encoder_shift])
@pytest.mark.parametrize("shapes", [((1, 2, 3), (2, 2, 3)), ((3,), (4, 3)), ((5, 3), (3,))])
def test_distances_of_many_coordinates_are_those_of_each(
    measure: Measure, shapes: tuple[tuple[int, ...], ...]
) -> None:
    pools = [torch.linspace(-1, 2, math.prod(x) * WIDE).reshape(*x, WIDE) for x in shapes]
    found = measure(*pools)
    clean, perturbed = torch.broadcast_tensors(*pools)
    for index in np.ndindex(clean.shape[:-2]):
        alone = measure(clean[index], perturbed[index])
        torch.testing.assert_close(found[index], alone, rtol=1e-14, atol=0.0)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_distances_are_exact_where_the_input_type_would_round(dtype: torch.dtype) -> None:
    """1024 - 2^-20 needs 31 bits: it survives only a cast that comes before the subtraction."""
    clean = torch.tensor([[1024.0, 2**-20]], dtype=dtype)
    perturbed = torch.tensor([[2**-20, 1024.0]], dtype=dtype)
    expected = math.sqrt(2) * (1024 - 2**-20)
    assert step_distances(clean, perturbed).item() == pytest.approx(expected, rel=1e-15)


def test_shapes_that_would_broadcast_silently_are_refused() -> None:
    """Also where shape annotations are not checked, as in production."""
    with pytest.raises(InvalidArgument, match="last two axes"):
        inspect.unwrap(step_distances)(torch.zeros(8, 4), torch.zeros(1, 4))


def test_weights_are_uniform_or_as_given() -> None:
    assert horizon_weights((), 8).tolist() == [0.125] * 8
    given_weights = [0.1 + 5e-7, 0.2, 0.7]
    assert horizon_weights(given_weights, 3).tolist() == given_weights


@pytest.mark.parametrize(
    ("weights", "horizon", "message"),
    [
        ([0.5, 0.5], 3, "2 entries for 3 predicted steps"),
        ([0.5, 0.6], 2, "sum to 1.1"),
        ([0.5, 0.5 + 2e-6], 2, "must sum to 1"),
        ([1.5, -0.5], 2, "entry 1 is -0.5"),
        ([math.nan, 1.0], 2, "entry 0 is nan"),
        ([math.inf, 1.0], 2, "entry 0 is inf"),
        ([0.0, 0.0], 2, "sum to 0"),
        ([1e308, 1e308], 2, "sum to inf"),
        ([], 0, "^horizon: is 0"),
    ],
)
def test_bad_weights_are_refused(weights: list[float], horizon: int, message: str) -> None:
    with pytest.raises(InvalidArgument, match=message) as caught:
        horizon_weights(weights, horizon)
    assert caught.value.field == ("weights" if horizon else "horizon")


@given(data=st.data())
def test_the_drift_never_exceeds_its_bound_even_where_rounding_dominates(
    data: st.DataObject,
) -> None:
    """Proposition 1 holds for the computed numbers: large errors, tiny or collinear differences."""
    horizon, dim = data.draw(st.integers(1, 8)), data.draw(st.integers(1, 32))
    seed = data.draw(st.integers(0, 2**31))
    spread = 10.0 ** data.draw(st.integers(-18, 3))
    generator = torch.Generator().manual_seed(seed)
    base = torch.randn(horizon, dim, generator=generator)
    observed = 1e3 * torch.randn(horizon, dim, generator=generator)
    towards = observed if data.draw(st.booleans()) else torch.randn(horizon, dim)
    views = base + spread * towards
    weights = horizon_weights((), horizon)
    pair = acpc(step_distances(base[None], views[None]), weights)
    clean = prediction_error(base[None], observed[None], weights)
    perturbed = prediction_error(views[None], observed[None], weights)
    bound = drift_bound(pair, clean, perturbed, horizon=horizon, dim=dim)
    assert error_drift(clean, perturbed) <= bound
    assert bound <= pair + 1e-9 * (clean + perturbed + pair)
