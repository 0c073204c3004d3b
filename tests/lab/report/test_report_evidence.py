"""Intervals, what is sure and what is undecided, in every part of a report."""

import re

import pytest
from acpc_client import Evidence, Interval, Outcome
from acpc_lab.evidence import FamilyWise
from acpc_lab.plotting import panel, styled
from acpc_lab.report import ReportData, claims, failing, render
from acpc_lab.report.figures import plates
from acpc_lab.report.headline import everywhere, headline, onsets, tallies
from acpc_lab.report.tables import grids, standings, table
from client_messages import sure
from matplotlib.lines import Line2D
from report_samples import sweep, with_evidence

LEVELS, RUNS, SHIFTS = (0, 0.02, 0.04, 0.08), ("1", "2"), ("gaussian_noise:0.08", "blur:15")
STANDINGS = {
    Outcome.PASSED: {"●"},
    Outcome.FAILED: {"○"},
    Outcome.UNDECIDED: {"◐", "◑"},
}


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


def test_the_sample_has_every_kind(data: ReportData) -> None:
    words = {found.word for found in standings(data)}
    assert {"passes, sure", "fails, sure", "reference"} < words
    assert words & {"passes, undecided", "fails, undecided"}


def test_a_symbol_is_as_full_as_the_verdict_is_sure(data: ReportData) -> None:
    """And has the word and the colour of the verdict of the numbers as they are."""
    _, rows = table(data)
    for row in rows:
        if row.cell.is_reference or row.cell.sure is None:
            continue
        assert row.standing.symbol in STANDINGS[row.cell.sure]
        assert row.standing.role == ("pass" if row.cell.outcome is Outcome.PASSED else "fail")
    shown = {one for grid in grids(data) for _, places in grid.rows for c in places for one in c}
    assert shown == set(standings(data))


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


@pytest.mark.parametrize("key", ["levels", "plane", "distributions"])
def test_figures_have_error_bars_and_half_filled_marks(data: ReportData, key: str) -> None:
    """A bar for every interval of a cell, and a filling for every cell that tells its verdict."""
    shift = next(cell.shift for cell in data.cells if cell.sure is Outcome.UNDECIDED)
    plate = next(p for p in plates(data) if p.key == key and p.shift in ("", shift))
    panel_of = plate.panels[0 if plate.shift else SHIFTS.index(shift)]
    with styled():
        axes = panel(panel_of.draw, size=plate.size, rows=plate.rows).axes
    cells = [cell for cell in data.cells if cell.shift == shift]
    marks = [line for axis in axes for line in axis.lines if len(line.get_xdata()) == 1]
    assert len(marks) == len(cells) * (1 if key == "plane" else 2)
    half = [line for line in marks if line.get_fillstyle() == "left"]
    undecided = sum(cell.sure is Outcome.UNDECIDED or cell.is_reference for cell in cells)
    assert any(cell.is_reference and cell.sure is Outcome.FAILED for cell in cells)
    assert undecided and len(half) == undecided * len(marks) / len(cells)
    bars = [line for axis in axes for line in axis.lines if _is_bar(line)]
    assert len(bars) >= len(marks)
    assert [(key_.text, key_.fill) for key_ in plate.legend if key_.mark == "swatch"][-3:] == [
        ("filled: passes, 95 % sure", "full"),
        ("half: undecided, or a reference", "left"),
        ("hollow: fails, 95 % sure", "none"),
    ]


def _is_bar(line: Line2D) -> bool:
    return line.get_alpha() == 0.75 and len(line.get_xdata()) == 2


def test_bars_of_the_runs_of_a_level_stand_beside_one_another(data: ReportData) -> None:
    plate = next(plate for plate in plates(data) if plate.key == "levels")
    with styled():
        axis = panel(plate.panels[0].draw, size=plate.size, rows=plate.rows).axes[0]
    places = [line.get_xdata()[0] for line in axis.lines if _is_bar(line)]
    assert len(set(places)) == len(places) == len(RUNS) * len(LEVELS)
    (means,) = (line for line in axis.lines if len(line.get_xdata()) == len(LEVELS))
    cells = [cell for cell in data.cells if cell.shift == plate.shift]
    runs = [[c.value("ir_relative") for c in cells if c.level == level] for level in LEVELS]
    assert list(means.get_ydata()) == pytest.approx([sum(of) / len(of) for of in runs])


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


def test_references_come_last_in_tables_and_what_matters_first(data: ReportData) -> None:
    columns, rows = table(data)
    references = [row.cell.is_reference for row in rows]
    assert True in references and references == sorted(references)
    assert [column.key for column in columns][:4] == ["name", "shift", "ir_relative", "sr"]


def test_a_number_of_anchors_that_says_little_is_not_told() -> None:
    few, many = (single(anchors_to_decide=count).cells[0] for count in (240, 29264))
    (said,) = (line for line in claims(ReportData("two", (few, many))) if "probably" in line)
    assert " More than 1,000 anchors would probably decide all" in said
    (alone,) = (line for line in claims(ReportData("one", (many,))) if "probably" in line)
    assert " More than 1,000 anchors would probably decide the one" in alone


def test_a_checkpoint_surely_fails_under_fewer_shifts_when_all_are_considered(
    data: ReportData,
) -> None:
    def cells(family_wise: FamilyWise) -> set[tuple[str, str]]:
        lines = failing(data.with_(family_wise=family_wise))
        parts = [line.removesuffix(".").split(" surely fails under ") for line in lines]
        assert len({name for name, _ in parts}) == len(parts)  # a line a checkpoint
        return {(name, shift) for name, shifts in parts for shift in shifts.split(", ")}

    corrected = cells(FamilyWise.HOLM)
    assert corrected and corrected <= cells(FamilyWise.NONE)


@pytest.mark.process
def test_correction_is_shown_beside_none(data: ReportData, page: str) -> None:
    """Counts and onsets among all never exceed those one by one; the page shows both."""
    plain = data.with_(family_wise=FamilyWise.NONE)
    more = 0
    for corrected, single_ in zip(tallies(data)[0], tallies(plain)[0], strict=True):
        assert corrected.sure is not None and corrected.alone is not None
        assert corrected.sure <= corrected.alone == single_.sure == single_.alone <= corrected.total
        more += corrected.alone - corrected.sure
    assert more > 0
    assert "one by one: " in page
    words = {row.values["among"].text for row in table(data)[1] if not row.cell.is_reference}
    assert "undecided" in words and words & {"passes, sure", "fails, sure"}
    assert "among" not in {column.key for column in table(plain)[0]}


def test_a_sure_onset_is_never_below_the_one_that_is_seen(data: ReportData) -> None:
    found = onsets(data)
    assert set(found) == {("tworoom", shift) for shift in SHIFTS}
    for onset in found.values():
        levels = [float(text) if text else 1.0 for text in (onset.seen, onset.alone, onset.sure)]
        assert levels == sorted(levels)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({}, "Undecided: 100 anchors are too few, about 240 would probably decide it; the doubt "
             "is in SR."),
        ({"anchors_to_decide": 29264}, "Undecided: 100 anchors are too few, more than 1,000 would "
         "probably decide it; the doubt is in SR."),
        ({"anchors_to_decide": None}, "Undecided: 100 anchors are too few; the doubt is in SR."),
        ({"confident_outcome": Outcome.PASSED}, "Passes; 95 % sure."),
        ({"confident_outcome": Outcome.FAILED, "confidence": 0.99}, "Fails; 99 % sure."),
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
