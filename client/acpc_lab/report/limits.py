"""Up to which severity each checkpoint passes, of kinds that were scored at several severities."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass

from acpc.contract import parse
from acpc_client import SeverityLimit
from acpc_client.errors import ArgumentError

from acpc_lab.evidence import limits
from acpc_lab.report.model import ReportData

Apart = tuple[str, int | None, float | None]
"""Checkpoint, seed and neighbourhood, which tell curves apart."""


@dataclass(frozen=True)
class LimitTable:
    """A row a checkpoint, a column a kind; None where it has fewer than two severities."""

    curves: tuple[str, ...]
    rows: tuple[tuple[str, tuple[SeverityLimit | None, ...]], ...]
    words: str


def severity_limits(data: ReportData) -> dict[tuple[Apart, str], SeverityLimit]:
    """The limits of the candidates."""
    scored = []
    for cell in data.candidates:
        apart = cell.title, cell.protocol.seed, cell.protocol.neighbourhood
        with suppress(ArgumentError):  # a shift that is known by its digest alone
            scored.append((apart, parse(cell.shift), cell.score, cell.operation))
    return limits(scored)


def limit_table(data: ReportData) -> LimitTable | None:
    """The table; None where no checkpoint has several severities of a kind."""
    found = severity_limits(data)
    if not found:
        return None
    curves = tuple(dict.fromkeys(curve for _, curve in found))
    rows = tuple(
        (apart[0], tuple(found.get((apart, curve)) for curve in curves))
        for apart in dict.fromkeys(apart for apart, _ in found)
    )
    return LimitTable(curves, rows, next(iter(found.values())).meaning())
