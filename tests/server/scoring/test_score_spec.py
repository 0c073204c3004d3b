"""A plan holds all that can change its result, which is what the paper's loops make of shards."""

import json
from dataclasses import dataclass, fields, replace

import numpy as np
import numpy_reference as paper
import pytest
import torch
from acpc.contract import (
    NUMBERS,
    CheckpointRef,
    CheckpointScore,
    EvidenceOptions,
    PartnerPast,
    Reading,
    ScoreProtocol,
    ScoreRequest,
    StudyRequest,
    Thresholds,
    check,
    to_plain,
)
from acpc_server.errors import FailedPrecondition, InvalidArgument
from acpc_server.jobs import unpack
from acpc_server.scoring import ScoreSpec
from acpc_server.scoring.measuring import ShardRecord
from acpc_server.scoring.score import summarise_checkpoint
from acpc_server.studies import StudySpec
from score_specs import score_spec

BASE = CheckpointRef(name="base", weights="weights.pt", digest="c" * 64)
PLAN = replace(score_spec(), reference=BASE)


def changed(**values: object) -> ScoreSpec:
    return replace(PLAN, **values)


PROTOCOLS = {
    "draws": 6,
    "seed": 1,
    "horizon": 7,
    "quantile": 0.8,
    "margin": 0.2,
    "weights": (1.0,),
    "extra_horizons": (2,),
    "extra_quantiles": (0.5,),
    "reading": Reading.RELEASED,
    "partner_past": PartnerPast.ANCHOR,
    "neighbourhood": 0.25,
}


@pytest.mark.parametrize(("asked", "job"), [(ScoreRequest, ScoreSpec), (StudyRequest, StudySpec)])
def test_a_job_has_all_that_its_request_asks(asked: type, job: type) -> None:
    """And what no number depends on in the one, none depends on in the other."""
    measured = {f.name: f.compare for f in fields(job)}
    wanted = {f.name: f.compare for f in fields(asked) if f.name != "request_id"}
    assert {name: measured.get(name) for name in wanted} == wanted


def test_every_field_of_the_protocol_is_tried() -> None:
    assert set(PROTOCOLS) == {field.name for field in fields(ScoreProtocol)}


@pytest.mark.parametrize("field", PROTOCOLS)
def test_each_field_of_the_protocol_changes_the_parameters_digest(field: str) -> None:
    other = changed(protocol=ScoreProtocol(**{field: PROTOCOLS[field]}))
    assert other.digested() != PLAN.digested()
    same_draws = field not in ("draws", "seed")
    assert (other.perturbation_digest() == PLAN.perturbation_digest()) == same_draws


def test_how_sure_it_is_made_changes_the_digest_only_when_it_is_said() -> None:
    """Digests of releases that had no intervals can be compared with later ones."""
    assert "evidence" not in PLAN.digested()
    for options in (EvidenceOptions(0.9), EvidenceOptions(resamples=500), EvidenceOptions(seed=1)):
        other = changed(evidence=options)
        assert other.digested() != PLAN.digested()
        told = other.parameters()["evidence"]
        assert told == {**to_plain(options), "method": told["method"]}
        assert told["method"]


def test_the_file_of_thresholds_is_in_the_receipt_and_nothing_where_there_is_none() -> None:
    assert PLAN.parameters()["thresholds"] == {"ir": 0.3, "sr": 0.95}
    source = {"source_digest": "e" * 64, "family": "lewm"}
    chosen = changed(thresholds=Thresholds(**source))
    assert chosen.parameters()["thresholds"] == {"ir": 0.3, "sr": 0.95, **source}
    assert chosen.digested() != PLAN.digested()
    with pytest.raises(InvalidArgument, match=r"found 'E+', wanted 64 hexadecimal digits"):
        check(Thresholds(source_digest="E" * 64))


def test_what_is_digested_is_as_it_always_was() -> None:
    assert PLAN.digested() == {
        "protocol": {
            "draws": 5, "seed": 0, "horizon": 8, "quantile": 0.9, "margin": 0.1, "weights": [],
            "extra_horizons": [], "extra_quantiles": [],
        },
        "thresholds": {"ir": 0.3, "sr": 0.95},
    }  # fmt: skip


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


def test_every_number_of_a_score_has_a_loop_in_float64() -> None:
    """Those that need the network have theirs in test_score_steps.py and test_fit.py."""
    assert {*NUMBERS} == {*paper.NUMBERS, "rounding_floor", "skill"}


def test_a_summary_is_what_the_paper_defines(measured: Measured, distances: np.ndarray) -> None:
    partner = np.where(np.isnan(distances), -1, 0)
    found = summarise_checkpoint(plan(), measured.reduced(plan()), distances, partner)
    table = radii(measured, HORIZON, list(WEIGHTS))
    latents = measured.observed[:, -1]
    side = paper.Side(draw_radius=table, distance=distances.tolist(), latents=latents)
    for name in paper.NUMBERS.keys() & {field.name for field in fields(CheckpointScore)}:
        assert found[name] == pytest.approx(paper.NUMBERS[name](side, side), rel=1e-12), name
    np.testing.assert_allclose(unpack(found["draw_radius"]), table, rtol=1e-12)
    np.testing.assert_allclose(unpack(found["radius"]), np.mean(table, axis=1), rtol=1e-12)
    scales = [paper.quantile(row.tolist(), 0.5) for row in measured.transitions]
    np.testing.assert_allclose(unpack(found["motion_scale"]), scales, rtol=1e-12)
    pushed = measured.steps.sum(axis=1) / DRAWS / (np.array(scales)[:, None] + 1e-8)
    np.testing.assert_allclose(unpack(found["step_radius"]), pushed, rtol=1e-12)
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
        expected = paper.quantile(paper.means(radii(measured, horizon, weights)), quantile)
        assert value == pytest.approx(expected, rel=1e-12)
    assert rows[HORIZON, 0.75] == found["ir_raw"]


def test_predictions_that_are_not_finite_give_no_score(
    measured: Measured, distances: np.ndarray
) -> None:
    measured.steps[[2, 5], 1, 3] = np.nan
    record = measured.reduced(plan())
    with pytest.raises(FailedPrecondition, match=f"not finite for 2 of {ANCHORS} anchors"):
        summarise_checkpoint(plan(), record, distances, np.zeros(ANCHORS, np.int64))
