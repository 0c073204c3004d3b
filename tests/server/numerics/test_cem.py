"""CEM steps against the public solver's arithmetic, written as loops."""

import numpy as np
import pytest
import torch
from acpc_server.errors import InvalidArgument
from acpc_server.numerics.updates import (
    Proposal,
    fit_proposal,
    initial_proposal,
    pool_normals,
    sample_pool,
)
from hypothesis import given
from hypothesis import strategies as st

SHAPE = {"candidates": 6, "horizon": 3, "width": 2}
PINNED = [-0.06592141836881638, 1.2326773405075073, 0.6676416993141174]


def test_the_first_proposal_is_standard_normal() -> None:
    start = initial_proposal(3, 2)
    assert torch.equal(start.mean, torch.zeros(3, 2))
    assert torch.equal(start.std, torch.ones(3, 2))


@given(st.integers(0, 2**64 - 1), st.integers(0, 2**64 - 1))
def test_candidates_are_mean_plus_std_times_normal(seed: int, iteration: int) -> None:
    normals = pool_normals(seed, iteration, **SHAPE)
    rng = np.random.default_rng(seed)
    mean, std = rng.normal(size=(3, 2)).astype(np.float32), rng.random((3, 2), np.float32)
    pool = sample_pool(Proposal(torch.from_numpy(mean), torch.from_numpy(std)), normals).numpy()
    assert np.array_equal(pool[0], mean)
    for j in range(1, 6):
        for index in np.ndindex(3, 2):
            expected = np.float32(mean[index] + np.float32(std[index] * normals[j][index].numpy()))
            assert pool[j][index] == pytest.approx(expected, rel=1e-6, abs=1e-7)


def test_normals_depend_on_seed_and_iteration_alone() -> None:
    first = pool_normals(7, 2, **SHAPE)
    assert torch.equal(first, pool_normals(7, 2, **SHAPE))
    longer = pool_normals(7, 2, candidates=9, horizon=3, width=2)
    assert torch.equal(longer[:6], first)
    others = [pool_normals(s, t, **SHAPE) for s, t in ((8, 2), (7, 3), (2, 7))]
    assert not any(torch.equal(first, other) for other in others)


def test_normals_are_standard() -> None:
    normals = pool_normals(0, 0, candidates=1000, horizon=10, width=10).double()
    assert abs(normals.mean().item()) < 0.02
    assert normals.std().item() == pytest.approx(1, abs=0.02)


def test_normals_are_pinned() -> None:
    """Common random numbers must not change with a release."""
    first = pool_normals(1, 0, candidates=1, horizon=1, width=3).flatten().tolist()
    assert first == pytest.approx(PINNED, abs=1e-7)


@given(st.integers(0, 2**32), st.integers(2, 5))
def test_the_fit_is_the_elites_mean_and_unbiased_std(seed: int, count: int) -> None:
    rng = np.random.default_rng(seed)
    pool = rng.normal(size=(6, 3, 2)).astype(np.float32)
    elites = rng.permutation(6)[:count]
    fitted = fit_proposal(torch.from_numpy(pool), torch.from_numpy(elites))
    for index in np.ndindex(3, 2):
        values = [float(pool[(e, *index)]) for e in elites]
        mean = sum(values) / count
        std = (sum((v - mean) ** 2 for v in values) / (count - 1)) ** 0.5
        assert fitted.mean[index].item() == pytest.approx(mean, rel=1e-6, abs=1e-7)
        assert fitted.std[index].item() == pytest.approx(std, rel=1e-6)


@given(st.integers(0, 2**32))
def test_the_fit_does_not_depend_on_the_order_of_the_elites(seed: int) -> None:
    """To the last bit, as Cor. adaptive-cem-alignment needs."""
    generator = torch.Generator().manual_seed(seed)
    pool = torch.randn(12, 5, 4, generator=generator)
    elites = torch.randperm(12, generator=generator)[:7]
    shuffled = elites[torch.randperm(7, generator=generator)]
    ours, theirs = fit_proposal(pool, elites), fit_proposal(pool, shuffled)
    assert torch.equal(ours.mean, theirs.mean)
    assert torch.equal(ours.std, theirs.std)


def test_one_elite_has_no_spread() -> None:
    with pytest.raises(InvalidArgument, match="elites: are 1"):
        fit_proposal(torch.zeros(3, 1, 1), torch.tensor([0]))


@pytest.mark.parametrize("seed", [-1, 2**64])
def test_seeds_are_uint64(seed: int) -> None:
    with pytest.raises(InvalidArgument, match="seed: is"):
        pool_normals(seed, 0, **SHAPE)
