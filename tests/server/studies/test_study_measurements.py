"""What a study's parts promise beside their numbers: checks, controls, joins, receipts."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from acpc.contract import (
    DriftStudy,
    GaussianNoise,
    GeometryStudy,
    SensitivityStudy,
)
from acpc_server.data import Anchors
from acpc_server.encoding import Bench
from acpc_server.engine import DeviceClient
from acpc_server.errors import FailedPrecondition
from acpc_server.studies.drift import (
    DriftMeasurement,
    shuffled_order,
    swapped_partners,
)
from acpc_server.studies.geometry import GeometryMeasurement
from acpc_server.studies.sensitivity import SensitivityMeasurement
from anchor_batches import anchors
from hypothesis import given
from hypothesis import strategies as st
from plain_model import PlainModel
from score_specs import bench_of

N, HISTORY, HORIZON = 6, 3, 4
SHIFTS = (GaussianNoise(sigma=0.05),)


def bench(engine: DeviceClient, model: PlainModel) -> Bench:
    held = anchors(N, history=HISTORY, horizon=HORIZON, size=(8, 8), block=2)
    held = replace(held, anchor_ids=np.arange(10, 10 + N), trajectory_ids=np.arange(N))
    return bench_of(engine, model, Anchors(held))


class Broken(PlainModel):
    """A model whose latents are what ``change`` makes of them."""

    def __init__(self, change: Callable[[torch.Tensor], torch.Tensor]) -> None:
        super().__init__()
        self._change = change

    def encode(self, frames: torch.Tensor) -> torch.Tensor:
        return self._change(super().encode(frames))


def drifting(latents: torch.Tensor) -> torch.Tensor:
    """The same frame differently each time."""
    return latents + torch.arange(len(latents))[:, None]


def overflowing(latents: torch.Tensor) -> torch.Tensor:
    return latents * torch.inf


def steep(latents: torch.Tensor) -> torch.Tensor:
    """Finite, and its derivative is not."""
    return latents.sign().sub(1).abs().sqrt()


NOT_FINITE = "PREDICTION_NOT_FINITE"


@pytest.mark.parametrize(
    ("measurement", "study", "change", "reason", "words"),
    [
        (DriftMeasurement, DriftStudy(shifts=SHIFTS, horizon=HORIZON, groups=2), drifting,
         "FAILED_PRECONDITION", "does not repeat itself"),
        (GeometryMeasurement, GeometryStudy(shifts=SHIFTS, horizon=HORIZON), overflowing,
         NOT_FINITE, None),
        (SensitivityMeasurement, SensitivityStudy(probes=1, horizon=HORIZON), steep,
         NOT_FINITE, None),
    ],
)  # fmt: skip
def test_a_model_that_is_broken_is_found_out(
    *, engine: DeviceClient, measurement: Any, study: object,
    change: Callable[[torch.Tensor], torch.Tensor], reason: str, words: str | None,
) -> None:  # fmt: skip
    with pytest.raises(FailedPrecondition, match=words) as caught:
        measurement(bench(engine, Broken(change)), study).measure(0, N)
    assert caught.value.reason == reason


SEEDS = st.integers(0, 2**64 - 1)


@given(sizes=st.lists(st.integers(1, 6), min_size=2, max_size=12), seed=SEEDS)
def test_every_anchor_swaps_with_another_trajectory_and_gives_once(
    sizes: list[int], seed: int
) -> None:
    labels = [7 * index for index, size in enumerate(sizes) for _ in range(size)]
    trajectories = np.random.default_rng(seed % 2**32).permutation(np.array(labels))
    if 2 * max(sizes) > len(labels):
        with pytest.raises(FailedPrecondition, match=rf"{max(sizes)} of {len(labels)} anchors"):
            swapped_partners(trajectories, seed)
        return
    partners = swapped_partners(trajectories, seed)
    assert sorted(partners.tolist()) == list(range(len(labels)))
    assert (trajectories[partners] != trajectories).all()
    assert np.array_equal(partners, swapped_partners(trajectories, seed))


def test_swaps_depend_on_the_seed() -> None:
    trajectories = np.arange(30)
    drawn = {tuple(swapped_partners(trajectories, seed)) for seed in range(20)}
    assert len(drawn) == 20


@given(horizon=st.integers(2, 12), seed=SEEDS, anchor=st.integers(0, 2**63))
def test_a_shuffle_is_a_permutation_that_moves_something(
    horizon: int, seed: int, anchor: int
) -> None:
    order = shuffled_order(horizon, seed=seed, anchor=anchor)
    assert sorted(order.tolist()) == list(range(horizon))
    assert order.tolist() != list(range(horizon))
    assert np.array_equal(order, shuffled_order(horizon, seed=seed, anchor=anchor))


def test_shuffles_reach_every_other_order() -> None:
    found = {tuple(shuffled_order(3, seed=0, anchor=anchor)) for anchor in range(200)}
    assert len(found) == 5
