"""Scores of latents too wide to be kept: held a few anchors at a time, encoded again for pairs."""

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from acpc.contract import CheckpointRef, GaussianNoise, NumericMode, ScoreProtocol
from acpc_server.data import AnchorBatch
from acpc_server.encoding import AnchorSetSource
from acpc_server.engine import DeviceClient
from acpc_server.models import FrozenWorldModel
from acpc_server.scheduling import Priority, RequestContext
from acpc_server.scoring import score
from acpc_server.scoring.measuring import CheckpointMeasurement, ShardRecord
from acpc_server.scoring.spec import ScoreSpec

COUNT, HISTORY, HORIZON, DRAWS, DIM = 12, 3, 2, 2, 16
PARTNER = np.array([(7 * i + 3) % COUNT if i % 4 else -1 for i in range(COUNT)])
CONTEXT = RequestContext(Priority.JOB)
SPEC = ScoreSpec(
    checkpoint=CheckpointRef(name="one", weights="weights.pt", digest="a" * 64),
    reference=None,
    anchors=AnchorSetSource(digest="b" * 64, count=COUNT),
    perturbation=GaussianNoise(0.1),
    protocol=ScoreProtocol(draws=DRAWS, horizon=HORIZON),
)


@pytest.fixture(scope="module")
def anchors(arrays: Callable[[int, int], dict[str, Any]]) -> AnchorBatch:
    return AnchorBatch(**arrays(COUNT, HORIZON))


def scored(
    engine: DeviceClient, model: FrozenWorldModel, anchors: AnchorBatch
) -> tuple[ShardRecord, dict[str, object]]:
    measurement = CheckpointMeasurement(engine, model, anchors, SPEC, CONTEXT)
    measured = ShardRecord.concatenate([measurement.shard(rows) for rows in SPEC.shards()])
    distances = measurement.different_state_distances(measured, PARTNER)
    record = measurement.with_endpoints(measured)
    return measured, score.summarise_checkpoint(SPEC, record, distances, PARTNER)


def test_a_score_of_wide_latents_is_the_same_score(
    engine: DeviceClient, model: FrozenWorldModel, anchors: AnchorBatch,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    narrow, wanted = scored(engine, model, anchors)
    held: list[int] = []
    rollout = DeviceClient.rollout

    def watched(*given: object) -> torch.Tensor:
        found: torch.Tensor = rollout(*given)
        held.append(found.numel())
        return found

    monkeypatch.setattr(DeviceClient, "rollout", watched)
    monkeypatch.setattr("acpc_server.scoring.measuring.KEPT_LATENTS", 4 * DIM - 1)
    each = (1 + DRAWS) * (HISTORY + HORIZON)
    monkeypatch.setattr("acpc_server.engine.sizes.HELD_LATENTS", 2 * each * DIM)
    wide, found = scored(engine, model, anchors)
    assert max(held) <= 2 * each * DIM
    assert wide.history_latents.size == wide.endpoint_latents.size == 0
    assert len(json.dumps(wide.to_json())) < len(json.dumps(narrow.to_json())) / 2
    np.testing.assert_allclose(wide.draw_radius, narrow.draw_radius, rtol=1e-4)
    for name in ("ir_raw", "sr", "median_latent_distance"):
        assert found[name] == pytest.approx(wanted[name], rel=1e-4)


def test_a_record_without_latents_restores(
    engine: DeviceClient, model: FrozenWorldModel, anchors: AnchorBatch,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.setattr("acpc_server.scoring.measuring.KEPT_LATENTS", 0)
    record = CheckpointMeasurement(engine, model, anchors, SPEC, CONTEXT).shard((0, 10))
    again = ShardRecord.from_json(json.loads(json.dumps(record.to_json())))
    assert again.history_latents.shape == (10, HISTORY, 0)
    assert np.array_equal(again.draw_radius, record.draw_radius)


def test_endpoints_are_known_in_the_arithmetic_of_the_job(
    engine: DeviceClient, model: FrozenWorldModel, anchors: AnchorBatch,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    exact = replace(SPEC, **{"numeric_mode": NumericMode.FP64})
    measurement = CheckpointMeasurement(engine, model, anchors, exact, CONTEXT)
    kept = measurement.shard((0, COUNT))
    monkeypatch.setattr("acpc_server.scoring.measuring.KEPT_LATENTS", 0)
    none = measurement.shard((0, COUNT))
    found = measurement.with_endpoints(none).endpoint_latents
    assert found.dtype == kept.endpoint_latents.dtype
    np.testing.assert_allclose(found, kept.endpoint_latents, rtol=1e-9, atol=1e-12)
