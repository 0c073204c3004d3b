"""What a job reports of its shards, against loops written from the paper's text."""

from __future__ import annotations

import json

import numpy as np
import numpy_reference as paper
import pytest
from acpc_server.diagnostics import AnchorSource, CheckpointName, Protocol, ScorePlan
from acpc_server.diagnostics.score import judge, summarise_checkpoint
from acpc_server.diagnostics.shard import ShardRecord
from acpc_server.perturb import GaussianNoise

ANCHORS, DRAWS, HORIZON, DIM = 23, 4, 6, 5
WEIGHTS = (0.5, 0.1, 0.1, 0.1, 0.1, 0.1)


def plan(**protocol: object) -> ScorePlan:
    return ScorePlan(
        checkpoint=CheckpointName(name="model", weights="weights.pt", digest="a" * 64),
        reference=None,
        anchors=AnchorSource(dataset="d.h5", task="tworoom", count=ANCHORS),
        perturbation=GaussianNoise(sigma=0.08),
        protocol=Protocol(**{"draws": DRAWS, "horizon": HORIZON, "weights": WEIGHTS, **protocol}),
    )


@pytest.fixture
def record() -> ShardRecord:
    generator = np.random.default_rng(11)
    return ShardRecord(
        step_distances=generator.gamma(2.0, 0.3, (ANCHORS, DRAWS, HORIZON)),
        transitions=generator.gamma(2.0, 0.5, (ANCHORS, HORIZON)),
        history_latents=generator.standard_normal((ANCHORS, 3, DIM)).astype(np.float32),
        endpoint_latents=generator.standard_normal((ANCHORS, DIM)).astype(np.float32),
    )


@pytest.fixture
def distances() -> np.ndarray:
    values = np.random.default_rng(12).gamma(2.0, 0.6, ANCHORS)
    values[[3, 8]] = np.nan
    return values


def radii(record: ShardRecord, horizon: int, weights: list[float]) -> list[list[float]]:
    """Normalised radius of every draw, anchor by anchor."""
    table = []
    for anchor in range(ANCHORS):
        scale = paper.quantile(record.transitions[anchor, :horizon].tolist(), 0.5)
        row = []
        for draw in range(DRAWS):
            steps = record.step_distances[anchor, draw, :horizon]
            acpc = sum(w * d * d for w, d in zip(weights, steps, strict=True)) ** 0.5
            row.append(acpc / (scale + 1e-8))
        table.append(row)
    return table


def raw_ir(table: list[list[float]], q: float) -> float:
    return paper.quantile([sum(row) / len(row) for row in table], q)


def test_a_summary_is_what_the_paper_defines(record: ShardRecord, distances: np.ndarray) -> None:
    partner = np.where(np.isnan(distances), -1, 0)
    found = summarise_checkpoint(plan(), record, distances, partner)
    table = radii(record, HORIZON, list(WEIGHTS))
    ir = raw_ir(table, 0.90)
    assert found["ir_raw"] == pytest.approx(ir, rel=1e-12)
    assert found["sr"] == paper.separation_rate(distances.tolist(), ir, 0.10)
    assert (found["anchors"], found["eligible"], found["skipped"]) == (ANCHORS, ANCHORS - 2, 2)
    np.testing.assert_allclose(found["draw_radius"], table, rtol=1e-12)
    np.testing.assert_allclose(found["radius"], np.mean(table, axis=1), rtol=1e-12)
    scales = [paper.quantile(row.tolist(), 0.5) for row in record.transitions]
    np.testing.assert_allclose(found["motion_scale"], scales, rtol=1e-12)
    assert found["median_latent_distance"] == pytest.approx(
        paper.median_latent_distance(record.endpoint_latents), rel=1e-6
    )
    assert [d is None for d in found["different_state_distance"]] == list(np.isnan(distances))


def test_extra_summaries_are_every_horizon_with_every_quantile(
    record: ShardRecord, distances: np.ndarray
) -> None:
    asked = plan(extra_horizons=(1, 3, 3), extra_quantiles=(0.0, 0.5, 1.0), quantile=0.75)
    found = summarise_checkpoint(asked, record, distances, np.zeros(ANCHORS, np.int64))
    rows = {(row["horizon"], row["quantile"]): row["ir_raw"] for row in found["summaries"]}
    assert len(rows) == len(found["summaries"]) == 12
    assert set(rows) == {(h, q) for h in (1, 3, HORIZON) for q in (0.0, 0.5, 1.0, 0.75)}
    for (horizon, quantile), value in rows.items():
        weights = list(WEIGHTS) if horizon == HORIZON else paper.uniform(horizon)
        expected = raw_ir(radii(record, horizon, weights), quantile)
        assert value == pytest.approx(expected, rel=1e-12)
    assert rows[HORIZON, 0.75] == found["ir_raw"]


def test_without_extras_the_main_summary_is_the_only_one(
    record: ShardRecord, distances: np.ndarray
) -> None:
    found = summarise_checkpoint(plan(), record, distances, np.zeros(ANCHORS, np.int64))
    main = {"horizon": HORIZON, "quantile": 0.90, "ir_raw": found["ir_raw"]}
    assert found["summaries"] == [main]


def test_the_verdict_is_relative_to_the_reference_and_to_itself_when_that_is_the_same() -> None:
    score = {"ir_raw": 0.2, "sr": 1.0}
    base = {"ir_raw": 1.0, "sr": 0.5}
    other = CheckpointName(name="base", weights="weights.pt", digest="b" * 64)
    against = plan().model_copy(update={"reference": other})
    verdict = judge(against, {"checkpoint": score, "reference": base})
    assert verdict.ir_relative == pytest.approx(paper.relative_ir(0.2, 1.0))
    assert verdict.score == pytest.approx(paper.screen_score(0.2, 1.0))
    assert verdict.outcome == paper.verdict(0.2, 1.0)
    itself = plan().model_copy(update={"reference": plan().checkpoint})
    assert judge(itself, {"checkpoint": score}).ir_relative == 1.0
    assert judge(plan(), {"checkpoint": score}).outcome == "inconclusive"


def test_a_record_restores_bit_for_bit(record: ShardRecord) -> None:
    restored = ShardRecord.from_json(json.loads(json.dumps(record.to_json())))
    for name in ("step_distances", "transitions", "history_latents", "endpoint_latents"):
        before, after = getattr(record, name), getattr(restored, name)
        assert (before.dtype, before.shape) == (after.dtype, after.shape)
        assert before.tobytes() == after.tobytes()


def test_shards_join_in_order(record: ShardRecord) -> None:
    parts = [
        ShardRecord(**{name: value[start:stop] for name, value in vars(record).items()})
        for start, stop in ((0, 10), (10, 20), (20, ANCHORS))
    ]
    whole = ShardRecord.concatenate(parts)
    for name, value in vars(record).items():
        np.testing.assert_array_equal(getattr(whole, name), value)
