"""Local geometry against loops written from the paper's appendix."""

import math

import numpy as np
import pytest
import torch
from acpc_server.errors import InvalidArgument
from acpc_server.numerics import local
from acpc_server.numerics.local import local_geometry
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


def test_many_anchors_are_cut_without_a_seam(monkeypatch: pytest.MonkeyPatch) -> None:
    generator = torch.Generator().manual_seed(3)
    clean = torch.randn(70, 5, generator=generator)
    views = clean[:, None] + 0.2 * torch.randn(70, 3, 5, generator=generator)
    whole = local_geometry(clean, views)
    monkeypatch.setattr(local, "ROWS", 16)
    parts = local_geometry(clean, views)
    for field in ("radius", "nearest", "disjoint"):
        assert torch.equal(getattr(parts, field), getattr(whole, field))
    assert 0 < whole.disjoint.sum() < 70


def test_close_anchors_far_from_the_origin_keep_their_digits() -> None:
    clean = torch.tensor([[4096.0, 0.0], [4096.0, 0.001]])
    found = local_geometry(clean, clean[:, None])
    apart = float(np.float32(0.001))
    np.testing.assert_allclose(found.nearest.numpy(), [apart, apart], rtol=1e-12)


def test_touching_balls_are_not_disjoint() -> None:
    clean = torch.tensor([[0.0], [2.0]])
    touching = local_geometry(clean, clean[:, None] + 1.0)
    assert touching.disjoint.tolist() == [False, False]
    assert local_geometry(clean, clean[:, None] + 0.75).disjoint.tolist() == [True, True]


def test_equal_anchors_have_no_distance() -> None:
    clean = torch.ones(2, 3)
    found = local_geometry(clean, clean[:, None])
    assert found.nearest.tolist() == [0.0, 0.0]
    assert found.disjoint.tolist() == [False, False]


@pytest.mark.parametrize(
    ("clean", "views", "field"), [((1, 2), (1, 3, 2), "anchors"), ((2, 2), (2, 0, 2), "shifts")]
)
def test_too_little_to_measure(clean: tuple[int, ...], views: tuple[int, ...], field: str) -> None:
    with pytest.raises(InvalidArgument) as caught:
        local_geometry(torch.zeros(clean), torch.zeros(views))
    assert caught.value.field == field
