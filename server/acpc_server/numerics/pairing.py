"""Which anchors are compared as different states: labels, neighbourhood, partners.

The SR protocol of the paper (appendix Evaluation and Diagnostic Protocol). All of it depends on
logged states alone, so the pairs are the same for every checkpoint.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass

import torch
from jaxtyping import Float, Float64, Int64
from torch import Tensor

from acpc_server.errors import InvalidArgument
from acpc_server.numerics.quantiles import linear_quantile, median

NEIGHBOURHOOD_QUANTILE = 0.35
"""The paper's d_0.35: a partner lies within this quantile of all pairwise state distances."""

MAX_LABEL_BITS = 62

_BLOCK_ENTRIES = 2**21
"""Distances held at once while scanning all pairs, 16 MiB."""


@dataclass(frozen=True)
class Pairing:
    """Each anchor's different-state partner.

    Attributes:
        partner: Index of the partner, -1 where the anchor has none and is skipped, (n,).
        radius: Neighbourhood radius in standardised state units.
    """

    partner: Int64[Tensor, "n"]
    radius: float

    @property
    def eligible(self) -> int:
        """Number of anchors with a partner."""
        return int((self.partner >= 0).sum())

    @property
    def skipped(self) -> int:
        """Number of anchors without one."""
        return len(self.partner) - self.eligible


def median_split_labels(features: Float64[Tensor, "n features"]) -> Int64[Tensor, "n"]:
    """Labels endpoint states by median splits, Tab. sr-labels in the paper.

    Bit f of a label is 1 when feature f lies strictly above its median over the given anchors.

    Args:
        features: One row per anchor, one column per split.

    Raises:
        InvalidArgument: No anchors, no or more than 62 features, or a value that is not finite.
    """
    anchors, count = features.shape
    if not 1 <= count <= MAX_LABEL_BITS:
        raise InvalidArgument(
            "label_rule", f"makes {count} features; give 1 to {MAX_LABEL_BITS}, one bit each"
        )
    if anchors == 0:
        raise InvalidArgument("anchors", "are empty; labels need at least 1 anchor")
    _require_finite("label_features", features)
    above = features > median(features.T)  # (n, features)
    bits = 2 ** torch.arange(count, device=features.device)
    return (above * bits).sum(dim=1)


def neighbourhood_radius(
    states: Float64[Tensor, "n state"], quantile: float = NEIGHBOURHOOD_QUANTILE
) -> float:
    """The paper's d_0.35: a quantile of all off-diagonal distances between endpoint states.

    Args:
        states: Standardised endpoint states, the full state vector.
        quantile: In [0, 1], with linear interpolation.

    Raises:
        InvalidArgument: Fewer than 2 anchors, a state that is not finite, or a bad quantile.
    """
    return off_diagonal_quantile(states, quantile, "endpoint_states")


def off_diagonal_quantile(
    points: Float[Tensor, "n dim"], quantile: float, field: str = "points"
) -> float:
    """Quantile of the Euclidean distances between all ordered pairs of different rows.

    Each unordered pair occurs twice in that list, so the upper triangle, every value counted
    twice, gives the same quantile. Holds n (n - 1) / 2 float64 distances, and a copy to select
    from: 0.8 GB at 10,000 rows.

    Raises:
        InvalidArgument: Fewer than 2 rows, a value that is not finite, or a bad quantile.
    """
    count = len(points)
    if count < 2:
        raise InvalidArgument(field, f"has {count} rows; pairwise distances need at least 2")
    _require_finite(field, points)
    upper = torch.empty(count * (count - 1) // 2, dtype=torch.float64)
    filled = 0
    for start, block in _distance_blocks(points.to(torch.float64)):
        for row, distances in enumerate(block.cpu(), start=start):
            later = distances[row + 1 :]
            upper[filled : filled + len(later)] = later
            filled += len(later)
    return linear_quantile(upper, quantile, copies=2)


def pair_different_labels(
    states: Float64[Tensor, "n state"],
    labels: Int64[Tensor, "n"],
    quantile: float = NEIGHBOURHOOD_QUANTILE,
) -> Pairing:
    """Finds each anchor's nearest neighbour with another label, the paper's j(i).

    A partner lies within the neighbourhood radius, boundary included; of equally near ones the
    lowest index is taken. An anchor without one is skipped.

    Args:
        states: Standardised endpoint states.
        labels: Endpoint-state labels.
        quantile: Of the neighbourhood radius.

    Raises:
        InvalidArgument: As :func:`neighbourhood_radius`.
    """
    radius = neighbourhood_radius(states, quantile)
    partner = torch.full_like(labels, -1)
    for start, block in _distance_blocks(states):
        rows = slice(start, start + len(block))
        allowed = (labels[rows, None] != labels) & (block <= radius)  # (rows, n)
        nearest = block.masked_fill(~allowed, math.inf).argmin(dim=1)  # first of equals
        partner[rows] = torch.where(allowed.any(dim=1), nearest, -1)
    return Pairing(partner, radius)


def _distance_blocks(points: Tensor) -> Iterator[tuple[int, Tensor]]:
    """Rows of the distance matrix in blocks, each with the index of its first row.

    Plain differences: the matrix-product shortcut loses half the digits between near points. Radius
    and partners both read these blocks, so a distance equal to the radius compares as equal.
    """
    rows = max(1, _BLOCK_ENTRIES // len(points))
    for start in range(0, len(points), rows):
        yield (
            start,
            torch.cdist(
                points[start : start + rows],
                points,
                compute_mode="donot_use_mm_for_euclid_dist",
            ),
        )


def _require_finite(field: str, values: Tensor) -> None:
    finite = torch.isfinite(values).all(dim=1)
    if not finite.all():
        row = int((~finite).nonzero()[0])
        raise InvalidArgument(field, f"row {row} holds NaN or infinity; drop that anchor")
