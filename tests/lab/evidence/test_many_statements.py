"""What is sure of many statements together: corrections, families of cells, epochs of a run."""

import itertools
from collections.abc import Sequence
from dataclasses import replace
from statistics import NormalDist

import numpy as np
import pytest
from acpc.arrays import NDArray
from acpc.contract import (
    MAX_RESAMPLES,
    CheckpointRef,
    DatasetAnchors,
    Jpeg,
    Look,
    LookStop,
    ScoreRequest,
    SequentialLooks,
    UntilDecided,
    check,
)
from acpc.v1 import scoring_service_pb2 as pb
from acpc_client import Evidence, EvidenceOptions, Outcome
from acpc_lab.evidence import (
    Correction,
    Family,
    all_hold,
    any_holds,
    at_epoch,
    benjamini_hochberg,
    benjamini_yekutieli,
    holm,
)
from client_messages import sure
from hypothesis import given
from hypothesis import strategies as st

P = st.floats(0, 1) | st.sampled_from([0.0, 0.001, 0.01, 0.025, 0.05, 1.0])
FAMILIES = st.lists(P, max_size=6)


def closed_testing(p_values: Sequence[float]) -> list[float]:
    """Adjusted p-values of the closed test (Marcus, Peritz and Gabriel 1976) with Bonferroni.

    A hypothesis is rejected when every set of hypotheses that holds it is rejected.
    """
    every = range(len(p_values))
    sets = [s for size in range(1, len(p_values) + 1) for s in itertools.combinations(every, size)]
    bonferroni = {s: min(1.0, len(s) * min(p_values[i] for i in s)) for s in sets}
    return [max(p for s, p in bonferroni.items() if i in s) for i in every]


@given(FAMILIES)
def test_holm_is_the_closed_test_of_bonferroni(p_values: list[float]) -> None:
    assert holm(p_values) == pytest.approx(closed_testing(p_values))


def step_up(p_values: Sequence[float], level: float, dependence: float) -> set[int]:
    """What Benjamini and Hochberg (1995) reject: up to the last rank whose p-value is small."""
    n, rejected = len(p_values), set[int]()
    for rank in range(1, n + 1):
        smallest = sorted(range(n), key=lambda i: p_values[i])[:rank]
        if p_values[smallest[-1]] * n * dependence <= rank * level:
            limit = p_values[smallest[-1]]
            rejected = {i for i in range(n) if p_values[i] <= limit}
    return rejected


@given(FAMILIES, st.sampled_from([0.01, 0.05, 0.1, 0.3]))
def test_adjusted_values_reject_what_the_step_up_procedure_does(
    p_values: list[float], level: float
) -> None:
    harmonic = sum(1 / rank for rank in range(1, len(p_values) + 1))
    for adjust, dependence in ((benjamini_hochberg, 1.0), (benjamini_yekutieli, harmonic)):
        found = adjust(p_values)
        for near in (level * (1 - 1e-9), level * (1 + 1e-9)):  # not where rounding decides
            rejected = {i for i, p in enumerate(found) if p <= near}
            assert rejected == step_up(p_values, near, dependence) or any(
                abs(p - near) < 1e-12 for p in found
            )
    pairs = zip(benjamini_hochberg(p_values), holm(p_values), strict=True)
    assert all(least <= most + 1e-12 for least, most in pairs)


def test_nothing_asked_is_nothing_claimed() -> None:
    assert holm([]) == benjamini_hochberg([]) == benjamini_yekutieli([]) == []
    assert all_hold([]) == any_holds([]) == 1


PASSED, FAILED, OPEN = Outcome.PASSED, Outcome.FAILED, Outcome.UNDECIDED
NONE = Correction.NONE


def passing(p: float) -> Evidence:
    """A cell that passes by itself where ``p`` is at most 0.05."""
    found = pb.OUTCOME_PASSED if p <= 0.05 else pb.OUTCOME_UNDECIDED
    return Evidence.from_message(sure(found, p_passed=p))


def failing(p: float) -> Evidence:
    found = pb.OUTCOME_FAILED if p <= 0.05 else pb.OUTCOME_UNDECIDED
    return Evidence.from_message(sure(found, p_failed=p))


def test_many_cells_are_held_to_more_than_one() -> None:
    """0.001 of four is sure; 0.02 is by itself, and not as the second smallest of four."""
    cells = [passing(0.02), passing(0.001), passing(0.5), failing(0.001)]
    found = Family(cells).each()
    assert [one.alone for one in found] == [PASSED, PASSED, OPEN, FAILED]
    assert [one.outcome for one in found] == [OPEN, PASSED, OPEN, FAILED]
    assert [one.p_passed for one in found] == pytest.approx([0.06, 0.004, 1.0, 1.0])
    assert [one.outcome for one in Family(cells, NONE).each()] == [PASSED, PASSED, OPEN, FAILED]
    (alone,) = Family(cells[:1]).each()
    assert alone.outcome is PASSED


def test_a_cell_to_come_counts_and_is_not_judged() -> None:
    waiting = Family([passing(0.02), None, None]).each()
    assert (waiting[0].outcome, waiting[1].outcome, waiting[1].alone) == (OPEN, None, None)
    ended = Family([passing(0.02), passing(0.01), passing(0.001)]).each()
    assert [one.outcome for one in ended] == [PASSED] * 3


def test_under_every_shift_takes_the_worst_shift_and_no_correction_over_shifts() -> None:
    """Two checkpoints under three shifts: corrected for two statements, not for six cells."""
    first = [passing(0.02), passing(0.024), passing(0.001)]
    second = [passing(0.001), passing(0.2), passing(0.001)]
    family = Family([*first, *second])
    one, other = family.everywhere([(0, 1, 2), (3, 4, 5)])
    assert (one.alone, one.outcome) == (PASSED, PASSED) and one.p_passed == pytest.approx(0.048)
    assert (other.alone, other.outcome) == (OPEN, OPEN)
    assert [cell.outcome for cell in family.each()][:3] == [OPEN, OPEN, PASSED]


def test_failing_somewhere_is_corrected_over_shifts() -> None:
    """0.02 under one of two shifts is sure, 0.04 is not; the worst of two checkpoints is halved."""
    cells = [passing(0.001), failing(0.02), passing(0.001), failing(0.04)]
    one, other = Family(cells, NONE).everywhere([(0, 1), (2, 3)])
    assert (one.outcome, other.outcome) == (FAILED, OPEN)
    assert one.p_failed == pytest.approx(0.04)
    (corrected, _) = Family(cells).everywhere([(0, 1), (2, 3)])
    assert (corrected.alone, corrected.outcome) == (FAILED, OPEN)


def test_a_job_that_looked_several_times_counts_by_its_shares_of_the_error() -> None:
    """Passed at the second look, with 0.02 where it had 0.03 of 0.05; the first had none."""
    looks = SequentialLooks(
        confidence=0.95,
        limit=100,
        batch=25,
        stop=LookStop.DECIDED,
        looks=(Look(25, 20, 0.0, 0.01, 0.9, 0.9), Look(50, 40, 0.03, 0.01, 0.02, 0.8)),
    )
    cell = replace(passing(0.02), confidence=0.97, looks=looks)
    family = Family([cell, passing(0.5)])
    assert family.confidence == 0.95
    (alone,), (first, _) = Family([cell]).each(), family.each()
    assert (alone.p_passed, alone.outcome) == (pytest.approx(0.02 / 0.6), PASSED)
    assert (first.p_passed, first.outcome) == (pytest.approx(0.04 / 0.6), OPEN)
    assert alone.p_failed == 1


def test_cells_of_one_confidence_share_its_error_and_errors_add_up() -> None:
    strict = replace(passing(0.004), confidence=0.99)
    cells = [passing(0.02), strict, passing(0.03), strict]
    assert Family(cells).confidence == pytest.approx(0.94)
    assert [one.outcome for one in Family(cells).each()] == [PASSED, PASSED, PASSED, PASSED]
    assert [one.outcome for one in Family([*cells, None]).each()] == [OPEN, OPEN, OPEN, OPEN, None]
    whole = Family(cells).everywhere([(0, 2), (1, 3)])
    assert [one.p_passed for one in whole] == pytest.approx([0.03, 0.004])
    assert Family([None]).confidence == 1


def test_the_share_of_wrong_ones_may_be_bounded_instead() -> None:
    """0.02 is the second smallest of four: Holm says 0.06, Benjamini and Hochberg 0.04."""
    cells = [passing(0.02), passing(0.001), passing(0.5), failing(0.001)]
    found = {method: Family(cells, method).each() for method in Correction}
    assert [one.outcome for one in found[Correction.BH]] == [PASSED, PASSED, OPEN, FAILED]
    assert found[Correction.BH][0].p_passed == pytest.approx(0.04)
    assert found[Correction.BY][0].p_passed == pytest.approx(0.04 * 25 / 12)
    assert found[Correction.BY][0].outcome is OPEN
    assert Family(cells, Correction.BH).confidence == pytest.approx(0.95)


BATCHES = UntilDecided(25)


@pytest.mark.parametrize("confidence", [0.9, 0.95, 0.99])
@pytest.mark.parametrize("halflife", [1, 10, 100])
def test_the_errors_of_all_epochs_add_up_to_the_error(confidence: float, halflife: int) -> None:
    options = EvidenceOptions(confidence=confidence)
    alpha = 1 - confidence
    errors = [1 - at_epoch(options, epoch, halflife).confidence for epoch in range(halflife)]
    assert sum(errors) == pytest.approx(alpha / 2, rel=0.05)
    assert errors == sorted(errors, reverse=True)


@pytest.mark.parametrize("epoch", [0, 44, 150, 10_000])
def test_an_epoch_that_stops_when_it_is_decided_has_an_error_for_every_look(epoch: int) -> None:
    asked = at_epoch(EvidenceOptions(resamples=20_000, seed=3), epoch, 100)
    assert asked.seed == 3 and asked.resamples >= 20_000
    anchors = DatasetAnchors("d.h5", "pusht", count=300)
    check(
        ScoreRequest(CheckpointRef("m"), anchors, Jpeg(20), evidence=asked, until_decided=BATCHES)
    )
    sizes = BATCHES.sizes(300, asked.confidence)
    assert sizes == [75, 150, 300][3 - len(sizes) :]
    assert len(sizes) == 3 or epoch > 0
    assert (1 - asked.confidence) * (sizes[0] / 300) ** 2 >= 2 / MAX_RESAMPLES * 0.999


def test_what_is_no_epoch_or_not_shared_has_the_whole_error() -> None:
    asked = EvidenceOptions(confidence=0.9)
    assert at_epoch(asked, None, 100) == at_epoch(asked, 7, None) == asked


SWEEPS, CHECKPOINTS, SHIFTS, LEVEL = 4000, 6, 4, 0.05
RUNS, EPOCHS = 60, 40


def most(runs: int) -> float:
    """Three standard errors above a share of 5 % among so many."""
    return LEVEL + 3 * (LEVEL * (1 - LEVEL) / runs) ** 0.5


def p_values(truth: NDArray[np.float64], dependence: float) -> NDArray[np.float64]:
    """One-sided p-values of normal measurements, (sweeps, *truth.shape).

    ``truth`` says how many standard errors a cell lies beyond its threshold, at most 0 where it
    does not pass. Cells share anchors: any two correlate by ``dependence``.
    """
    random = np.random.default_rng(2026)
    common = random.standard_normal((SWEEPS, *(1,) * truth.ndim))
    own = random.standard_normal((SWEEPS, *truth.shape))
    seen = truth + np.sqrt(dependence) * common + np.sqrt(1 - dependence) * own
    return np.vectorize(NormalDist().cdf)(-seen)


def share(wrong: list[bool]) -> float:
    return sum(wrong) / len(wrong)


@pytest.mark.parametrize("dependence", [0.0, 0.6])
def test_at_most_one_sweep_in_twenty_names_a_cell_that_does_not_pass(dependence: float) -> None:
    """Half of the cells lie at the boundary and half pass by far: the hardest case for Holm."""
    truth = np.zeros(CHECKPOINTS * SHIFTS)
    truth[::2] = 4.0
    measured = p_values(truth, dependence).tolist()
    at_threshold = np.flatnonzero(truth == 0).tolist()
    corrected = [holm(p) for p in measured]
    assert share([any(p[i] <= LEVEL for i in at_threshold) for p in corrected]) <= most(SWEEPS)
    # What correction is for: without it, far more of them name one.
    assert share([any(p[i] <= LEVEL for i in at_threshold) for p in measured]) > 3 * LEVEL


def test_passes_under_every_shift_needs_no_correction_over_shifts() -> None:
    """Every checkpoint lies at the threshold under one shift and passes the others by far."""
    truth = np.full((CHECKPOINTS, SHIFTS), 6.0)
    truth[:, 0] = 0.0
    everywhere = [[all_hold(shifts) for shifts in sweep] for sweep in p_values(truth, 0.3).tolist()]
    first = share([p[0] <= LEVEL for p in everywhere])
    assert LEVEL / 2 < first <= most(SWEEPS)  # of one checkpoint: the whole level is used
    assert share([min(p) <= LEVEL for p in everywhere]) > 2 * LEVEL
    assert share([min(holm(p)) <= LEVEL for p in everywhere]) <= most(SWEEPS)


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
    drawn = np.random.default_rng(15).uniform(size=(RUNS, EPOCHS, 2)).tolist()
    asked = [at_epoch(EvidenceOptions(), k, 20).confidence for k in range(EPOCHS)]
    runs = [[epoch_of(*one) for one in zip(run, asked, strict=True)] for run in drawn]
    wrong = [any(map(says_failed, run)) for run in runs]
    assert sum(wrong) / RUNS <= most(RUNS)
    assert sum(wrong) > 0, "the error is spent, not kept"
    together = [says_failed([cell for epoch in run for cell in epoch]) for run in runs]
    assert together == wrong, "a report of the run says what was said of its epochs"
    alone = [[epoch_of(p_values, 0.95) for p_values in run] for run in drawn]
    assert sum(any(map(says_failed, run)) for run in alone) / RUNS > 0.5, "what it is for"
