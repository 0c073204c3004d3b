"""What a reader would want to be sure of before believing a table of many measurements."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from acpc_lab.report.measures import recompute
from acpc_lab.report.model import Cell, ReportData


@dataclass(frozen=True)
class Check:
    """One finding; ``good`` is None where nothing could be checked."""

    good: bool | None
    text: str


def checks(data: ReportData) -> list[Check]:
    """Whether the cells agree with themselves and can be compared with one another."""
    cells = [cell for cell in data.cells if cell.score is not None]
    found = [_recomputed(cells)]
    if len(cells) < 2:
        return found
    per_task = "within each task" if len(data.tasks) > 1 else "everywhere"
    found += [
        _same(
            cells, "anchors", per_task, lambda c: c.task, lambda c: _receipt(c, "anchors_digest")
        ),
        _same(
            cells,
            "eligible anchors",
            per_task,
            lambda c: c.task,
            lambda c: str(c.score.checkpoint.eligible) if c.score else "",
        ),
        _same(
            cells,
            "shift, draws and seed",
            "for each shift",
            lambda c: c.shift,
            lambda c: _receipt(c, "perturbation_digest"),
        ),
        _same(
            cells,
            "code version, device and arithmetic",
            "everywhere",
            lambda _: "",
            lambda c: " ".join(
                _receipt(c, field) for field in ("code_version", "device", "numeric_mode")
            ),
        ),
    ]
    return found


def _receipt(cell: Cell, field: str) -> str:
    return str(getattr(cell.score.receipt, field)) if cell.score else ""


def _recomputed(cells: Iterable[Cell]) -> Check:
    results = [(cell, recompute(cell)) for cell in cells]
    known = [(cell, result) for cell, result in results if result is not None]
    if not known:
        return Check(None, "IR and SR could not be recomputed: there are no per-anchor values.")
    wrong = [cell for cell, result in known if not result.agrees]
    assumed = any(cell.protocol.margin is None for cell, _ in known)
    how = " with the paper's quantile and margin, which the source does not tell" if assumed else ""
    text = f"IR and SR recomputed from the per-anchor values{how}: {len(known) - len(wrong)} of "
    text += f"{len(known)} agree."
    if wrong:
        text += f" Not: {_some(f'{cell.name} under {cell.shift}' for cell in wrong)}."
    return Check(not wrong, text)


def _same(
    cells: Iterable[Cell],
    what: str,
    where: str,
    group: Callable[[Cell], str],
    value: Callable[[Cell], str],
) -> Check:
    values: dict[str, set[str]] = defaultdict(set)
    for cell in cells:
        values[group(cell)].add(value(cell))
    mixed = [name or "this report" for name, seen in values.items() if len(seen) > 1]
    if mixed:
        return Check(False, f"Different {what} in {_some(mixed)}: compare those rows with care.")
    return Check(True, f"The same {what} {where}.")


def _some(names: Iterable[str], most: int = 5) -> str:
    listed = list(names)
    rest = f" and {len(listed) - most} more" if len(listed) > most else ""
    return ", ".join(listed[:most]) + rest
