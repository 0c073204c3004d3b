"""Lists receipts, protocol and commands as rows for the page."""

from __future__ import annotations

from dataclasses import dataclass

from acpc_lab.report.model import Measurement, ProtocolUsed, ReportData

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

    def each(read: object) -> str:
        values = dict.fromkeys(read(cell) for cell in data.cells)  # type: ignore[operator]
        return "; ".join(values)

    def weights(protocol: ProtocolUsed) -> str:
        if not protocol.weights:
            return "uniform"
        return ", ".join(f"{weight:g}" for weight in protocol.weights)

    def thresholds(cell: Measurement) -> str:
        if cell.score is None:
            return "-"
        limits = cell.score.verdict.thresholds
        return f"relative IR at most {limits.ir:g}, SR at least {limits.sr:g}"

    judged = [cell for cell in data.cells if cell.score is not None]
    return [
        ("anchors", each(lambda c: _unknown(c.protocol.anchors))),
        ("predicted steps H", each(lambda c: _unknown(c.protocol.horizon))),
        ("draws M per anchor", each(lambda c: _unknown(c.protocol.draws))),
        ("seed of the draws", each(lambda c: _unknown(c.protocol.seed))),
        ("quantile q of IR", each(lambda c: _unknown(c.protocol.quantile))),
        ("margin δ of SR", each(lambda c: _unknown(c.protocol.margin))),
        ("horizon weights", each(lambda c: weights(c.protocol))),
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


@dataclass(frozen=True)
class Digests:
    """Of one cell: the digests that differ from cell to cell, and its job."""

    name: str
    shift: str
    checkpoint: str
    reference: str
    operation: str


def digests(data: ReportData) -> list[Digests]:
    """One entry per cell with a receipt."""
    return [
        Digests(
            name=cell.name,
            shift=cell.shift,
            checkpoint=cell.score.receipt.checkpoint_digest,
            reference=cell.score.receipt.reference_digest,
            operation=cell.operation,
        )
        for cell in data.cells
        if cell.score is not None
    ]
