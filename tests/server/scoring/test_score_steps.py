"""The steps of a job read frames a few anchors at a time and do not depend on how they are cut."""

import json
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pytest
import structlog
import torch
from acpc.contract import (
    GaussianBlur,
    GaussianNoise,
    Identity,
    NumericMode,
    Outcome,
    Resize,
    VisualChange,
)
from acpc_server.data import Anchors
from acpc_server.engine import DeviceClient
from acpc_server.errors import FailedPrecondition
from acpc_server.models import FrozenJepa, FrozenWorldModel
from acpc_server.numerics.screening import invariance_radius
from acpc_server.observe import Metrics
from acpc_server.scoring import measuring, score
from acpc_server.scoring.measuring import CheckpointMeasurement, ShardRecord
from acpc_server.scoring.spec import ScoreSpec
from float32_model import Float32Model
from score_specs import bench_of, score_anchors, score_spec

COUNT, HISTORY, HORIZON, DRAWS, DIM = 23, 3, 4, 3, 16
WEIGHTS = (0.4, 0.3, 0.2, 0.1)
PARTNER = np.array([(7 * i + 3) % COUNT if i % 4 else -1 for i in range(COUNT)])


plan = partial(score_spec, draws=DRAWS, horizon=HORIZON, weights=WEIGHTS)


@pytest.fixture(scope="module")
def anchors() -> Anchors:
    return score_anchors(plan())


def of(
    engine: DeviceClient, model: FrozenWorldModel, anchors: Anchors, asked: ScoreSpec
) -> CheckpointMeasurement:
    return CheckpointMeasurement(bench_of(engine, model, anchors, asked.numeric_mode), asked)


def measured(
    engine: DeviceClient, model: FrozenWorldModel, anchors: Anchors, asked: ScoreSpec
) -> ShardRecord:
    measurement = of(engine, model, anchors, asked)
    return ShardRecord.concatenate([measurement.shard(rows) for rows in asked.shards()])


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize(
    "shift",
    [Identity(), Resize(scale=1.0), GaussianBlur(kernel_size=1), GaussianNoise(sigma=0.0)],
    ids=lambda shift: shift.kind,
)
def test_a_shift_that_changes_nothing_has_ir_zero_and_no_relative_ir(
    model: FrozenWorldModel, anchors: Anchors, shift: VisualChange, threads: int
) -> None:
    """Exactly zero on any thread count, so that no verdict is made of rounding."""
    engine = DeviceClient(torch.device("cpu"), Metrics(), threads=threads)
    try:
        asked = plan(shift)
        record = measured(engine, model, anchors, asked)
        distances = of(engine, model, anchors, asked).different_state_distances(record, PARTNER)
    finally:
        engine.close()
    assert not record.draw_radius.any()
    assert not record.step_radius.any()
    found = score.summarise_checkpoint(asked, record, distances, PARTNER)
    assert found["ir_raw"] == 0
    alone = score.judge(asked, {"checkpoint": found})
    assert alone.outcome is (Outcome.INCONCLUSIVE if alone.sr_passed else Outcome.FAILED)
    assert alone.ir_relative is None
    with_reference = replace(asked, **{"reference": asked.checkpoint})
    with pytest.raises(FailedPrecondition, match=r"raw IR 0\.0, so relative IR is undefined"):
        score.judge(with_reference, {"checkpoint": found, "reference": found})


def test_distances_of_different_states_do_not_depend_on_how_they_are_cut(
    engine: DeviceClient, model: FrozenWorldModel, anchors: Anchors,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    asked = plan(GaussianNoise(sigma=0.1))
    record = measured(engine, model, anchors, asked)
    monkeypatch.setattr(Anchors, "read_frames", None)
    found = []
    for together in (512, 5, 1):
        monkeypatch.setattr(measuring, "SEPARATED_ANCHORS", together)
        found.append(of(engine, model, anchors, asked).different_state_distances(record, PARTNER))
    assert (np.isnan(found[0]) == (PARTNER < 0)).all()
    for other in found[1:]:
        np.testing.assert_allclose(other, found[0], rtol=1e-4)


def test_the_rounding_floor_is_a_hundred_errors_of_the_radii_that_decide_ir(
    engine: DeviceClient, model: FrozenWorldModel, anchors: Anchors
) -> None:
    asked = plan(GaussianNoise(sigma=0.01))
    exact = replace(asked, numeric_mode=NumericMode.FP64)
    found, wanted = (measured(engine, model, anchors, spec) for spec in (asked, exact))
    radii = [record.draw_radius for record in (found, wanted)]
    ranks = np.argsort(radii[0].mean(axis=1))[18:22]  # rank 0.9 * 22 = 19.8
    error = np.abs(radii[0] - radii[1])[ranks].max()
    floor = of(engine, model, anchors, asked).rounding_floor(found)
    assert floor == pytest.approx(100 * error, rel=1e-6)
    ir, true = (invariance_radius(torch.from_numpy(radius), 0.9) for radius in radii)
    assert 0 < abs(ir - true) <= floor / 100
    again = of(engine, model, anchors, asked).rounding_floor(found)
    assert again == floor, "a repeated job has the same bytes"
    narrow = of(engine, model, anchors, exact).rounding_floor(wanted)
    assert narrow == pytest.approx(floor * 2.0**-29, rel=0.5)
    assert of(engine, Float32Model(model), anchors, asked).rounding_floor(found) is None


@pytest.mark.parametrize("trouble", ["memory", "not finite"])
def test_a_score_stands_without_its_floor_where_float64_cannot_measure_it(
    engine: DeviceClient, model: FrozenJepa, anchors: Anchors, trouble: str
) -> None:
    asked = plan(GaussianNoise(sigma=0.01))
    found = measured(engine, model, anchors, asked)

    def twin() -> FrozenWorldModel:
        if trouble == "memory":
            raise torch.OutOfMemoryError
        exact = model.in_float64()
        wide = Float32Model(exact)
        wide.encode = lambda frames: exact.encode(frames) * torch.nan
        return wide

    narrow = Float32Model(model)
    narrow.in_float64 = twin
    with structlog.testing.capture_logs() as lines:
        assert of(engine, narrow, anchors, asked).rounding_floor(found) is None
    [line] = [line for line in lines if line["event"] == "rounding_floor_not_measured"]
    assert line["log_level"] == "warning" and trouble in line["why"]


def test_a_float64_score_has_no_floor_where_float32_does_not_see_the_shift(
    engine: DeviceClient, model: FrozenWorldModel, anchors: Anchors
) -> None:
    asked = replace(plan(GaussianNoise(sigma=1e-10)), numeric_mode=NumericMode.FP64)
    found = measured(engine, model, anchors, asked)
    assert found.draw_radius.min() > 0
    with structlog.testing.capture_logs() as lines:
        assert of(engine, model, anchors, asked).rounding_floor(found) is None
    assert "float32 does not resolve" in lines[0]["why"]


def scored(
    engine: DeviceClient, model: FrozenWorldModel, anchors: Anchors
) -> tuple[ShardRecord, dict[str, Any]]:
    asked = plan(GaussianNoise(sigma=0.1))
    found, measurement = measured(engine, model, anchors, asked), of(engine, model, anchors, asked)
    distances = measurement.different_state_distances(found, PARTNER)
    record = measurement.with_endpoints(found)
    return found, score.summarise_checkpoint(asked, record, distances, PARTNER)


def test_a_score_of_latents_too_wide_to_be_kept_is_the_same_score(
    engine: DeviceClient, model: FrozenWorldModel, anchors: Anchors,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    """They are held a few anchors at a time, and encoded again for pairs."""
    narrow, wanted = scored(engine, model, anchors)
    held: list[int] = []
    rollout = DeviceClient.rollout

    def watched(*given: object) -> torch.Tensor:
        found: torch.Tensor = rollout(*given)
        held.append(found.numel())
        return found

    monkeypatch.setattr(DeviceClient, "rollout", watched)
    monkeypatch.setattr(measuring, "KEPT_LATENTS", 4 * DIM - 1)
    each = (1 + DRAWS) * (HISTORY + HORIZON)
    monkeypatch.setattr("acpc_server.engine.sizes.HELD_LATENTS", 2 * each * DIM)
    wide, found = scored(engine, model, anchors)
    assert max(held) <= 2 * each * DIM
    assert wide.history_latents.size == wide.endpoint_latents.size == 0
    assert len(json.dumps(wide.to_json())) < len(json.dumps(narrow.to_json())) / 2
    np.testing.assert_allclose(wide.draw_radius, narrow.draw_radius, rtol=1e-4)
    for name in ("ir_raw", "sr", "median_latent_distance"):
        assert found[name] == pytest.approx(wanted[name], rel=1e-4)
