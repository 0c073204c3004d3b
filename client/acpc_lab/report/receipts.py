"""Recomputes IR and SR, checks that scores can be compared, and lists protocol and receipts."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from operator import attrgetter
from typing import NamedTuple

import numpy as np
from acpc_client import DatasetAnchors, Reading

from acpc_lab.report.model import ReportData, some
from acpc_lab.sweeps import CellResult

# float64 sums in another order.
_ROUNDING = 1e-9
# What must be one value, within which group of cells, and the fields of a score that say so.
_SAME = (
    ("anchors", "task", "within each task", ("receipt.anchors_digest",)),
    ("eligible anchors", "task", "within each task", ("checkpoint.eligible",)),
    ("shift, draws and seed", "shift", "for each shift", ("receipt.perturbation_digest",)),
    (
        "code version, device and arithmetic",
        "",
        "everywhere",
        ("receipt.code_version", "receipt.device", "receipt.numeric_mode"),
    ),
)


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
    """Checks that cells agree with themselves and can be compared with one another."""
    cells = [cell for cell in data.cells if cell.score is not None]
    found = [_recomputed(cells), *_rounded(cells)]
    for what, group, where, fields in _SAME if len(cells) > 1 else ():
        values: dict[str, set[object]] = defaultdict(set)
        for cell in cells:
            values[getattr(cell, group) if group else ""].add(attrgetter(*fields)(cell.score))
        mixed = [name or "this report" for name, seen in values.items() if len(seen) > 1]
        one = group == "task" and len(data.tasks) < 2
        text = f"The same {what} {'everywhere' if one else where}."
        if mixed:
            text = f"Different {what} in {some(mixed)}: compare those rows with care."
        found.append(Check(not mixed, text))
    return found


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


_COMMON = {
    "code_version": "acpc version",
    "numeric_mode": "arithmetic",
    "device": "device",
    "torch_version": "torch",
    "image_codec": "image codec",
    "anchors_digest": "anchors",
    "perturbation_digest": "shift, draws and seed",
    "parameters_digest": "parameters",
}
_MANY = 4
_PROTOCOL = {
    "horizon": "predicted steps H",
    "draws": "draws M per anchor",
    "seed": "seed of the draws",
    "quantile": "quantile q of IR",
    "neighbourhood": "neighbourhood of SR, a quantile",
    "margin": "margin δ of SR",
}


def protocol_rows(data: ReportData) -> list[tuple[str, str]]:
    """The protocol, each entry with all values it takes in the report."""

    def each(values: Iterable[object]) -> str:
        return "; ".join(dict.fromkeys(map(str, values))) or "-"

    protocols = [cell.cell.protocol for cell in data.cells]
    readings = (it.reading or Reading.PAPER for it in protocols)
    limits = [cell.score.verdict.thresholds for cell in data.cells if cell.score is not None]
    weights = (", ".join(f"{weight:g}" for weight in it.weights) for it in protocols)
    return [
        ("anchors", each(map(_anchors, data.cells))),
        *((name, each(getattr(it, key) for it in protocols)) for key, name in _PROTOCOL.items()),
        ("reading of the protocol", each(readings)),
        ("horizon weights", each(found or "uniform" for found in weights)),
        ("thresholds", each(f"relative IR at most {x.ir:g}, SR at least {x.sr:g}" for x in limits)),
    ]


def _anchors(cell: CellResult) -> str:
    """Words how many anchors there are, and of what."""
    source = cell.cell.anchors
    where = f"set {source[:12]}" if isinstance(source, str) and source else ""
    if isinstance(source, DatasetAnchors):
        where = f"{source.dataset}, task {source.task}, seed {source.seed}"
    count = f"{cell.score.checkpoint.anchors} anchors" if cell.score is not None else ""
    return " of ".join(filter(None, (count, where)))


def common_receipt(data: ReportData) -> list[tuple[str, tuple[str, ...], int]]:
    """Fields of the receipts: name, the first few distinct values, and how many more there are."""
    receipts = [cell.score.receipt.to_dict() for cell in data.cells if cell.score is not None]
    rows = []
    for field, name in _COMMON.items():
        values = [str(receipt[field]) for receipt in receipts if receipt.get(field)]
        distinct = tuple(dict.fromkeys(values))
        if distinct:
            rows.append((name, distinct[:_MANY], max(0, len(distinct) - _MANY)))
    return rows
