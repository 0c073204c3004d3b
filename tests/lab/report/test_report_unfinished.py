"""What a report says of a sweep that is under way, of references, and in which number."""

import csv
from dataclasses import replace
from pathlib import Path

import pytest
from acpc_lab.evidence import FamilyWise
from acpc_lab.report import ReportData, claims, export_figures, render
from acpc_lab.report.figures import plates
from acpc_lab.report.headline import headline, tallies
from acpc_lab.report.model import Measurement
from acpc_lab.report.tables import grids, standings, table
from report_samples import changed, sweep, with_evidence

SHIFTS = ("gaussian_noise:0.08", "blur:15")
LEVELS = (0, 0.02, 0.04, 0.08, 0.16)


def waiting(cell: Measurement) -> Measurement:
    return replace(cell, score=None, pending=True, of_reference=cell.level == 0)


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


def test_a_sweep_that_is_not_all_done_is_never_100_per_cent() -> None:
    assert headline(under_way(0)).sentence == "0 % done: 0 of 50 measurements."
    whole = under_way(50)
    thousand = whole.cells * 20
    data = whole.with_(cells=(*thousand[:-1], waiting(thousand[-1])))
    assert headline(data).sentence == "99 % done: 999 of 1000 measurements."
    assert "done" not in headline(whole).sentence


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


@pytest.mark.process
def test_an_onset_is_provisional_while_lower_levels_are_pending(page: str) -> None:
    assert "so far" not in page
    data = sweep(("t",), ("1",), (0, 0.02, 0.16), ("blur:15",))
    page = render(data.with_(cells=(data.cells[0], waiting(data.cells[1]), data.cells[2])))
    assert ", all from 0.16 so far, 1 pending</span>" in page


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


@pytest.mark.process
def test_the_exported_cells_tell_pending_from_no_result(tmp_path: Path) -> None:
    data = sweep(("t",), ("1",), (0, 0.08, 0.16), ("blur:15",))
    data = changed(data, 1, score=None, problem="failed: NOT_FOUND: no checkpoint")
    export_figures(data.with_(cells=(*data.cells[:2], waiting(data.cells[2]))), tmp_path)
    with (tmp_path / "cells.csv").open(newline="") as file:
        outcomes = [row["outcome"] for row in csv.DictReader(file)]
    assert outcomes == ["failed", "no_result", "pending"]


@pytest.mark.process
def test_epochs_are_named_and_each_has_a_confidence_of_its_own() -> None:
    """What is said of all intervals holds for the least sure; no epoch is called unaugmented."""
    data = sweep(tasks=("tworoom",), runs=("3072",), levels=(0, 1, 2))
    own = (with_evidence(c, confidence=0.99951 - 1e-5 * (c.level or 0)) for c in data.cells)
    epochs = data.with_(cells=tuple(own), level_name="epoch")
    assert (data.interval_words, epochs.interval_words) == ("95 %", "at least 99.949 %")
    (keys,) = {plate.legend for plate in plates(epochs) if plate.key == "plane"}
    texts = [key.text for key in keys]
    assert {"reference", "epoch 1", "epoch 2", "at least 99.949 % interval"} <= set(texts)
    assert "unaugmented" not in texts
    page = render(epochs)
    assert "Below a number, its at least 99.949 % interval" in page
    assert "Each by itself, at least 99.949 % sure" in page
    apart = epochs.with_(family_wise=FamilyWise.NONE)
    assert epochs.family.confidence < apart.family.confidence == pytest.approx(0.99949)
    assert any(words.startswith("99.949 % sure") for words in claims(apart))
