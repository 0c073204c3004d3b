"""Figures show what the summaries hold, and are the same every time."""

import math
from pathlib import Path
from typing import Any

import pytest
from acpc_command import acpc_command
from acpc_lab.plotting import styled
from acpc_lab.studies import Listing, horizons, paper
from acpc_lab.studies.drift import errors
from acpc_lab.studies.figures import by_row
from acpc_lab.studies.thresholds import splits
from acpc_lab.tables import to_csv
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from study_examples import EXAMPLES, SWEEP, evidence, summary

PLANNER = EXAMPLES["planner"]


def drawn() -> dict[str, Figure]:
    with styled():
        printed = horizons.HorizonSummary(8, 0.9, paper.ir_reductions(), 0.09)
        ratios = next(part for part in horizons.shown(printed) if isinstance(part, Listing))
        return {
            **evidence("shifts", paper.shift_rows().columns()).figures(),
            **evidence("collapse", paper.collapse_rows().columns()).figures(),
            "drift": by_row(errors(paper.drift_cells())),
            "splits": by_row(splits(paper.splits())),
            "sweep": evidence("thresholds", SWEEP).figures()["sweep"],
            "horizons": by_row(ratios),
            "planner": evidence("planner", PLANNER).figures()["errors"],
        }


@pytest.fixture(scope="module")
def figures() -> dict[str, Figure]:
    return drawn()


def marks(axis: Axes) -> list[Any]:
    """The numbers of a panel, from its first row to its last."""
    [drawn] = [line for line in axis.lines if line.get_marker() == "o"]
    return list(drawn.get_xdata())


def names(figure: Figure) -> list[str]:
    return [label.get_text() for label in figure.axes[0].get_yticklabels()]


def test_a_row_shows_each_printed_error(figures: dict[str, Figure]) -> None:
    cells = paper.drift_cells()
    wanted = [[getattr(cell, name) for cell in cells] for name in ("base", "control", "acpc")]
    assert list(map(marks, figures["drift"].axes)) == wanted
    assert names(figures["drift"])[0] == "TwoRoom, 3072"
    assert [axis.get_xlabel() for axis in figures["drift"].axes] == ["Base", "+Control", "+ACPC"]


def test_a_tables_numbers_are_drawn_without_its_texts(figures: dict[str, Figure]) -> None:
    """Of the paper's horizons and SIGReg weights: a panel a column, a row a task or weight."""
    printed = paper.collapse_rows()
    assert names(figures["checkpoints"]) == printed.checkpoint.tolist()
    wanted = (printed.median_latent_distance, printed.ir_raw, printed.sr, printed.success_clean)
    assert list(map(marks, figures["checkpoints"].axes)) == [list(x) for x in wanted]
    assert figures["checkpoints"].axes[0].get_xscale() == "log", "one has collapsed"
    assert figures["checkpoints"].axes[2].get_xscale() == "linear"
    assert len(figures["horizons"].axes) == len(
        {(e.horizon, e.quantile) for e in paper.ir_reductions()}
    )
    assert names(figures["splits"])[0].count(",") == 2, "the tasks and both thresholds"


def test_the_bars_are_means_over_runs(figures: dict[str, Figure]) -> None:
    pairs = evidence("shifts", paper.shift_rows().columns()).summary.pairs
    left, right = figures["bars"].axes
    for axis, field in ((left, "success_gain"), (right, "delta_score")):
        mine = [
            getattr(x, field) for x in pairs if (x.task, x.shift) == (pairs[0].task, pairs[0].shift)
        ]
        assert axis.patches[0].get_height() == pytest.approx(sum(mine) / len(mine))
        dots = [line for line in axis.lines if line.get_marker() == "."]
        assert sum(len(line.get_xdata()) for line in dots) == len(pairs) == 24


def test_the_sweep_shows_thresholds_and_recovered_levels(figures: dict[str, Figure]) -> None:
    axes = figures["sweep"].axes
    assert len(axes) == 6
    success, ir = axes[0], axes[2]
    assert len(success.patches) == 1  # a recovers at level 2 alone
    dotted = [line.get_ydata()[0] for line in ir.lines if line.get_linestyle() == ":"]
    assert dotted == [0.1]


def test_the_planner_shows_errors_and_their_reduction_row_by_row(
    figures: dict[str, Figure],
) -> None:
    axes, cells = figures["planner"].axes, summary("planner", PLANNER).cells
    before, after = ([getattr(cell, x) for cell in cells] for x in ("baseline", "expanded"))
    lowered = [100 * (1 - a / b) for a, b in zip(after, before, strict=True)]
    assert list(map(marks, axes)) == [before, after, pytest.approx(lowered)]
    assert len({axis.get_ylim() for axis in axes}) == 1


@pytest.mark.parametrize(
    ("name", "title"), [("drift", "+Control"), ("planner", "lower error with ACPC (%)")]
)
def test_a_table_that_is_a_figure_alone_is_not_printed(
    name: str, title: str, tmp_path: Path
) -> None:
    made, rows = evidence(name, EXAMPLES[name]), tmp_path / "rows.csv"
    rows.write_text(to_csv(made.rows))
    assert title not in acpc_command("study")("run", name, "--rows", rows).stdout
    with styled():
        drawn = made.figures()["errors"]
    assert title in [axis.get_xlabel() for axis in drawn.axes]


@pytest.mark.parametrize("nothing", [None, math.nan])
def test_a_number_that_is_not_there_leaves_its_row_empty(nothing: float | None) -> None:
    items = [{"name": "a", "x": nothing}, {"name": "b", "x": 2.0}]
    columns = [("row", lambda item: item["name"]), ("x", lambda item: item["x"])]
    with styled():
        figure = by_row(Listing(items, columns))
    assert marks(figure.axes[0]) == [2.0]
    assert [text.get_text() for text in figure.axes[0].texts] == ["2"]
    assert list(figure.axes[0].lines[0].get_ydata()) == [1]
