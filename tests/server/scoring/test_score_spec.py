"""A plan holds all that can change a number of its result, and its digests say so."""

from dataclasses import fields, replace

import pytest
from acpc.contract import (
    CheckpointRef,
    EvidenceOptions,
    PartnerPast,
    Reading,
    ScoreProtocol,
    Thresholds,
    check,
    to_plain,
)
from acpc_server.errors import InvalidArgument
from acpc_server.scoring import ScoreSpec
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
