"""The two estimates of a squared Frobenius norm, on maps whose norm is known."""

import itertools

import numpy as np
import pytest
import torch
from acpc_server.errors import InvalidArgument
from acpc_server.numerics.consistency import horizon_weights
from acpc_server.numerics.local import (
    finite_difference,
    gaussian_probe,
    pixel_direction,
    rademacher_probe,
    squared_norm,
)

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


def test_finite_differences_average_to_the_norm() -> None:
    """E |A e|^2 = ||A||_F^2 over the product's own normals, within four standard errors."""
    probes = [gaussian_probe((INPUTS,), seed=0, anchor=1, probe=k) for k in range(1000)]
    clean = torch.zeros(HORIZON, DIM, dtype=torch.float64)
    values = torch.stack(
        [finite_difference(clean, pushed(p.double().numpy()), WEIGHTS, 1.0) for p in probes]
    )
    error = values.std() / len(values) ** 0.5
    assert abs(values.mean() - FROBENIUS) < 4 * error
    assert error < 0.1 * FROBENIUS


def test_probes_are_fair_independent_signs() -> None:
    probe = rademacher_probe((3, 100, 100), seed=1, anchor=2, probe=3)
    assert probe.dtype == torch.float32
    assert set(probe.unique().tolist()) == {-1.0, 1.0}
    assert abs(probe.mean()) < 4 / 30000**0.5
    assert abs((probe[..., 1:] * probe[..., :-1]).mean()) < 4 / 29700**0.5


@pytest.mark.parametrize("draw", [rademacher_probe, gaussian_probe])
def test_a_probe_depends_on_its_key_alone(draw: object) -> None:
    first = draw((3, 8, 8), seed=1, anchor=2, probe=3)  # type: ignore[operator]
    assert torch.equal(first, draw((3, 8, 8), seed=1, anchor=2, probe=3))  # type: ignore[operator]
    for other in ({"seed": 2}, {"anchor": 3}, {"probe": 4}):
        changed = draw((3, 8, 8), **{"seed": 1, "anchor": 2, "probe": 3, **other})  # type: ignore[operator]
        assert not torch.equal(first, changed)
    with pytest.raises(InvalidArgument, match="anchor"):
        draw((1,), seed=0, anchor=-1, probe=0)  # type: ignore[operator]


def test_signs_and_normals_are_different_numbers() -> None:
    signs = rademacher_probe((1000,), seed=0, anchor=0, probe=0)
    normals = gaussian_probe((1000,), seed=0, anchor=0, probe=0)
    assert abs((signs * normals).mean()) < 4 / 1000**0.5


def test_a_pixel_unit_is_one_over_the_channels_deviation() -> None:
    direction = pixel_direction(torch.ones(2, 3, 1, 1))
    wanted = [1 / 0.229, 1 / 0.224, 1 / 0.225]
    np.testing.assert_allclose(direction[1].flatten().numpy(), wanted, rtol=1e-6)
