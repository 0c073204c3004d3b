"""How ``acpc sweep`` shows cells, and what is sure of them."""

from __future__ import annotations

from dataclasses import replace

from acpc_client import Interval, Outcome, Score

from acpc_lab.cli import render
from acpc_lab.cli.options import Exit, reported
from acpc_lab.cli.progress import View, state_of
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


def results_table(results: SweepResults) -> None:
    """The cells on stdout, at most one screen of them, and what is sure of all."""
    known = any(item.evidence is not None for item in results)
    sure = (">IR interval", ">SR interval", "sure", "one by one") if known else ()
    table = replace(VIEW, columns=(*VIEW.columns, *sure)).table()
    for item in results.cells[:_MAX_ROWS]:
        name, *row = _row(item.cell, item.state.value, item.score)
        table.add_row(name + results.apart[item.cell.id], *row, *(_sure(item) if known else ()))
    render.console().print(table)
    if len(results) > _MAX_ROWS:
        render.line(f"and {len(results) - _MAX_ROWS} more; acpc sweep results has all of them")
    if known:
        from acpc_lab.report import claims, from_sweep  # noqa: PLC0415  slow to import

        for sentence in claims(from_sweep(results)):
            render.line(sentence)


def _sure(item: CellResult) -> tuple[str, ...]:
    """Intervals, and the confident outcome among all cells and by itself."""
    evidence = item.evidence
    if evidence is None:
        return ("",) * 4
    among = item.among.outcome if item.among else evidence.confident_outcome
    return (
        _interval(evidence.ir_relative),
        _interval(evidence.sr),
        among.name if among else "",
        evidence.confident_outcome.name,
    )


def _interval(found: Interval | None) -> str:
    return "-" if found is None else str(found)


def failures(items: tuple[CellResult, ...]) -> None:
    """Why cells have no score, on stderr."""
    for item in items[:_MAX_ROWS]:
        why = f" ({item.code}: {item.message})" if item.code else ""
        job = f" {item.operation}" if item.operation else ""
        render.note(f"error: {item.cell.title}: {item.state.value}{job}{why}")


def _row(cell: Cell, state: str, score: Score | None) -> tuple[str, ...]:
    numbers = ("", "", "") if score is None else _numbers(score)
    return (cell.checkpoint.name, str(cell.shift), str(cell.seed), state, *numbers)


def _numbers(score: Score) -> tuple[str, str, str]:
    verdict = score.verdict
    ir = "-" if verdict.ir_relative is None else f"{verdict.ir_relative:.3f}"
    return ir, f"{score.checkpoint.sr:.3f}", verdict.outcome.name


def _answer(status: CellStatus) -> str:
    return "" if status.task.score is None else in_words(status.task.score)


def in_words(score: Score) -> str:
    """A score in a few words."""
    ir, sr, verdict = _numbers(score)
    return f"relative IR {ir}, SR {sr}, {verdict}"


VIEW = View(
    noun="cells",
    before="asking the server for its checkpoints",
    columns=("checkpoint", "shift", ">seed", "state", ">IR relative", ">SR", "verdict"),
    row=lambda status: _row(status.task.cell, state_of(status), status.task.score),
    answer=_answer,
    wrapped=2,
)
