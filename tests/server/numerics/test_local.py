"""Local geometry and sensitivity against loops from the paper, and maps of known norm."""

import itertools
import math

import numpy as np
import pytest
import torch
from acpc_server.errors import InvalidArgument
from acpc_server.numerics.consistency import horizon_weights
from acpc_server.numerics.local import (
    finite_difference,
    gaussian_probe,
    local_geometry,
    pixel_direction,
    rademacher_probe,
    squared_norm,
)
from hypothesis import given
from hypothesis import strategies as st


def distance(a: np.ndarray, b: np.ndarray) -> float:
    return math.sqrt(sum((float(x) - float(y)) ** 2 for x, y in zip(a, b, strict=True)))


def brute_force(
    clean: np.ndarray, views: np.ndarray
) -> tuple[list[float], list[float], list[bool]]:
    """Eq. local-radius-spacing and Eq. local-cloud-disjoint, anchor by anchor."""
    n = len(clean)
    radius = [max(distance(view, clean[i]) for view in views[i]) for i in range(n)]
    nearest = [min(distance(clean[i], clean[j]) for j in range(n) if j != i) for i in range(n)]
    disjoint = [
        all(distance(clean[i], clean[j]) > radius[i] + radius[j] for j in range(n) if j != i)
        for i in range(n)
    ]
    return radius, nearest, disjoint


@given(
    n=st.integers(2, 12),
    count=st.integers(1, 5),
    spread=st.sampled_from([0.01, 0.5, 3.0]),
    seed=st.integers(0, 2**32 - 1),
)
def test_every_quantity_is_the_brute_force_one(
    n: int, count: int, spread: float, seed: int
) -> None:
    generator = np.random.default_rng(seed)
    clean = generator.standard_normal((n, 4)).astype(np.float32)
    views = clean[:, None] + spread * generator.standard_normal((n, count, 4)).astype(np.float32)
    found = local_geometry(torch.from_numpy(clean), torch.from_numpy(views))
    radius, nearest, disjoint = brute_force(clean, views)
    np.testing.assert_allclose(found.radius.numpy(), radius, rtol=1e-12)
    np.testing.assert_allclose(found.nearest.numpy(), nearest, rtol=1e-12)
    assert found.disjoint.tolist() == disjoint


def test_many_anchors_are_cut_without_a_seam() -> None:
    generator = torch.Generator().manual_seed(3)
    clean = torch.randn(600, 5, generator=generator).double()
    views = clean[:, None] + 0.05 * torch.randn(600, 3, 5, generator=generator)
    found = local_geometry(clean, views)
    apart = (clean[:, None] - clean).norm(dim=-1).fill_diagonal_(math.inf)
    radius = (views - clean[:, None]).norm(dim=-1).amax(dim=1)
    torch.testing.assert_close(found.radius, radius)
    torch.testing.assert_close(found.nearest, apart.amin(dim=1))
    assert torch.equal(found.disjoint, (apart > radius[:, None] + radius).all(dim=1))
    assert 0 < found.disjoint.sum() < 600


def test_close_anchors_far_from_the_origin_keep_their_digits() -> None:
    clean = torch.tensor([[4096.0, 0.0], [4096.0, 0.001]])
    found = local_geometry(clean, clean[:, None])
    apart = float(np.float32(0.001))
    np.testing.assert_allclose(found.nearest.numpy(), [apart, apart], rtol=1e-12)


def test_touching_balls_and_equal_anchors_are_not_disjoint() -> None:
    clean = torch.tensor([[0.0], [2.0]])
    touching = local_geometry(clean, clean[:, None] + 1.0)
    assert touching.disjoint.tolist() == [False, False]
    assert local_geometry(clean, clean[:, None] + 0.75).disjoint.tolist() == [True, True]
    equal = local_geometry(torch.ones(2, 3), torch.ones(2, 1, 3))
    assert (equal.nearest.tolist(), equal.disjoint.tolist()) == ([0.0, 0.0], [False, False])


@pytest.mark.parametrize(
    ("clean", "views", "field"), [((1, 2), (1, 3, 2), "anchors"), ((2, 2), (2, 0, 2), "shifts")]
)
def test_too_little_to_measure(clean: tuple[int, ...], views: tuple[int, ...], field: str) -> None:
    with pytest.raises(InvalidArgument) as caught:
        local_geometry(torch.zeros(clean), torch.zeros(views))
    assert caught.value.field == field


HORIZON, DIM, INPUTS = 3, 2, 6
WEIGHTS = horizon_weights([0.2, 0.3, 0.5], HORIZON)
JACOBIAN = np.random.default_rng(0).standard_normal((HORIZON, DIM, INPUTS))
# Eq. weighted-rollout-map: row k of the map carries sqrt(alpha_k).
FROBENIUS = sum(
    float(alpha) * float(entry) ** 2
    for alpha, rows in zip(WEIGHTS, JACOBIAN, strict=True)
    for entry in rows.ravel()
)


def pushed(direction: np.ndarray) -> torch.Tensor:
    return torch.from_numpy(JACOBIAN @ direction)


def test_hutchinson_is_exact_over_all_signs() -> None:
    """The mean of |A v|^2 over every sign vector v is ||A||_F^2, cross terms cancelling."""
    signs = itertools.product((-1.0, 1.0), repeat=INPUTS)
    values = [squared_norm(pushed(np.array(v)), WEIGHTS).item() for v in signs]
    assert np.mean(values) == pytest.approx(FROBENIUS, rel=1e-12)
    assert np.ptp(values) > 0.1 * FROBENIUS  # one probe alone would not do


def test_a_finite_difference_of_a_linear_map_is_the_squared_norm_of_its_image() -> None:
    direction, step = np.random.default_rng(1).standard_normal(INPUTS), 1e-3
    point = torch.randn(HORIZON, DIM, dtype=torch.float64)
    moved = point + step * pushed(direction)
    found = finite_difference(point, moved, WEIGHTS, step)
    assert found.item() == pytest.approx(squared_norm(pushed(direction), WEIGHTS).item(), rel=1e-9)


def test_probes_are_fair_independent_signs_and_no_normals() -> None:
    probe = rademacher_probe((3, 100, 100), seed=1, anchor=2, probe=3)
    normals = gaussian_probe((3, 100, 100), seed=1, anchor=2, probe=3)
    assert abs((probe * normals).mean()) < 4 / 30000**0.5
    assert probe.dtype == torch.float32
    assert set(probe.unique().tolist()) == {-1.0, 1.0}
    assert abs(probe.mean()) < 4 / 30000**0.5
    assert abs((probe[..., 1:] * probe[..., :-1]).mean()) < 4 / 29700**0.5


@pytest.mark.parametrize("draw", [rademacher_probe, gaussian_probe])
def test_a_probe_depends_on_its_key_alone(draw: object) -> None:
    first = draw((3, 8, 8), seed=1, anchor=2, probe=3)
    assert torch.equal(first, draw((3, 8, 8), seed=1, anchor=2, probe=3))
    for other in ({"seed": 2}, {"anchor": 3}, {"probe": 4}):
        changed = draw((3, 8, 8), **{"seed": 1, "anchor": 2, "probe": 3, **other})
        assert not torch.equal(first, changed)
    with pytest.raises(InvalidArgument, match="anchor"):
        draw((1,), seed=0, anchor=-1, probe=0)


def test_a_pixel_unit_is_one_over_the_channels_deviation() -> None:
    direction = pixel_direction(torch.ones(2, 3, 1, 1))
    wanted = [1 / 0.229, 1 / 0.224, 1 / 0.225]
    np.testing.assert_allclose(direction[1].flatten().numpy(), wanted, rtol=1e-6)
