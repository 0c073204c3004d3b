"""Recomputes IR and SR, and lists what the receipts of all scores hold."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from acpc.contract import to_plain

from acpc_lab.report.model import ReportData
from acpc_lab.sweeps import CellResult, some
from acpc_lab.tables import leaves, named

# float64 sums in another order.
_ROUNDING = 1e-9
# Values that are shown of one place.
_MANY = 4


def wanted(cell: CellResult) -> float:
    """What D must exceed: raw IR plus the margin (Eq. sr in the paper); NaN without a score."""
    return cell.score.checkpoint.ir_raw + cell.cell.protocol.margin if cell.score else float("nan")


def agrees(cell: CellResult) -> bool | None:
    """Whether IR and SR (Eqs. ir-raw and sr in the paper) follow from the per-anchor values.

    None where there are no such values.
    """
    values = cell.values
    if cell.score is None or values is None or not len(values.radius):
        return None
    side = cell.score.checkpoint
    ir_raw = float(np.quantile(values.radius, cell.cell.protocol.quantile))
    eligible = values.different_state_distance[~np.isnan(values.different_state_distance)]
    # The reported IR, so that rounding in ours cannot move an anchor over the margin.
    sr = float(np.mean(eligible > wanted(cell))) if len(eligible) else float("nan")
    near = abs(ir_raw - side.ir_raw) <= _ROUNDING * max(1.0, abs(side.ir_raw))
    return near and abs(sr - side.sr) <= _ROUNDING


class Check(NamedTuple):
    """The result of a check; ``good`` is None where nothing could be checked."""

    good: bool | None
    text: str


def checks(data: ReportData) -> list[Check]:
    """Checks that scores agree with themselves, and are above their rounding."""
    cells = [cell for cell in data.cells if cell.score is not None]
    return [_recomputed(cells), *_rounded(cells)]


def _recomputed(cells: Sequence[CellResult]) -> Check:
    if not cells:
        return Check(None, "Nothing is measured yet that could be checked.")
    known = [(cell, same) for cell in cells if (same := agrees(cell)) is not None]
    if not known:
        return Check(None, "IR and SR could not be recomputed: there are no per-anchor values.")
    wrong = [f"{cell.name} under {cell.shift}" for cell, same in known if not same]
    text = "IR and SR recomputed from the per-anchor values: "
    text += f"{len(known) - len(wrong)} of {len(known)} agree."
    return Check(not wrong, text + (f" Not: {some(wrong)}." if wrong else ""))


def _rounded(cells: Sequence[CellResult]) -> list[Check]:
    """Whether raw IR has three digits in spite of rounding; nothing where no floor is known."""
    if all(cell.value("rounding_floor") is None for cell in cells):
        return []
    scores = [cell.score for cell in cells if cell.score]
    notes = list(dict.fromkeys(note for score in scores for note in score.rounding_notes))
    if notes:
        text = f"Rounding reaches the third digit of a raw IR: {some(notes)}."
        return [Check(False, text)]
    return [Check(True, "Every raw IR is above ten rounding floors.")]


def receipt(data: ReportData) -> list[tuple[str, tuple[str, ...], int]]:
    """Every place in the receipts: its name, the first few distinct values, how many there are.

    The anchors, of which receipts hold digests, are as they were asked for.
    """
    found: dict[str, dict[str, None]] = {}
    for cell in data.cells:
        held = {} if cell.score is None else cell.score.receipt.to_dict()
        for path, value in leaves({"anchors": to_plain(cell.cell.anchors), **held}):
            if value not in (None, "", [], {}):
                found.setdefault(named(path), {})[str(value)] = None
    return [(name, tuple(seen)[:_MANY], len(seen)) for name, seen in found.items()]
