"""Local geometry of perturbed views: do the views of one history reach other histories?

Appendix "Local-Geometry Case-Study Definitions" in the paper. The quantities depend on the sampled
histories and draws; collapse makes every radius small, so they say nothing about robustness alone.
"""

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Float64
from torch import Tensor

from acpc_server.errors import InvalidArgument
from acpc_server.numerics.consistency import step_distances

# Rows of the distance matrix held at a time, and coordinates of them in float64.
ROWS, COORDINATES = 256, 2**23


@dataclass(frozen=True)
class LocalGeometry:
    """Geometry of n anchors in one representation space, in latent units.

    Attributes:
        radius: r, the farthest view of each anchor, Eq. local-radius-spacing.
        nearest: NN, the distance to the nearest other clean anchor, Eq. local-radius-spacing.
        disjoint: Whether the anchor's ball meets no other's, Eq. local-cloud-disjoint.
    """

    radius: Float64[Tensor, "n"]
    nearest: Float64[Tensor, "n"]
    disjoint: Bool[Tensor, "n"]


def local_geometry(
    clean: Float[Tensor, "n dim"], views: Float[Tensor, "n views dim"]
) -> LocalGeometry:
    """Radius, nearest clean neighbour and disjointness of 2 or more anchors with views."""
    n, count = views.shape[:2]
    if n < 2:
        raise InvalidArgument("anchors", f"are {n}; a nearest other anchor needs 2")
    if count < 1:
        raise InvalidArgument("shifts", "give no view; a radius needs 1")
    radius = step_distances(clean[:, None].expand_as(views), views).amax(dim=1)  # (n,)
    nearest, disjoint = torch.empty_like(radius), torch.empty(n, dtype=torch.bool)
    size = max(1, min(ROWS, COORDINATES // clean.shape[1]))
    for rows in torch.split(torch.arange(n), size):
        # Differences, not the expanded square: close anchors must keep their digits.
        own = clean[rows].double()
        columns = [
            torch.cdist(own, part.double(), compute_mode="donot_use_mm_for_euclid_dist")
            for part in torch.split(clean, max(size, COORDINATES // clean.shape[1]))
        ]
        distances = torch.cat(columns, dim=1)  # (rows, n)
        distances[torch.arange(len(rows)), rows] = torch.inf
        nearest[rows] = distances.amin(dim=1)
        disjoint[rows] = (distances > radius[rows, None] + radius).all(dim=1)
    return LocalGeometry(radius, nearest, disjoint)
