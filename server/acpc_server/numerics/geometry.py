"""Local geometry of perturbed views: do the views of one history reach other histories?

Appendix "Local-Geometry Case-Study Definitions" in the paper. The quantities depend on the sampled
histories and draws; collapse makes every radius small, so they say nothing about robustness alone.
"""

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Float64
from torch import Tensor

from acpc_server.errors import InvalidArgument

# Rows of the distance matrix held at a time.
ROWS = 256


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
    clean, views = clean.double(), views.double()
    radius = (views - clean[:, None]).square().sum(dim=-1).sqrt().amax(dim=1)  # (n,)
    nearest, disjoint = torch.empty_like(radius), torch.empty(n, dtype=torch.bool)
    for rows in torch.split(torch.arange(n), ROWS):
        # Differences, not the expanded square: close anchors must keep their digits.
        distances = torch.cdist(
            clean[rows], clean, compute_mode="donot_use_mm_for_euclid_dist"
        )  # (rows, n)
        distances[torch.arange(len(rows)), rows] = torch.inf
        nearest[rows] = distances.amin(dim=1)
        disjoint[rows] = (distances > radius[rows, None] + radius).all(dim=1)
    return LocalGeometry(radius, nearest, disjoint)
