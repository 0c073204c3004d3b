"""What an edited sweep file does to a sweep that was already submitted."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from acpc_client.errors import FailedPrecondition

from acpc_lab.sweeps.journal import Entry
from acpc_lab.sweeps.plan import Plan

_SHOWN = 5


def check_dropped(before: Plan, after: Plan, entries: Mapping[str, Entry], folder: Path) -> None:
    """Lets cells be added, and cells that were never submitted go.

    Raises:
        FailedPrecondition: A cell that was submitted is no longer in the plan; says what changed.
    """
    kept = {cell.id for cell in after.cells}
    dropped = [
        cell
        for cell in before.cells
        if cell.id not in kept and entries.get(cell.id, Entry()).attempt
    ]
    if not dropped:
        return
    changes = list(_changes(before.document, after.document))
    what = "; ".join(changes[:_SHOWN]) or "the checkpoints at the server"
    more = f" and {len(changes) - _SHOWN} more" if len(changes) > _SHOWN else ""
    raise FailedPrecondition(
        f"{len(dropped)} cells that were submitted are no longer in the sweep, the first "
        f"{dropped[0].title}; what changed: {what}{more}. Give the sweep another name, or pass "
        f"--drop to leave these cells out; their results stay in {folder}",
        reason="SWEEP_CHANGED",
    )


def _changes(before: Any, after: Any, path: str = "") -> Iterator[str]:  # noqa: ANN401 - any value
    """Places where two documents differ, with both values."""
    if before == after:
        return
    if isinstance(before, Mapping) and isinstance(after, Mapping):
        for key in dict.fromkeys((*before, *after)):
            place = f"{path}.{key}" if path else str(key)
            yield from _changes(before.get(key), after.get(key), place)
    elif isinstance(before, list) and isinstance(after, list) and len(before) == len(after):
        for index, (old, new) in enumerate(zip(before, after, strict=True)):
            yield from _changes(old, new, f"{path}[{index}]")
    else:
        yield f"{path}: {_short(before)} -> {_short(after)}"


def _short(value: Any) -> str:  # noqa: ANN401
    shown = "nothing" if value is None else repr(value)
    return shown if len(shown) <= 60 else f"{shown[:57]}..."
