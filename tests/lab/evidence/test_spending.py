"""However many epochs are looked at, the errors of their verdicts add up to one promise."""

from dataclasses import replace

import numpy as np
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
from acpc_client import Evidence, EvidenceOptions, Outcome
from acpc_lab.evidence import Family, at_epoch
from client_messages import sure
from hypothesis import given
from hypothesis import strategies as st

BATCHES = UntilDecided(25)
RUNS, EPOCHS, SHIFTS = 60, 40, 2
MOST = 0.05 + 3 * (0.05 * 0.95 / RUNS) ** 0.5
"""Three standard errors of a share of 5 % among so many runs."""


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
    assert sizes == [75, 150, 300][3 - len(sizes) :]
    assert len(sizes) == 3 or epoch > 0
    assert (1 - asked.confidence) * (sizes[0] / 300) ** 2 >= 2 / MAX_RESAMPLES * 0.999


def epoch_of(p_values: list[float], confidence: float) -> list[Evidence]:
    """The cells of one epoch, whose p-values are against "it passes"."""
    cell = Evidence.from_message(sure(0))
    outcomes = [Outcome.FAILED if p <= 1 - confidence else Outcome.UNDECIDED for p in p_values]
    return [
        replace(cell, confidence=confidence, confident_outcome=outcome, p_failed=p)
        for p, outcome in zip(p_values, outcomes, strict=True)
    ]


def says_failed(cells: list[Evidence]) -> bool:
    return any(one.outcome is Outcome.FAILED for one in Family(cells).each())


def test_a_whole_run_is_wrongly_said_to_fail_as_rarely_as_one_epoch() -> None:
    """Every epoch lies at the boundary, where a p-value is uniform, and epochs are independent."""
    drawn = np.random.default_rng(15).uniform(size=(RUNS, EPOCHS, SHIFTS)).tolist()
    asked = [at_epoch(EvidenceOptions(), k, 20).confidence for k in range(EPOCHS)]
    runs = [[epoch_of(*one) for one in zip(run, asked, strict=True)] for run in drawn]
    wrong = [any(map(says_failed, run)) for run in runs]
    assert sum(wrong) / RUNS <= MOST
    assert sum(wrong) > 0, "the error is spent, not kept"
    together = [says_failed([cell for epoch in run for cell in epoch]) for run in runs]
    assert together == wrong, "a report of the run says what was said of its epochs"
    alone = [[epoch_of(p_values, 0.95) for p_values in run] for run in drawn]
    assert sum(any(map(says_failed, run)) for run in alone) / RUNS > 0.5, "what it is for"


def test_what_is_no_epoch_or_not_shared_has_the_whole_error() -> None:
    asked = EvidenceOptions(confidence=0.9)
    assert at_epoch(asked, None, 100) == at_epoch(asked, 7, None) == asked
