"""What a job reports of its shards, against loops written from the paper's text."""

import json
from dataclasses import dataclass

import numpy as np
import numpy_reference as paper
import pytest
import torch
from acpc_server.errors import FailedPrecondition
from acpc_server.jobs import unpack
from acpc_server.scoring.measuring import ShardRecord
from acpc_server.scoring.score import summarise_checkpoint
from acpc_server.scoring.spec import ScoreSpec
from score_specs import score_spec

ANCHORS, DRAWS, HORIZON, DIM = 23, 4, 6, 5
WEIGHTS = (0.5, 0.1, 0.1, 0.1, 0.1, 0.1)


def plan(**protocol: object) -> ScoreSpec:
    return score_spec(**{"draws": DRAWS, "horizon": HORIZON, "weights": WEIGHTS, **protocol})


@dataclass(frozen=True)
class Measured:
    """What a shard measures, before it is reduced."""

    steps: np.ndarray
    observed: np.ndarray
    history: np.ndarray

    @property
    def transitions(self) -> np.ndarray:
        moves = np.diff(self.observed.astype(np.float64), axis=1)
        return np.sqrt((moves**2).sum(axis=-1))

    def reduced(self, asked: ScoreSpec, rows: slice = slice(None)) -> ShardRecord:
        return ShardRecord.measured(
            asked,
            torch.from_numpy(self.steps[rows]),
            torch.from_numpy(self.observed[rows]),
            torch.from_numpy(self.history[rows]),
        )


@pytest.fixture
def measured() -> Measured:
    generator = np.random.default_rng(11)
    return Measured(
        steps=generator.gamma(2.0, 0.3, (ANCHORS, DRAWS, HORIZON)),
        observed=generator.standard_normal((ANCHORS, HORIZON + 1, DIM)).astype(np.float32),
        history=generator.standard_normal((ANCHORS, 3, DIM)).astype(np.float32),
    )


@pytest.fixture
def distances() -> np.ndarray:
    values = np.random.default_rng(12).gamma(2.0, 0.6, ANCHORS)
    values[[3, 8]] = np.nan
    return values


def radii(record: Measured, horizon: int, weights: list[float]) -> list[list[float]]:
    """Normalised radius of every draw, anchor by anchor."""
    table = []
    for anchor in range(ANCHORS):
        scale = paper.quantile(record.transitions[anchor, :horizon].tolist(), 0.5)
        row = []
        for draw in range(DRAWS):
            steps = record.steps[anchor, draw, :horizon]
            acpc = sum(w * d * d for w, d in zip(weights, steps, strict=True)) ** 0.5
            row.append(acpc / (scale + 1e-8))
        table.append(row)
    return table


def raw_ir(table: list[list[float]], q: float) -> float:
    return paper.quantile([sum(row) / len(row) for row in table], q)


def test_a_summary_is_what_the_paper_defines(measured: Measured, distances: np.ndarray) -> None:
    partner = np.where(np.isnan(distances), -1, 0)
    found = summarise_checkpoint(plan(), measured.reduced(plan()), distances, partner)
    table = radii(measured, HORIZON, list(WEIGHTS))
    ir = raw_ir(table, 0.90)
    assert found["ir_raw"] == pytest.approx(ir, rel=1e-12)
    assert found["sr"] == paper.separation_rate(distances.tolist(), ir, 0.10)
    assert (found["anchors"], found["eligible"], found["skipped"]) == (ANCHORS, ANCHORS - 2, 2)
    np.testing.assert_allclose(unpack(found["draw_radius"]), table, rtol=1e-12)
    np.testing.assert_allclose(unpack(found["radius"]), np.mean(table, axis=1), rtol=1e-12)
    scales = [paper.quantile(row.tolist(), 0.5) for row in measured.transitions]
    np.testing.assert_allclose(unpack(found["motion_scale"]), scales, rtol=1e-12)
    pushed = measured.steps.sum(axis=1) / DRAWS / (np.array(scales)[:, None] + 1e-8)
    np.testing.assert_allclose(unpack(found["step_radius"]), pushed, rtol=1e-12)
    assert found["median_latent_distance"] == pytest.approx(
        paper.median_latent_distance(measured.observed[:, -1]), rel=1e-6
    )
    np.testing.assert_array_equal(unpack(found["different_state_distance"]), distances)
    np.testing.assert_array_equal(unpack(found["partner"]), partner)
    main = {"horizon": HORIZON, "quantile": 0.90, "ir_raw": found["ir_raw"]}
    assert found["summaries"] == [main], "the only one without extras"
    json.dumps(found, allow_nan=False)


def test_extra_summaries_are_every_horizon_with_every_quantile(
    measured: Measured, distances: np.ndarray
) -> None:
    asked = plan(extra_horizons=(1, 3, 3), extra_quantiles=(0.0, 0.5, 1.0), quantile=0.75)
    record = measured.reduced(asked)
    found = summarise_checkpoint(asked, record, distances, np.zeros(ANCHORS, np.int64))
    rows = {(row["horizon"], row["quantile"]): row["ir_raw"] for row in found["summaries"]}
    assert len(rows) == len(found["summaries"]) == 12
    assert set(rows) == {(h, q) for h in (1, 3, HORIZON) for q in (0.0, 0.5, 1.0, 0.75)}
    for (horizon, quantile), value in rows.items():
        weights = list(WEIGHTS) if horizon == HORIZON else paper.uniform(horizon)
        expected = raw_ir(radii(measured, horizon, weights), quantile)
        assert value == pytest.approx(expected, rel=1e-12)
    assert rows[HORIZON, 0.75] == found["ir_raw"]


def test_predictions_that_are_not_finite_give_no_score(
    measured: Measured, distances: np.ndarray
) -> None:
    measured.steps[[2, 5], 1, 3] = np.nan
    record = measured.reduced(plan())
    with pytest.raises(FailedPrecondition, match=f"not finite for 2 of {ANCHORS} anchors"):
        summarise_checkpoint(plan(), record, distances, np.zeros(ANCHORS, np.int64))
