"""Recomputes IR and SR, checks that scores can be compared, and lists protocol and receipts."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from operator import attrgetter

import numpy as np
from acpc.contract import ScoreProtocol
from acpc_client import CheckpointScore, Score
from numpy.typing import NDArray

from acpc_lab.report.model import Measurement, ProtocolUsed, ReportData

PAPER = ScoreProtocol()
"""The protocol where a source does not tell."""

# float64 sums in another order.
_ROUNDING = 1e-9


def quantile_of(cell: Measurement) -> float:
    """Quantile q of IR; the paper's where the source does not tell."""
    return PAPER.quantile if cell.protocol.quantile is None else cell.protocol.quantile


def margin_of(cell: Measurement) -> float:
    """Margin delta of SR; the paper's where the source does not tell."""
    return PAPER.margin if cell.protocol.margin is None else cell.protocol.margin


def step_radius_of(side: CheckpointScore) -> NDArray[np.float64] | None:
    """Distance at each rollout step in clean motions, (n, H); None where there is none."""
    values = side.anchor_values
    found = None if values is None else values.step_radius
    return found if found is not None and found.ndim == 2 else None


@dataclass(frozen=True)
class Recomputed:
    """IR and SR computed here from the per-anchor values, and whether they are the reported ones.

    Attributes:
        ir_raw: Quantile over anchors of the radius (Eq. ir-raw in the paper).
        sr: Fraction of eligible anchors with D > IR + margin (Eq. sr in the paper).
        agrees: Both are what the server reported.
    """

    ir_raw: float
    sr: float
    agrees: bool


def recompute(cell: Measurement) -> Recomputed | None:
    """Recomputes IR and SR of a cell from its per-anchor values; None without them."""
    side = cell.score.checkpoint if cell.score else None
    if side is None or side.anchor_values is None or not len(side.anchor_values.radius):
        return None
    ir_raw = float(np.quantile(side.anchor_values.radius, quantile_of(cell)))
    distance = side.anchor_values.different_state_distance
    eligible = distance[~np.isnan(distance)]
    # The reported IR, so that rounding in ours cannot move an anchor over the margin.
    beyond = int((eligible > side.ir_raw + margin_of(cell)).sum())
    sr = beyond / len(eligible) if len(eligible) else float("nan")
    agrees = bool(
        abs(ir_raw - side.ir_raw) <= _ROUNDING * max(1.0, abs(side.ir_raw))
        and abs(sr - side.sr) <= _ROUNDING
    )
    return Recomputed(ir_raw, sr, agrees)


@dataclass(frozen=True)
class Check:
    """One finding; ``good`` is None where nothing could be checked."""

    good: bool | None
    text: str


def checks(data: ReportData) -> list[Check]:
    """Whether the cells agree with themselves and can be compared with one another."""
    cells = [cell for cell in data.cells if cell.score is not None]
    if len(cells) < 2:
        return [_recomputed(cells), *_rounded(cells)]
    per_task = "within each task" if len(data.tasks) > 1 else "everywhere"
    return [
        _recomputed(cells),
        *_rounded(cells),
        _same(cells, "anchors", per_task, lambda c: c.task, "receipt.anchors_digest"),
        _same(cells, "eligible anchors", per_task, lambda c: c.task, "checkpoint.eligible"),
        _same(
            cells,
            "shift, draws and seed",
            "for each shift",
            lambda c: c.shift,
            "receipt.perturbation_digest",
        ),
        _same(
            cells,
            "code version, device and arithmetic",
            "everywhere",
            lambda _: "",
            "receipt.code_version",
            "receipt.device",
            "receipt.numeric_mode",
        ),
    ]


def _recomputed(cells: Iterable[Measurement]) -> Check:
    results = [(cell, recompute(cell)) for cell in cells]
    if not results:
        return Check(None, "Nothing is measured yet that could be checked.")
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


def _rounded(cells: Iterable[Measurement]) -> list[Check]:
    """Whether raw IR has three digits in spite of rounding; nothing where no floor is known."""
    scores = [cell.score for cell in cells if cell.score is not None]
    if all(score.checkpoint.rounding_floor is None for score in scores):
        return []
    notes = list(dict.fromkeys(note for score in scores for note in score.rounding_notes))
    if notes:
        text = f"Rounding reaches the third digit of a raw IR: {_some(notes)}."
        return [Check(False, text)]
    return [Check(True, "Every raw IR is above ten rounding floors.")]


def _same(
    cells: Iterable[Measurement],
    what: str,
    where: str,
    group: Callable[[Measurement], str],
    *fields: str,
) -> Check:
    """Whether these fields of the scores have one value within each group."""
    read = attrgetter(*fields)
    values: dict[str, set[object]] = defaultdict(set)
    for cell in cells:
        values[group(cell)].add(read(cell.score))
    mixed = [name or "this report" for name, seen in values.items() if len(seen) > 1]
    if mixed:
        return Check(False, f"Different {what} in {_some(mixed)}: compare those rows with care.")
    return Check(True, f"The same {what} {where}.")


def _some(names: Iterable[str], most: int = 5) -> str:
    listed = list(names)
    rest = f" and {len(listed) - most} more" if len(listed) > most else ""
    return ", ".join(listed[:most]) + rest


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


def _unknown(value: object) -> str:
    return "not known from the source" if value in (None, "") else str(value)


def protocol_rows(data: ReportData) -> list[tuple[str, str]]:
    """The protocol, each entry with all values it takes in the report."""

    def each(read: Callable[[ProtocolUsed], object]) -> str:
        return "; ".join(dict.fromkeys(_unknown(read(cell.protocol)) for cell in data.cells))

    def weights(protocol: ProtocolUsed) -> str:
        return ", ".join(f"{weight:g}" for weight in protocol.weights) or "uniform"

    def thresholds(score: Score) -> str:
        limits = score.verdict.thresholds
        return f"relative IR at most {limits.ir:g}, SR at least {limits.sr:g}"

    judged = [cell.score for cell in data.cells if cell.score is not None]
    return [
        ("anchors", each(lambda protocol: protocol.anchors)),
        ("predicted steps H", each(lambda protocol: protocol.horizon)),
        ("draws M per anchor", each(lambda protocol: protocol.draws)),
        ("seed of the draws", each(lambda protocol: protocol.seed)),
        ("quantile q of IR", each(lambda protocol: protocol.quantile)),
        ("reading of the protocol", each(lambda protocol: protocol.reading or None)),
        ("neighbourhood of SR, a quantile", each(lambda protocol: protocol.neighbourhood)),
        ("margin δ of SR", each(lambda protocol: protocol.margin)),
        ("horizon weights", each(weights)),
        ("thresholds", "; ".join(dict.fromkeys(map(thresholds, judged))) or "-"),
    ]


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
