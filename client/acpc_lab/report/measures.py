"""Quantities the report reads off a score, and the check that a score agrees with itself."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from acpc_client import CheckpointScore
from numpy.typing import NDArray

from acpc_lab.report.model import Cell

PAPER_QUANTILE = 0.90
PAPER_MARGIN = 0.10
# float64 sums in another order.
_ROUNDING = 1e-9


def quantile_of(cell: Cell) -> float:
    """Quantile q of IR; the paper's where the source does not tell."""
    return PAPER_QUANTILE if cell.protocol.quantile is None else cell.protocol.quantile


def margin_of(cell: Cell) -> float:
    """Margin delta of SR; the paper's where the source does not tell."""
    return PAPER_MARGIN if cell.protocol.margin is None else cell.protocol.margin


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


def recompute(cell: Cell) -> Recomputed | None:
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
