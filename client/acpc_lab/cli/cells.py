"""Cells of a sweep, jobs and stored scores on a terminal: one table for all."""

from collections.abc import Sequence
from typing import Any

from acpc.contract import NUMBERS, Place, ScoreRequest, percent
from acpc_client import Identity, Operation, Outcome, Score

from acpc_lab.campaigns import Entry
from acpc_lab.cli import render
from acpc_lab.cli.render import FORM, Format
from acpc_lab.evidence import Correction
from acpc_lab.report import ReportData, claims, failing
from acpc_lab.sweeps import BY_NAME, Cell, CellResult, TaskState, judged
from acpc_lab.tables import Quantity

MAX_ROWS = 60
"""Rows of a table on a terminal."""


def cells_of(
    answers: Sequence[Any],
    requests: Sequence[ScoreRequest | None],
    correction: Correction = Correction.HOLM,
) -> Sequence[CellResult]:
    """Operations that have ended, or stored results, as cells; several are judged together."""
    cells = []
    for answer, request in zip(answers, requests, strict=True):
        is_job = isinstance(answer, Operation)
        score: Score | None = answer.score if is_job else answer.answer
        error = answer.error if is_job else None
        checkpoint = score.checkpoint.checkpoint if score else answer.checkpoint
        asked = vars(request or ScoreRequest(checkpoint, "", Identity()))
        ended = Entry().ended(TaskState.FAILED if error else TaskState.SUCCEEDED, error)
        unnamed = f"shift {score.receipt.perturbation_digest[:8]}" if score else ""
        shift = "" if request else unnamed
        cells.append(CellResult(**vars(ended), cell=Cell(**asked), score=score, shift=shift))
    return judged(cells, correction) if len(cells) > 1 else cells


def results_table(
    results: Sequence[CellResult],
    *,
    asked: str = "",
    first: str = "checkpoint",
    correction: Correction = Correction.HOLM,
) -> None:
    """What is sure of all cells, then a row each, as a table at most one screen of them.

    ``first`` is what the names of the cells are; ``asked`` stands above the table.
    """
    known = any(item.evidence is not None for item in results)
    if known:
        data = ReportData("", tuple(results), correction=correction)
        for sentence in [*claims(data), *failing(data)]:
            render.prose(sentence)
    if asked:
        render.prose(asked)
    most = MAX_ROWS if FORM.get() is Format.TABLE else len(results)
    columns = (COLUMNS[0]._replace(name=first), *COLUMNS[1:], *(_SURE if known else ()))
    render.listing(results[:most], columns)
    if len(results) > most:
        render.prose(f"and {len(results) - most} more: -o wide")
    for score in [item.score for item in results if item.score][:1]:
        render.prose(score.meaning())
    limits = {id(item.limit): item.limit for item in results if item.limit is not None}
    if limits:
        render.show(_LIMITS, [*limits.values()][:most])


def _judged(item: CellResult, outcome: Outcome | None) -> str:
    """An outcome, where there is one: a checkpoint is never judged against itself."""
    if item.score is None:
        return item.state.value
    if outcome is None:
        return "-"
    return "reference" if item.is_reference else outcome.name


_LIMITS = (
    Quantity("checkpoint", "checkpoint"),
    Quantity("holds up to", lambda limit: f"{limit.unit} {limit.brief}"),
    Quantity("interval", "interval"),
    Quantity("breaks by", lambda limit: limit.broken_by or "-"),
    Quantity("strongest", "strongest"),
)
_FIRST = (
    *(BY_NAME[name] for name, number in NUMBERS.items() if number.listing is Place.FIRST),
    Quantity("verdict", lambda x: _judged(x, x.score and x.score.verdict.outcome)),
)
COLUMNS = (
    Quantity("checkpoint", "name"),
    Quantity("shift", "shift"),
    *_FIRST,
    *(BY_NAME[name] for name, number in NUMBERS.items() if number.listing is Place.WIDE),
    *(BY_NAME[name] for name in ("seed", "state")),
)
_SURE = (
    Quantity("for sure", lambda x: _judged(x, x.among.outcome if x.among else x.sure)),
    Quantity("IR interval", lambda x: str(x.interval("ir_relative") or "-"), wide=True),
    Quantity("SR interval", lambda x: str(x.interval("sr") or "-"), wide=True),
    Quantity(
        "draws not seen", lambda x: (found := x.value("unseen")) and percent(found), wide=True
    ),
    Quantity("judged alone", lambda x: _judged(x, x.sure), wide=True),
)


def in_words(item: CellResult) -> str:
    """A score in a few words; empty without one."""
    if item.score is None:
        return ""
    return ", ".join(f"{column.title} {column.cell(item)}".lstrip() for column in _FIRST)


CELLS = (
    "cells",
    "asking the server for its checkpoints",
    lambda task: in_words(CellResult(cell=task.cell, score=task.score)),
)
"""How a run over cells is shown."""
