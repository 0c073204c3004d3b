"""Lists receipts, protocol and commands as rows for the page."""

from __future__ import annotations

from collections.abc import Callable

from acpc_client import Score

from acpc_lab.report.model import ProtocolUsed, ReportData

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
