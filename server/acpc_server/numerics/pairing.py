"""Pairs anchors as different states by logged states alone, so alike for every checkpoint.

The SR protocol of the paper (appendix Evaluation and Diagnostic Protocol).
"""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import torch
from acpc.contract import ScoreProtocol, SkipReason
from jaxtyping import Float, Float64, Int64
from torch import Tensor

from acpc_server.errors import InvalidArgument
from acpc_server.numerics.quantiles import interpolated, order_statistics, quantile_ranks

_BLOCK_ENTRIES = 2**20
"""Distances computed at once while scanning all pairs, 8 MiB."""

_TILE_ENTRIES = 2**23
"""Coordinates of the rows on one side of a block of them, 64 MiB: latents of patches are wide."""

ROOM = 2**24
"""Distances kept at once, 128 MiB; of more each is computed three times."""

Check = Callable[[], None]


def go_on() -> None:
    """Do nothing: the default check between blocks of a scan."""


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

    def skip_reasons(self, labels: Int64[Tensor, "n"]) -> Int64[Tensor, "n"]:
        """Return a ``SkipReason`` for every anchor; ``labels`` are those it was paired by."""
        alike = bool((labels == labels[0]).all())
        reason = SkipReason.ONE_LABEL if alike else SkipReason.NONE_IN_REACH
        return torch.where(self.partner < 0, int(reason), int(SkipReason.UNSPECIFIED))


def off_diagonal_quantile(
    points: Float[Tensor, "n dim"], quantile: float, field: str = "points", check: Check = go_on
) -> float:
    """Compute a quantile of the Euclidean distances between all ordered pairs of different rows.

    Each unordered pair occurs twice in that list, so the upper triangle, every value counted twice,
    gives the same quantile. Of many, some hundred megabytes are held at a time. ``field`` names the
    rows in errors. InvalidArgument: fewer than 2 rows, a value that is not finite, or a bad
    quantile.
    """
    count = len(points)
    if count < 2:
        raise InvalidArgument(field, f"has {count} rows; pairwise distances need at least 2")
    finite = torch.isfinite(points).all(dim=1)
    if not finite.all():
        row = int((~finite).nonzero()[0])
        raise InvalidArgument(field, f"row {row} holds NaN or infinity; drop that anchor")
    pairs = count * (count - 1) // 2
    lower, upper, fraction = quantile_ranks(quantile, 2 * pairs)
    ranks = [lower // 2, upper // 2]
    if pairs > ROOM:
        low, high = order_statistics(lambda: _upper_distances(points, check), ranks)
    else:
        distances = np.concatenate([*_upper_distances(points, check)])
        distances.partition(ranks)
        low, high = distances[ranks].tolist()
    return interpolated(low, high, fraction)


def pair_different_labels(
    states: Float64[Tensor, "n state"],
    labels: Int64[Tensor, "n"],
    quantile: float = ScoreProtocol.neighbourhood,
    check: Check = go_on,
) -> Pairing:
    """Find each anchor's nearest neighbour with another label, the paper's j(i).

    A partner lies within the neighbourhood radius, the ``quantile`` of all pairwise distances (the
    paper's d_0.35), boundary included; of equally near ones the lowest index is taken. An anchor
    without one is skipped. Raises as :func:`off_diagonal_quantile`.
    """
    radius = off_diagonal_quantile(states, quantile, "endpoint_states", check)
    partner = torch.full_like(labels, -1)
    size = max(1, _BLOCK_ENTRIES // len(states))
    for start in range(0, len(states), size):
        check()
        rows = slice(start, start + size)
        distances = _distances(states[rows], states)  # (rows, n)
        allowed = (labels[rows, None] != labels) & (distances <= radius)
        nearest = distances.masked_fill(~allowed, math.inf).argmin(dim=1)  # first of equals
        partner[rows] = torch.where(allowed.any(dim=1), nearest, -1)
    return Pairing(partner, radius)


def _upper_distances(points: Tensor, check: Check) -> Iterator[np.ndarray]:
    """Yield the distances of every unordered pair of rows, tile by tile."""
    size = max(1, min(math.isqrt(_BLOCK_ENTRIES), _TILE_ENTRIES // max(1, points.shape[1])))
    tiles = torch.split(points, size)
    for first, rows in enumerate(tiles):
        above = torch.ones(len(rows), len(rows), dtype=torch.bool).triu(1)
        for second in range(first, len(tiles)):
            check()
            distances = _distances(rows.double(), tiles[second].double())
            yield (distances[above] if first == second else distances.flatten()).cpu().numpy()


def _distances(
    rows: Float64[Tensor, "rows dim"], others: Float64[Tensor, "columns dim"]
) -> Float64[Tensor, "rows columns"]:
    """Compute every distance between two sets of rows, by plain differences."""
    # The matrix-product shortcut loses half the digits between near points. A pair's distance is
    # the same number in every block, so one equal to the radius compares as equal.
    return torch.cdist(rows, others, compute_mode="donot_use_mm_for_euclid_dist")
