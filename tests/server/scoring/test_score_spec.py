"""A plan holds all that can change a number of its result, and its digests say so."""

from dataclasses import FrozenInstanceError, fields, replace

import pytest
import torch
from acpc.contract import (
    AnchorSource,
    CheckpointRef,
    EvidenceOptions,
    GaussianBlur,
    GaussianNoise,
    PartnerPast,
    Reading,
    ScoreProtocol,
    Thresholds,
    check,
    from_json,
    from_plain,
    to_json,
    to_plain,
)
from acpc_server.encoding import AnchorSetSource
from acpc_server.errors import InvalidArgument
from acpc_server.scoring.spec import ScoreSpec
from hypothesis import given
from hypothesis import strategies as st

MODEL = CheckpointRef(name="model", weights="weights.pt", digest="a" * 64)
BASE = CheckpointRef(name="base", weights="weights.pt", digest="b" * 64)
TWIN = CheckpointRef(name="twin", weights="weights.pt", digest="a" * 64)
PLAN = ScoreSpec(
    checkpoint=MODEL,
    reference=BASE,
    anchors=AnchorSource(dataset="d.h5", task="tworoom"),
    perturbation=GaussianNoise(sigma=0.08),
)


def changed(**values: object) -> ScoreSpec:
    return replace(PLAN, **values)


@given(st.integers(1, 1000))
def test_shards_cover_every_anchor_once_in_order(count: int) -> None:
    plan = changed(anchors=replace(PLAN.anchors, count=count))
    covered = [anchor for start, stop in plan.shards() for anchor in range(start, stop)]
    assert covered == list(range(count))
    assert all(0 < stop - start <= 10 for start, stop in plan.shards())


def test_horizons_are_the_extra_ones_and_the_main_one_each_once() -> None:
    def horizons(*extra: int) -> list[int]:
        return changed(protocol=ScoreProtocol(horizon=8, extra_horizons=extra)).horizons()

    assert horizons() == [8]
    assert horizons(1, 5, 1) == [1, 5, 8]
    assert horizons(8, 2) == [8, 2]


def test_defaults_are_the_papers() -> None:
    protocol = PLAN.protocol
    numbers = protocol.draws, protocol.horizon, protocol.quantile, protocol.margin
    assert numbers == (5, 8, 0.9, 0.1)
    assert (PLAN.anchors.count, PLAN.anchors.seed) == (100, 9101)
    assert (PLAN.thresholds.ir, PLAN.thresholds.sr) == (0.30, 0.95)


def test_a_reference_with_the_same_weights_is_no_second_checkpoint() -> None:
    assert PLAN.roles() == ["checkpoint", "reference"]
    assert changed(reference=TWIN).roles() == ["checkpoint"]
    assert changed(reference=TWIN).named("reference") == TWIN
    assert changed(reference=None).roles() == ["checkpoint"]


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


def test_every_field_of_the_protocol_is_tried() -> None:
    assert set(PROTOCOLS) == {field.name for field in fields(ScoreProtocol)}


@pytest.mark.parametrize("field", PROTOCOLS)
def test_each_field_of_the_protocol_changes_the_parameters_digest(field: str) -> None:
    other = changed(protocol=ScoreProtocol(**{field: PROTOCOLS[field]}))
    assert other.digested() != PLAN.digested()
    same_draws = field not in ("draws", "seed")
    assert (other.perturbation_digest() == PLAN.perturbation_digest()) == same_draws


@pytest.mark.parametrize("field", ["ir", "sr"])
def test_thresholds_change_the_parameters_digest_alone(field: str) -> None:
    other = changed(thresholds=Thresholds(**{field: 0.5}))
    assert other.parameters() != PLAN.parameters()
    assert other.perturbation_digest() == PLAN.perturbation_digest()


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


@pytest.mark.parametrize("shift", [GaussianNoise(sigma=0.081), GaussianBlur(kernel_size=15)])
def test_the_shift_changes_the_perturbation_digest_alone(shift: object) -> None:
    other = changed(perturbation=shift)
    assert other.perturbation_digest() != PLAN.perturbation_digest()
    assert other.parameters() == PLAN.parameters()


def test_a_plan_survives_the_job_record() -> None:
    full = changed(protocol=ScoreProtocol(**PROTOCOLS), perturbation=GaussianBlur(kernel_size=15))
    assert from_plain(ScoreSpec, to_plain(full)) == full
    assert from_json(ScoreSpec, to_json(full)) == full
    stored = changed(anchors=AnchorSetSource(digest="c" * 64, count=23))
    assert from_plain(ScoreSpec, to_plain(stored)) == stored
    assert stored.shards() == [(0, 10), (10, 20), (20, 23)]


def test_what_is_digested_is_as_it_always_was() -> None:
    assert PLAN.digested() == {
        "protocol": {
            "draws": 5, "seed": 0, "horizon": 8, "quantile": 0.9, "margin": 0.1, "weights": [],
            "extra_horizons": [], "extra_quantiles": [],
        },
        "thresholds": {"ir": 0.3, "sr": 0.95},
    }  # fmt: skip


def test_a_plan_leaves_nothing_to_the_reading() -> None:
    released = changed(
        anchors=AnchorSource(dataset="d.h5", task="tworoom"),
        protocol=ScoreProtocol(reading=Reading.RELEASED),
    )
    found = [
        (plan.protocol.reading, plan.protocol.partner_past, plan.anchors.window_future_frames)
        for plan in (PLAN, released)
    ]
    assert found == [(Reading.PAPER, PartnerPast.OWN, 8), (Reading.RELEASED, PartnerPast.ANCHOR, 9)]
    parameters = released.receipt("c" * 64, torch.device("cpu")).parameters
    assert (parameters["window_future_frames"], parameters["sample"]) == (9, "windows")
    protocol = parameters["protocol"]
    assert (protocol["reading"], protocol["neighbourhood"]) == ("released", 0.35)


def test_a_parameter_that_is_given_stays_as_given() -> None:
    mixed = changed(
        anchors=replace(PLAN.anchors, window_future_frames=8),
        protocol=ScoreProtocol(reading=Reading.RELEASED, partner_past=PartnerPast.OWN),
    )
    assert mixed.anchors.window_future_frames == 8
    assert mixed.protocol.partner_past is PartnerPast.OWN
    with pytest.raises(InvalidArgument, match=r"dataset\.window_future_frames: found 7, but 8"):
        changed(anchors=replace(PLAN.anchors, window_future_frames=7))


def test_a_plan_is_frozen_and_takes_no_unknown_field() -> None:
    with pytest.raises(FrozenInstanceError):
        PLAN.thresholds.ir = 0.5
    with pytest.raises(InvalidArgument):
        from_plain(ScoreSpec, {**to_plain(PLAN), "extra": 1})
