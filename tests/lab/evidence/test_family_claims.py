"""What is sure of many cells together, beside what is sure of each by itself."""

from dataclasses import replace

import pytest
from acpc.contract import Look, LookStop, SequentialLooks
from acpc.v1 import scoring_service_pb2 as pb
from acpc_client import Evidence, Outcome
from acpc_lab.evidence import Correction, Family
from client_messages import sure

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
