"""Neighbourhood and partners follow the SR protocol of the paper."""

import math

import numpy as np
import numpy_reference as reference
import pytest
import torch
from acpc_server.errors import InvalidArgument
from acpc_server.numerics.pairing import SkipReason, off_diagonal_quantile, pair_different_labels
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

# Small integers: distances are exact up to the root, so ties and boundary cases abound.
GRID = hnp.arrays(
    np.float64,
    st.tuples(st.integers(2, 14), st.integers(1, 3)),
    elements=st.integers(-3, 3).map(float),
)


@settings(max_examples=100)
@given(st.data())
def test_partners_are_the_papers(data: st.DataObject) -> None:
    states = data.draw(GRID)
    n = len(states)
    labels = data.draw(st.lists(st.integers(0, 2), min_size=n, max_size=n))
    quantile = data.draw(st.sampled_from([0.35, 0.0, 0.5, 1.0]))
    expected, radius = reference.pairing(states, labels, quantile)
    actual = pair_different_labels(torch.from_numpy(states), torch.tensor(labels), quantile)
    assert actual.partner.tolist() == expected
    assert actual.radius == pytest.approx(radius, rel=1e-15)
    assert actual.eligible == sum(j >= 0 for j in expected)


def test_a_scan_can_be_ended_between_blocks() -> None:
    seen = []

    def check() -> None:
        seen.append(1)
        if len(seen) == 3:
            raise TimeoutError

    points = torch.zeros(3000, 1, dtype=torch.float64)
    with pytest.raises(TimeoutError):
        off_diagonal_quantile(points, 0.5, check=check)
    seen.clear()
    with pytest.raises(TimeoutError):
        pair_different_labels(points, torch.arange(3000), check=check)


def test_skip_reasons_tell_one_label_from_none_in_reach() -> None:
    states = torch.tensor([[0.0], [1.0], [3.0]], dtype=torch.float64)
    labels = torch.tensor([0, 1, 0])
    found = pair_different_labels(states, labels, 0.0).skip_reasons(labels)
    assert found.tolist() == [*[SkipReason.UNSPECIFIED] * 2, SkipReason.NONE_IN_REACH]
    alike = torch.zeros(3, dtype=torch.int64)
    found = pair_different_labels(states, alike).skip_reasons(alike)
    assert found.tolist() == [SkipReason.ONE_LABEL] * 3


def test_near_points_far_from_the_origin_keep_their_distances() -> None:
    """Differences of 1e-4 at 1e6: the matrix-product shortcut would return noise."""
    offsets = torch.tensor([[0.0], [3e-4], [1e-4]], dtype=torch.float64)
    states = 1e6 + offsets
    radius = off_diagonal_quantile(states, 0.0)
    assert radius == (states[2] - states[0]).item()


@pytest.mark.parametrize(
    ("states", "words"),
    [
        *(([[0.0, 1.0], [2.0, x]], "row 1 holds NaN or infinity") for x in (math.nan, math.inf)),
        ([[0.0, 1.0]], "has 1 rows"),
    ],
)
def test_states_without_distances_are_refused(states: list[list[float]], words: str) -> None:
    labels = torch.arange(len(states))
    with pytest.raises(InvalidArgument, match=f"endpoint_states: {words}"):
        pair_different_labels(torch.tensor(states, dtype=torch.float64), labels)


def test_tiles_of_wide_rows_take_bounded_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """A thousand patch latents in float64 would be most of a gigabyte on each side of a tile."""
    sides = []
    cdist = torch.cdist

    def watched(rows: torch.Tensor, others: torch.Tensor, **options: str) -> torch.Tensor:
        sides.append(max(rows.nbytes, others.nbytes))
        return cdist(rows, others, **options)

    monkeypatch.setattr(torch, "cdist", watched)
    points = torch.zeros(35, 2**18)  # in float32, as latents are
    points[:, 0] = torch.arange(35)
    assert off_diagonal_quantile(points, 1.0) == 34.0
    assert len(sides) == 3
    assert max(sides) <= 2**26


def test_more_distances_than_are_kept_have_their_quantile() -> None:
    """Of the numbers from 0 to n - 1 in another order, n - k pairs lie k apart."""
    count = 5800
    points = torch.randperm(count, generator=torch.Generator().manual_seed(3))[:, None].double()
    at_most = np.cumsum(np.arange(count - 1, 0, -1))  # pairs at most 1, 2 and on apart
    rank = math.floor(0.35 * (2 * at_most[-1] - 1))
    assert off_diagonal_quantile(points, 0.35) == 1 + np.searchsorted(2 * at_most, rank, "right")


def test_a_thousand_points_are_paired_as_by_brute_force() -> None:
    """In several tiles and blocks; a grid, so that thousands of distances are equal."""
    generator, count = np.random.default_rng(5), 1101
    states = generator.integers(0, 40, (count, 2)).astype(np.float64)
    labels = generator.integers(0, 3, count)
    between = np.hypot(*(states[:, None] - states[None]).transpose(2, 0, 1))
    radius = np.quantile(between[~np.eye(count, dtype=bool)], 0.35)
    between[(between > radius) | (labels[:, None] == labels)] = np.inf
    expected = np.where(np.isinf(between).all(axis=1), -1, between.argmin(axis=1))
    found = pair_different_labels(torch.from_numpy(states), torch.from_numpy(labels))
    assert found.radius == radius
    np.testing.assert_array_equal(found.partner.numpy(), expected)
