"""Evidence as columns of a table."""

from __future__ import annotations

from typing import Any

from acpc_client import Evidence

from acpc_lab.evidence.family import Sureness

_INTERVALS = (
    "ir_raw", "reference_ir_raw", "ir_relative", "sr", "reference_sr", "score", "delta_score"
)  # fmt: skip
_PLAIN = ("anchors_to_decide", "trajectories", "p_passed", "p_failed")


def evidence_columns(evidence: Evidence | None, among: Sureness | None) -> dict[str, Any]:
    """Intervals, confident outcome and p-values by themselves and among the others of a family.

    Args:
        evidence: None: every column is None.
        among: The cell in its family; None: it has none, as a reference.
    """
    row: dict[str, Any] = {"confidence": evidence and evidence.confidence}
    for name in _INTERVALS:
        found = evidence and getattr(evidence, name)
        row |= {f"{name}_lower": found and found.lower, f"{name}_upper": found and found.upper}
    row["confident_outcome"] = evidence and evidence.confident_outcome.name.lower()
    row["doubt"] = evidence and evidence.doubt.name.lower()
    row |= {name: evidence and getattr(evidence, name) for name in _PLAIN}
    known = among if evidence else None
    return row | {
        "family_wise_outcome": known and known.outcome and known.outcome.name.lower(),
        "family_wise_p_passed": known and known.p_passed,
        "family_wise_p_failed": known and known.p_failed,
    }
