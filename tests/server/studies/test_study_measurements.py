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
    PlannerStudy,
    SensitivityStudy,
)
from acpc_server.data import Anchors
from acpc_server.encoding import Bench
from acpc_server.engine import DeviceClient
from acpc_server.errors import FailedPrecondition
from acpc_server.interactive.paired_cem import CemBudget
from acpc_server.numerics.local import gaussian_probe, rademacher_probe
from acpc_server.numerics.pixels import IMAGENET_STD, to_model_input
from acpc_server.perturb import perturb_frames
from acpc_server.studies.drift import (
    DriftMeasurement,
    destroyed_actions,
    shuffled_order,
    swapped_partners,
    trajectory_groups,
)
from acpc_server.studies.geometry import GeometryMeasurement
from acpc_server.studies.planner import PlannerMeasurement
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


def test_a_model_of_channel_means_has_a_jacobian_known_by_hand(engine: DeviceClient) -> None:
    """A step adds the same action to every history, so each row is |mean(v) / std|^2."""
    study = SensitivityStudy(probes=3, seed=4, horizon=HORIZON, step=0.01)
    measurement = SensitivityMeasurement(bench(engine, PlainModel()), study)
    columns = measurement.conclude(measurement.measure(2, 5)).columns
    wanted = [
        ((draw((HISTORY, 3, 8, 8), seed=4, anchor=anchor, probe=probe)[-1].mean(dim=(1, 2))
          / torch.tensor(IMAGENET_STD)).square().sum()).item()
        for anchor in (12, 13, 14)
        for draw in (rademacher_probe, gaussian_probe)
        for probe in range(3)
    ]  # fmt: skip
    np.testing.assert_allclose(columns["squared_norm"], wanted, rtol=1e-3)
    assert columns["anchor"].tolist() == [12] * 6 + [13] * 6 + [14] * 6
    assert columns["method"].tolist() == [0, 0, 0, 1, 1, 1] * 3
    assert columns["probe"].tolist() == [0, 1, 2] * 6


def test_a_planner_of_channel_means_sees_one_displacement(engine: DeviceClient) -> None:
    """Every candidate's prediction moves as its history does, so the quantiles are that move."""
    study = PlannerStudy(shifts=SHIFTS, budget=CemBudget(8, 3, 2, 2), goal_offset=HORIZON)
    tools = bench(engine, PlainModel())
    table = PlannerMeasurement(tools, study).measure(1, 4)
    moves = []
    for row in range(1, 4):
        now = torch.from_numpy(tools.anchors.read_frames(row, row + 1)[0, HISTORY - 1 : HISTORY])
        clean = to_model_input(now, 8)
        view = perturb_frames(clean, SHIFTS[0], seed=0, anchor=10 + row, draw=0)
        moves.append((view - clean).mean(dim=(2, 3)).norm().item())
    for name in ("acpc_one_step_q90", "acpc_q90"):
        np.testing.assert_allclose(table.columns[name], moves, rtol=1e-4)
    assert table.arrays["pool_clean_gap"].shape == (3, 2)
    assert (table.arrays["pool_clean_gap"][:, -1] == table.columns["clean_gap"]).all()
    assert table.columns["anchor"].tolist() == [11, 12, 13]


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


@given(trajectories=st.lists(st.integers(0, 40), min_size=1, max_size=60), groups=st.integers(1, 8))
def test_groups_are_disjoint_even_and_by_first_appearance(
    trajectories: list[int], groups: int
) -> None:
    distinct = list(dict.fromkeys(trajectories))
    if len(distinct) < groups:
        with pytest.raises(FailedPrecondition, match=f"{len(distinct)} trajectories"):
            trajectory_groups(np.array(trajectories), groups)
        return
    found = trajectory_groups(np.array(trajectories), groups).tolist()
    assert found == [distinct.index(t) % groups for t in trajectories]
    assert set(found) == set(range(groups))


def test_only_the_future_is_destroyed() -> None:
    """Past blocks, which belong to the history, stay under every control."""
    generator = np.random.default_rng(0)
    blocks = generator.standard_normal((6, 5, 2)).astype(np.float32)  # h = 3, H = 3
    ids, partners = np.arange(10, 16), swapped_partners(np.arange(6), 4)
    found = destroyed_actions(blocks, ids, partners, range(2, 5), horizon=3, seed=4)
    assert found.shape == (3, 4, 5, 2)
    for row, anchor in enumerate(range(2, 5)):
        recorded, zeroed, swapped, shuffled = found[row]
        assert (found[row, :, :2] == blocks[anchor, :2]).all()
        assert (recorded == blocks[anchor]).all()
        assert (zeroed[2:] == 0).all()
        assert (swapped[2:] == blocks[partners[anchor], 2:]).all()
        order = shuffled_order(3, seed=4, anchor=10 + anchor)
        assert (shuffled[2:] == blocks[anchor, 2:][order]).all()
    assert (blocks[2:5] == found[:, 0]).all(), "the anchors' own blocks are not written to"
