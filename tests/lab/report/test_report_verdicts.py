"""What a page says is sure, undecided, pending or a reference, in its headline and its tables."""

from dataclasses import replace

import pytest
from acpc_client import Evidence, Interval, Outcome
from acpc_lab.campaigns import TaskState
from acpc_lab.report import ReportData, claims, render
from acpc_lab.report.headline import everywhere, headline
from acpc_lab.report.verdicts import grids, limit_table, standings, table
from acpc_lab.sweeps import CellResult
from client_messages import sure
from report_samples import T_IR, judged, measured, side, sweep, with_evidence

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
        relative = row.values["ir_relative"].interval
        assert bool(relative) is not row.cell.is_reference  # 1 by definition
        assert row.values["sr"].interval in page
    assert "Below a number, its 95 % interval" in page


def test_measurements_without_evidence_are_shown_by_their_numbers(data: ReportData) -> None:
    few = data.with_(cells=data.cells[:4])
    bare = few.with_(cells=tuple(map(with_evidence, few.cells)))
    row = next(row for row in table(bare)[1] if row.cell.outcome is Outcome.PASSED)
    assert row.verdict == "passes" and not row.values["sr"].interval
    assert " not judged." in claims(bare)[0]


def test_the_headline_says_what_is_sure_and_what_would_decide_the_rest(data: ReportData) -> None:
    said = headline(data)
    counts = [found.outcome for found in everywhere(data).values()]
    assert said.sentence.startswith("95 % sure: of 6 checkpoints, ")
    assert f"{counts.count(Outcome.PASSED)} pass" in said.sentence
    each, needed = said.lines
    assert each.startswith("Of 12 measurements, ") and "surely fail" in each
    assert "would probably decide" in needed


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({}, "Undecided: 100 anchors are too few, about 240 would probably decide it; the doubt "
             "is in SR " + NEW),
        ({"anchors_to_decide": None}, "Undecided: 100 anchors are too few; the doubt is in SR "
         + NEW),
        ({"confident_outcome": Outcome.PASSED}, "Passes; 95 % sure " + NEW),
        ({"confident_outcome": Outcome.FAILED, "confidence": 0.99}, "Fails; 99 % sure " + NEW),
        ({"confident_outcome": Outcome.INCONCLUSIVE},
         "Inconclusive: without a reference relative IR is unknown."),
    ],
)  # fmt: skip
def test_a_single_measurement_says_it_in_a_sentence(changes: dict[str, object], words: str) -> None:
    assert headline(single(**changes)).lines[0] == words


@pytest.mark.process
def test_an_end_without_bound_is_a_sign_and_warnings_are_on_the_page() -> None:
    endless = Interval(0.93, float("inf"), "made up")
    notes = ("only 12 anchors are eligible",)
    page = render(single(sr=endless, ir_relative=endless, ir_raw=endless, notes=notes))
    assert "0.930 to \N{INFINITY}" in page and notes[0] in page


def waiting(cell: CellResult) -> CellResult:
    return replace(cell, score=None, state=TaskState.PENDING)


def under_way(done: int) -> ReportData:
    """The first ``done`` of 50 measurements: five runs of five levels under two shifts."""
    whole = sweep(("tworoom",), tuple("12345"), (*LEVELS, 0.16), SHIFTS)
    cells = sorted(whole.cells, key=lambda cell: (cell.run, cell.level))
    return whole.with_(cells=(*cells[:done], *map(waiting, cells[done:])))


@pytest.mark.process
def test_a_sweep_that_is_14_per_cent_done_says_so_everywhere() -> None:
    """Headline and table; what is pending is not a measurement without a result."""
    data = under_way(7)
    said = headline(data)
    assert said.sentence == "14 % done: 7 of 50 measurements."
    assert said.lines[0].startswith("95 % sure: of 20 checkpoints, 0 pass under every shift, ")
    assert said.lines[0].endswith(" are not judged.")
    words = [row.verdict for row in table(data)[1]]
    assert words.count("pending") == 43 and "no result" not in words
    page = render(data)
    assert "no result" not in page
    assert page.count(" pending</td>") == 43
    assert [found.word for found in standings(data)][-2:] == ["reference", "pending"]


@pytest.mark.process
def test_nothing_measured_yet_is_a_page_too() -> None:
    page = render(under_way(0))
    assert "No checkpoint is measured under every shift yet." in page
    for missing in ("that could be drawn.", "that could be checked."):
        assert f"Nothing is measured yet {missing}" in page
    assert "Nothing is measured yet, so no anchor can be shown." in page
    alone = sweep(("t",), ("1",), (0.08,), ("blur:15",))
    said = headline(alone.with_(cells=tuple(map(waiting, alone.cells))))
    assert said.sentence == "t-s1-a0.08 is not measured yet."


@pytest.mark.parametrize(
    ("runs", "sentence"), [(1, "of 1 checkpoint, 1 passes"), (2, "of 2 checkpoints, 2 pass")]
)
def test_a_reference_has_a_word_of_its_own_and_is_not_counted(runs: int, sentence: str) -> None:
    """And grammar agrees with number."""
    data = sweep(("t",), tuple("12"[:runs]), (0, 0.16), ("blur:15",))
    rows = table(data)[1]
    assert [row.verdict for row in rows if row.cell.level == 0] == ["reference"] * runs
    [grid] = grids(data)
    assert [places[0][0].word for _, places in grid.rows] == ["reference"] * runs
    said = headline(data)
    assert said.sentence == f"95 % sure: {sentence} under blur:15, 0 fail and 0 are undecided."
    only = data.with_(cells=tuple(cell for cell in data.cells if cell.level == 0))
    alone = headline(data.with_(cells=data.cells[:1])).sentence
    assert alone == "t-s1-a0 is a reference: it is compared with itself."
    assert claims(only) == ["Every checkpoint is a reference: none is compared with another."]


# Where relative IR reaches its threshold, in proportion to the severity.
BREAKS_AT = {"two-a": 0.06, "two-b": 0.5}


@pytest.mark.process
def test_a_checkpoint_has_a_limit_for_each_kind_of_several_severities() -> None:
    reference = side("two-base", 1.0, 50.0)
    at = [(f"gaussian_noise:{x}", x) for x in (0.02, 0.05, 0.08, 0.12)] + [("blur:5", 0.05)]
    cells = [
        measured(name, shift, judged(side(name, T_IR * x / limit, 50.0), reference, shift=shift))
        for name, limit in BREAKS_AT.items()
        for shift, x in at
    ]
    data = ReportData(title="Limits", cells=tuple(cells))
    limits = limit_table(data)
    assert limits is not None and limits.curves == ("gaussian_noise",)
    (first, (breaks,)), (second, (holds,)) = limits.rows
    assert (first, second) == tuple(BREAKS_AT)
    assert breaks is not None and breaks.broken_by == "IR"
    assert breaks.estimate == 0.05
    assert breaks.holds < 0.06 < (breaks.breaks or 0)
    assert holds is not None and holds.brief == "0.12 or more"
    assert "Up to which severity" in (page := render(data)) and breaks.interval in page
    one = data.with_(cells=tuple(c for c in data.cells if c.shift == "blur:5"))
    assert "Up to which severity" not in render(one)
