"""What a study's parts promise beside their numbers: checks, joins, and what the receipt says."""

from collections.abc import Iterator

import numpy as np
import pytest
import torch
from acpc.contract import (
    DriftStudy,
    GaussianNoise,
    GeometryStudy,
    NumericMode,
    PlannerStudy,
    SensitivityStudy,
)
from acpc_server.data import AnchorBatch
from acpc_server.engine import CachedCheckpoint, DeviceClient
from acpc_server.errors import FailedPrecondition
from acpc_server.interactive.paired_cem import CemBudget
from acpc_server.models.folder import CheckpointEntry
from acpc_server.numerics.local import gaussian_probe, rademacher_probe
from acpc_server.numerics.pixels import IMAGENET_STD, to_model_input
from acpc_server.observe import Metrics
from acpc_server.perturb import perturb_frames
from acpc_server.scheduling import Priority, RequestContext
from acpc_server.studies.drift import DriftMeasurement
from acpc_server.studies.geometry import GeometryMeasurement
from acpc_server.studies.measurement import Bench
from acpc_server.studies.planner import PlannerMeasurement
from acpc_server.studies.sensitivity import SensitivityMeasurement
from plain_model import PlainModel

N, HISTORY, HORIZON = 6, 3, 4
SHIFTS = (GaussianNoise(sigma=0.05),)


@pytest.fixture(scope="module")
def engine() -> Iterator[DeviceClient]:
    opened = DeviceClient(torch.device("cpu"), Metrics(), threads=1)
    yield opened
    opened.close()


def bench(engine: DeviceClient, model: PlainModel) -> Bench:
    generator = np.random.default_rng(0)
    steps = HISTORY + HORIZON
    anchors = AnchorBatch(
        history=HISTORY,
        frames=generator.integers(0, 256, (N, steps, 8, 8, 3), np.uint8),
        action_blocks=generator.standard_normal((N, steps - 1, 2), np.float32),
        endpoint_states=np.zeros((N, 1)),
        labels=np.zeros(N, np.int64),
        anchor_ids=np.arange(10, 10 + N),
        trajectory_ids=np.arange(N),
    )
    entry = CheckpointEntry("plain", "weights.pt", 0, ())
    checkpoint = CachedCheckpoint("plain", "weights.pt", model, entry)
    return Bench(engine, checkpoint, anchors, NumericMode.FP32)


def context() -> RequestContext:
    return RequestContext(Priority.JOB)


class DriftingModel(PlainModel):
    """A broken model that answers the same frame differently each time."""

    def encode(self, frames: torch.Tensor) -> torch.Tensor:
        return super().encode(frames) + torch.arange(len(frames))[:, None]


class OverflowingModel(PlainModel):
    """A model whose predictions are not finite."""

    def encode(self, frames: torch.Tensor) -> torch.Tensor:
        return super().encode(frames) * torch.inf


def test_a_model_that_does_not_repeat_itself_is_found_out(engine: DeviceClient) -> None:
    study = DriftStudy(shifts=SHIFTS, horizon=HORIZON, groups=2)
    measurement = DriftMeasurement(bench(engine, DriftingModel()), study)
    with pytest.raises(FailedPrecondition, match="does not repeat itself"):
        measurement.measure(0, N, context())


def test_predictions_that_are_not_finite_are_refused(engine: DeviceClient) -> None:
    study = GeometryStudy(shifts=SHIFTS, horizon=HORIZON)
    measurement = GeometryMeasurement(bench(engine, OverflowingModel()), study)
    with pytest.raises(FailedPrecondition) as caught:
        measurement.measure(0, N, context())
    assert caught.value.reason == "PREDICTION_NOT_FINITE"


class SteepModel(PlainModel):
    """A model of finite predictions whose derivative is not finite."""

    def encode(self, frames: torch.Tensor) -> torch.Tensor:
        return super().encode(frames).sign().sub(1).abs().sqrt()


def test_a_derivative_that_is_not_finite_is_refused(engine: DeviceClient) -> None:
    study = SensitivityStudy(probes=1, horizon=HORIZON)
    with pytest.raises(FailedPrecondition) as caught:
        SensitivityMeasurement(bench(engine, SteepModel()), study).measure(0, N, context())
    assert caught.value.reason == "PREDICTION_NOT_FINITE"


def test_a_model_of_channel_means_has_a_jacobian_known_by_hand(engine: DeviceClient) -> None:
    """A step adds the same action to every history, so each row is |mean(v) / std|^2."""
    study = SensitivityStudy(probes=3, seed=4, horizon=HORIZON, step=0.01)
    measurement = SensitivityMeasurement(bench(engine, PlainModel()), study)
    columns = measurement.conclude(measurement.measure(2, 5, context())).columns
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
    table = PlannerMeasurement(tools, study).measure(1, 4, context())
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
