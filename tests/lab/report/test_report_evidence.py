"""Intervals, what is sure and what is undecided, in every part of a report."""

import re

import pytest
from acpc_client import Evidence, Interval, Outcome
from acpc_lab.report import ReportData, claims, render
from acpc_lab.report.headline import everywhere, headline
from acpc_lab.report.verdicts import table
from client_messages import sure
from report_samples import sweep, with_evidence

LEVELS, RUNS, SHIFTS = (0, 0.02, 0.04, 0.08), ("1", "2"), ("gaussian_noise:0.08", "blur:15")
NEW = "of new trajectories like these."


@pytest.fixture(scope="module")
def data() -> ReportData:
    """A sweep in which cells pass surely, fail surely, and are undecided on either side."""
    return sweep(("tworoom",), RUNS, LEVELS, SHIFTS, success=False)


@pytest.fixture(scope="module")
def page(data: ReportData) -> str:
    return render(data)


def single(**changes: object) -> ReportData:
    """A report of one measurement whose confident outcome is undecided."""
    cell = sweep(("t",), ("1",), (0.08,), ("blur:15",), success=False).cells[0]
    found = vars(Evidence.from_message(sure(4, doubt=2, anchors_to_decide=240)))
    return ReportData("one", (with_evidence(cell, **{**found, **changes}),))


@pytest.mark.process
def test_numbers_of_the_table_have_their_intervals(data: ReportData, page: str) -> None:
    for row in table(data)[1]:
        evidence = row.cell.evidence
        low, high = map(float, row.values["sr"].interval.split(" to "))
        assert low <= evidence.sr.lower < low + 0.001 and high - 0.001 < evidence.sr.upper <= high
        assert (
            bool(row.values["ir_relative"].interval) is not row.cell.is_reference
        )  # 1 by definition
        assert row.values["sr"].interval in page
    assert "Below a number, its 95 % interval" in page


@pytest.mark.process
@pytest.mark.parametrize("left", [1, 0])
def test_measurements_without_evidence_are_shown_by_their_numbers(
    data: ReportData, left: int
) -> None:
    """One beside others, and all of them."""
    few = data.with_(cells=data.cells[:4])
    bare = few.with_(cells=tuple(map(with_evidence, few.cells[left:])) + few.cells[:left])
    row = next(row for row in table(bare)[1] if row.cell.outcome is Outcome.PASSED)
    assert row.verdict == "passes" and not row.values["sr"].interval
    assert " not judged." in claims(bare)[0]
    render(bare)


def test_the_headline_says_what_is_sure_and_one_line_what_is_seen(data: ReportData) -> None:
    """The two never stand in the same type: what is seen by the numbers alone comes second."""
    said = headline(data)
    counts = [found.outcome for found in everywhere(data).values()]
    assert said.sentence.startswith("95 % sure: of 6 checkpoints, ")
    assert f"{counts.count(Outcome.PASSED)} pass" in said.sentence
    [line] = said.lines
    assert re.match(r"By the numbers alone \d pass(es)?; of \d+ measurements, ", line)
    assert "would probably decide" in line
    whole = dict.fromkeys(cell.name for cell in data.candidates)
    failing = {cell.name for cell in data.candidates if cell.outcome is not Outcome.PASSED}
    assert f"alone {len(whole) - len(failing)} pass" in line


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({}, "Undecided: 100 anchors are too few, about 240 would probably decide it; the doubt "
             "is in SR " + NEW),
        ({"anchors_to_decide": 29264}, "Undecided: 100 anchors are too few, more than 1,000 would "
         "probably decide it; the doubt is in SR " + NEW),
        ({"anchors_to_decide": None}, "Undecided: 100 anchors are too few; the doubt is in SR "
         + NEW),
        ({"confident_outcome": Outcome.PASSED}, "Passes; 95 % sure " + NEW),
        ({"confident_outcome": Outcome.FAILED, "confidence": 0.99}, "Fails; 99 % sure " + NEW),
        ({"confident_outcome": Outcome.INCONCLUSIVE},
         "Inconclusive: without a reference relative IR is unknown."),
    ],
)  # fmt: skip
def test_a_single_measurement_says_it_in_a_sentence(changes: dict[str, object], words: str) -> None:
    said = headline(single(**changes))
    assert said.lines[0] == words


@pytest.mark.process
def test_an_end_without_bound_is_a_sign_and_warnings_are_on_the_page() -> None:
    endless = Interval(0.93, float("inf"), "made up")
    notes = ("only 12 anchors are eligible",)
    page = render(single(sr=endless, ir_relative=endless, ir_raw=endless, notes=notes))
    assert "0.930 to \N{INFINITY}" in page and notes[0] in page
