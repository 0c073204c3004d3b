"""What a report says of a sweep that is under way, of references, and in which number."""

from dataclasses import replace

import pytest
from acpc_lab.campaigns import TaskState
from acpc_lab.report import ReportData, claims, render
from acpc_lab.report.headline import headline, tallies
from acpc_lab.report.verdicts import grids, standings, table
from acpc_lab.sweeps import CellResult
from report_samples import sweep

SHIFTS = ("gaussian_noise:0.08", "blur:15")
LEVELS = (0, 0.02, 0.04, 0.08, 0.16)


def waiting(cell: CellResult) -> CellResult:
    return replace(cell, score=None, state=TaskState.PENDING)


def under_way(done: int) -> ReportData:
    """The first ``done`` of 50 measurements: five runs of five levels under two shifts."""
    whole = sweep(("tworoom",), tuple("12345"), LEVELS, SHIFTS)
    cells = sorted(whole.cells, key=lambda cell: (cell.run, cell.level))
    return whole.with_(cells=(*cells[:done], *map(waiting, cells[done:])))


@pytest.mark.process
def test_a_sweep_that_is_14_per_cent_done_says_so_everywhere() -> None:
    """Headline, counts and table; what is pending is not a measurement without a result."""
    data = under_way(7)
    said = headline(data)
    assert said.sentence == "14 % done: 7 of 50 measurements."
    assert said.lines[0].startswith("95 % sure: of 20 checkpoints, 0 pass under every shift, ")
    assert said.lines[0].endswith(" are not judged.")
    [counts] = tallies(data)
    assert [(tally.total, tally.pending) for tally in counts] == [(20, 17), (20, 18)]
    words = [row.verdict for row in table(data)[1]]
    assert words.count("pending") == 43 and "no result" not in words
    page = render(data)
    assert "no result" not in page and "17 pending" in page
    assert page.count(" pending</td>") == 43
    assert [found.word for found in standings(data)][-2:] == ["reference", "pending"]


@pytest.mark.process
def test_nothing_measured_yet_is_a_page_too() -> None:
    page = render(under_way(0))
    assert "No checkpoint is measured under every shift yet." in page
    for missing in ("that could be drawn.", "that could be checked."):
        assert f"Nothing is measured yet {missing}" in page
    assert "Nothing is measured yet, so no anchor can be shown." in page
    assert "no per-anchor values" not in page
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
    [[tally]] = tallies(data)
    assert (tally.passed, tally.total, tally.onset.seen) == (runs, runs, "0.16")
    said = headline(data)
    assert said.sentence == f"95 % sure: {sentence} under blur:15, 0 fail and 0 are undecided."
    assert said.lines == (f"By the numbers alone {sentence.partition(', ')[2]}.",)
    only = data.with_(cells=tuple(cell for cell in data.cells if cell.level == 0))
    alone = headline(data.with_(cells=data.cells[:1])).sentence
    assert alone == "t-s1-a0 is a reference: it is compared with itself."
    assert claims(only) == ["Every checkpoint is a reference: none is compared with another."]
