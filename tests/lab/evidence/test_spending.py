"""However many epochs are looked at, the errors of their verdicts add up to one promise."""

from __future__ import annotations

import pytest
from acpc.contract import (
    MAX_RESAMPLES,
    CheckpointRef,
    DatasetAnchors,
    Jpeg,
    ScoreRequest,
    UntilDecided,
    check,
)
from acpc_client import EvidenceOptions
from acpc_lab.evidence import at_epoch
from hypothesis import given
from hypothesis import strategies as st

BATCHES = UntilDecided(25)


@pytest.mark.parametrize("confidence", [0.9, 0.95, 0.99])
@pytest.mark.parametrize("halflife", [1, 10, 100])
def test_the_errors_of_all_epochs_add_up_to_the_error(confidence: float, halflife: int) -> None:
    options = EvidenceOptions(confidence=confidence)
    alpha = 1 - confidence
    errors = [1 - at_epoch(options, epoch, halflife).confidence for epoch in range(halflife)]
    assert sum(errors) == pytest.approx(alpha / 2, rel=0.05)
    assert errors == sorted(errors, reverse=True)


def test_with_the_defaults_eight_hundred_epochs_promise_no_more_than_one() -> None:
    errors = [1 - at_epoch(EvidenceOptions(), epoch, 100).confidence for epoch in range(800)]
    assert 0.045 < sum(errors) <= 0.05
    assert errors[0] == pytest.approx(0.05 / 101)


@given(
    confidence=st.floats(0.51, 0.999),
    epoch=st.integers(0, 10**6),
    halflife=st.integers(1, 10**4),
    seed=st.integers(0, 9),
)
def test_a_server_takes_what_an_epoch_asks(
    confidence: float, epoch: int, halflife: int, seed: int
) -> None:
    asked = EvidenceOptions(confidence, 20_000, seed)
    check(asked)
    spent = at_epoch(asked, epoch, halflife)
    check(spent)
    assert spent.seed == seed
    assert spent.confidence >= confidence
    assert spent == at_epoch(asked, epoch, halflife), "the number of the epoch decides"


@pytest.mark.parametrize("epoch", [0, 44, 150, 10_000])
def test_an_epoch_that_stops_when_it_is_decided_has_an_error_for_every_look(epoch: int) -> None:
    asked = at_epoch(EvidenceOptions(), epoch, 100)
    anchors = DatasetAnchors("d.h5", "pusht", count=300)
    check(
        ScoreRequest(CheckpointRef("m"), anchors, Jpeg(20), evidence=asked, until_decided=BATCHES)
    )
    sizes = BATCHES.sizes(300, asked.confidence)
    assert len(sizes) == 12 if epoch == 0 else len(sizes) < 12
    assert (1 - asked.confidence) / len(sizes) >= 2 / MAX_RESAMPLES * 0.999
