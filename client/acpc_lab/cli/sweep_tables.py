"""How ``acpc sweep`` shows cells, and what is sure of them."""

from __future__ import annotations

from acpc.contract import percent
from acpc_client import Outcome

from acpc_lab.cli import render
from acpc_lab.cli.progress import ProgressView
from acpc_lab.cli.table import WIDE, Column, Format
from acpc_lab.sweeps import COLUMNS as RESULT_COLUMNS
from acpc_lab.sweeps import CellResult, CellStatus, CellTask, SweepResults

_MAX_ROWS = 60


def results_table(results: SweepResults, form: Format = Format.TABLE) -> None:
    """The cells on stdout, and what is sure of all; as a table at most one screen of them."""
    if form is Format.JSON:
        render.line(results.result().to_json(indent=1))
        return
    known = any(item.evidence is not None for item in results)
    if known:
        from acpc_lab.report import claims, failing, from_sweep  # noqa: PLC0415  slow to import

        data = from_sweep(results)
        for sentence in [*claims(data), *failing(data)]:
            render.prose(sentence)
    most = _MAX_ROWS if form is Format.TABLE else len(results)
    render.listing(results.cells[:most], (*COLUMNS, *(_SURE if known else ())), form)
    if len(results) > most:
        render.prose(f"and {len(results) - most} more: -o wide")
    for score in [item.score for item in results if item.score][:1]:
        render.prose(score.meaning())
    if results.limits:
        render.columns(results.limits[:most], *_LIMITS)


def failures(items: tuple[CellResult, ...]) -> None:
    """Why cells have no score, on stderr."""
    for item in items[:_MAX_ROWS]:
        why = f" ({item.error})" if item.error else ""
        job = f" {item.operation}" if item.operation else ""
        render.problem(f"{item.cell.title}: {item.state.value}{job}{why}")


def _judged(item: CellResult, outcome: Outcome | None) -> str:
    """An outcome, where there is one: a checkpoint is never judged against itself."""
    if item.score is None or outcome is None:
        return "-"
    return "reference" if item.is_reference else outcome.name


_LIMITS = (
    ("checkpoint", "checkpoint"),
    ("holds up to", lambda limit: f"{limit.unit} {limit.brief}"),
    ("interval", "interval"),
    ("breaks by", lambda limit: limit.broken_by or "-"),
    ("strongest", "strongest"),
)
PLANNED = (
    Column("cell", "title"),
    Column("reference", lambda cell: cell.reference.name if cell.reference else "none", rank=1),
    Column("labels", lambda x: " ".join(f"{k}={v}" for k, v in x.labels.items()), rank=2),
)
_SHOWN = ("shift", "seed", "state", "ir_relative", "sr", "skill")
COLUMNS = (
    Column("checkpoint", "name"),
    *(
        Column(column.title or column.name, column.text, column.spec, column.rank)
        for column in RESULT_COLUMNS
        if column.name in _SHOWN
    ),
    Column("verdict", lambda x: _judged(x, x.score and x.score.verdict.outcome)),
)
_SURE = (
    Column("IR interval", lambda item: str(item.interval("ir_relative") or "-"), rank=4),
    Column("SR interval", lambda item: str(item.interval("sr") or "-"), rank=5),
    Column(
        "for sure",
        lambda x: _judged(x, x.among.outcome if x.among else x.sure),
        rank=1,
    ),
    Column("draws not seen", lambda x: (found := x.value("unseen")) and percent(found), rank=WIDE),
    Column("judged alone", lambda x: _judged(x, x.sure), rank=WIDE),
)


def in_words(item: CellResult) -> str:
    """A score in a few words; empty without one."""
    if item.score is None:
        return ""
    ir, sr, _, verdict = (column.cell(item) for column in COLUMNS[-4:])
    return f"relative IR {ir}, SR {sr}, {verdict}"


def _answer(status: CellStatus) -> str:
    """The score of a cell in a few words, as soon as it has one."""
    task = status.task
    return in_words(CellResult(cell=task.cell, score=task.score))


VIEW: ProgressView[CellTask] = ProgressView(
    noun="cells",
    before="asking the server for its checkpoints",
    answer=_answer,
)
