"""How ``acpc sweep`` shows cells, and what is sure of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from acpc_client import Outcome, Score

from acpc_lab.cli import render
from acpc_lab.cli.options import Exit, reported
from acpc_lab.cli.progress import View, state_of
from acpc_lab.cli.table import Column, Format
from acpc_lab.evidence import Sureness
from acpc_lab.sweeps import Cell, CellResult, CellStatus, SweepResults

_MAX_ROWS = 60


def confident_exit(results: SweepResults) -> Exit:
    """The exit code of confident verdicts, with how many cells are behind it."""
    with reported():
        outcome = results.outcome("confident")
    if outcome is Outcome.FAILED:
        render.note(f"{len(results.surely_failed)} of {len(results)} cells surely fail the screen")
        return Exit.SCREEN_FAILED
    if outcome is Outcome.UNDECIDED:
        undecided = f"{len(results.undecided)} of {len(results)} cells"
        render.note(f"{undecided} are undecided: score more anchors")
        return Exit.UNDECIDED
    return Exit.OK


def results_table(results: SweepResults, form: Format = Format.TABLE) -> None:
    """The cells on stdout, and what is sure of all; as a table at most one screen of them."""
    cells = [CellRow.of(item, results.apart[item.cell.id]) for item in results.cells]
    if form is Format.NAME:
        for row in cells:
            render.line(row.cell.id)
        return
    known = any(item.evidence is not None for item in results)
    most = len(cells) if form is Format.WIDE else _MAX_ROWS
    shown = (*COLUMNS, *(_SURE if known else ()))
    render.listing(cells[:most], shown, form)
    if len(cells) > most:
        render.line(f"and {len(cells) - most} more; acpc sweep results has all of them")
    if known:
        from acpc_lab.report import claims, from_sweep  # noqa: PLC0415  slow to import

        for sentence in claims(from_sweep(results)):
            render.line(sentence)


def failures(items: tuple[CellResult, ...]) -> None:
    """Why cells have no score, on stderr."""
    for item in items[:_MAX_ROWS]:
        why = f" ({item.code}: {item.message})" if item.code else ""
        job = f" {item.operation}" if item.operation else ""
        render.note(f"error: {item.cell.title}: {item.state.value}{job}{why}")


class CellRow(NamedTuple):
    """A cell as a row: of a run that goes on, or of its results."""

    cell: Cell
    state: str
    score: Score | None
    is_reference: bool
    among: Sureness | None = None
    apart: str = ""

    @classmethod
    def of(cls, item: CellResult, apart: str = "") -> CellRow:
        """The row of a result."""
        return cls(item.cell, item.state.value, item.score, item.is_reference, item.among, apart)

    @classmethod
    def under_way(cls, status: CellStatus) -> CellRow:
        """The row of a cell that is being scored."""
        task = status.task
        return cls(task.cell, state_of(status), task.score, task.cell.of_reference)

    def judged(self, outcome: Outcome | None) -> str:
        """An outcome, where there is one: a checkpoint is never judged against itself."""
        if self.score is None or outcome is None:
            return "-"
        return "reference" if self.is_reference else outcome.name

    def evident(self, name: str) -> Any:  # noqa: ANN401 - any field
        """A field of the evidence; None without evidence."""
        return self.score and self.score.evidence and getattr(self.score.evidence, name)


def _interval(field: str) -> Callable[[CellRow], str]:
    return lambda row: str(row.evident(field) or "-")


PLANNED = (
    Column("cell", "title"),
    Column("reference", lambda cell: cell.reference.name if cell.reference else "none", rank=1),
    Column("labels", lambda x: " ".join(f"{k}={v}" for k, v in x.labels.items()), rank=2),
)
COLUMNS = (
    Column("checkpoint", lambda row: row.cell.checkpoint.name + row.apart),
    Column("shift", lambda row: str(row.cell.shift)),
    Column("seed", lambda row: row.cell.seed, rank=6),
    Column("state", "state", rank=3),
    Column(
        "IR relative",
        lambda row: row.score and row.score.verdict.ir_relative,
        ".3f",
        means="how far the shift moves predicted futures, over the reference's",
    ),
    Column(
        "SR",
        lambda row: row.score and row.score.checkpoint.sr,
        ".3f",
        means="share of the anchors with a partner in another state that stay apart from it",
    ),
    Column("verdict", lambda row: row.judged(row.score and row.score.verdict.outcome)),
)
_SURE = (
    Column("IR interval", _interval("ir_relative"), rank=4),
    Column("SR interval", _interval("sr"), rank=5),
    Column(
        "sure",
        lambda row: row.judged(
            row.among.outcome if row.among else row.evident("confident_outcome")
        ),
        rank=1,
    ),
    Column("one by one", lambda row: row.judged(row.evident("confident_outcome")), rank=7),
)


def in_words(row: CellRow) -> str:
    """A score in a few words; empty without one."""
    if row.score is None:
        return ""
    ir, sr, verdict = (column.cell(row) for column in COLUMNS[-3:])
    return f"relative IR {ir}, SR {sr}, {verdict}"


VIEW = View(
    noun="cells",
    before="asking the server for its checkpoints",
    columns=COLUMNS,
    row=CellRow.under_way,
    answer=lambda status: in_words(CellRow.under_way(status)),
)
