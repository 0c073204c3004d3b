"""Local sensitivity and local geometry, of the histories around an anchor.

**Sensitivity** (Eq. local-gaussian-sensitivity in the paper): for noise of a small deviation
sigma, the expected squared change of the weighted rollout is sigma^2 ||J_G J_E||_F^2. Two estimates
of that norm, neither of which ever builds the Jacobian A = J_G J_E:

- Hutchinson: E |A v|^2 = tr(A^T A) for probes v of independent signs, A v by forward-mode
  differentiation;
- finite differences: E |G(x + sigma e) - G(x)|^2 / sigma^2 for standard normal e.

Given directions take the place of both probes, each scaled to |v|^2 = dim x, that of the signs.
Both live on the pixels of the history in [0, 1] units, at the checkpoint's image size.

**Geometry** (appendix "Local-Geometry Case-Study Definitions"): do the views of one history reach
other histories? The quantities depend on the sampled histories and draws; collapse makes every
radius small, so they say nothing about robustness alone.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Bool, Float, Float32, Float64
from torch import Tensor

from acpc_server.errors import InvalidArgument
from acpc_server.numerics.consistency import acpc, step_distances
from acpc_server.numerics.keyed_random import keyed_generator
from acpc_server.numerics.pixels import IMAGENET_STD, resize_shorter

_DOMAIN = b"acpc/probe/1\0"
_VANISHED = 1e-6  # what rounding leaves of a direction that the resize takes away


# Rows of the distance matrix held at a time, and coordinates of them in float64.
ROWS, COORDINATES = 256, 2**23


def rademacher_probe(
    shape: Sequence[int], *, seed: int, anchor: int, probe: int
) -> Float32[Tensor, "..."]:
    """Draw independent signs, +1 or -1 alike; InvalidArgument unless all numbers are uint64."""
    key = {"seed": seed, "anchor": anchor, "probe": probe}
    bits = keyed_generator(_DOMAIN, key, "rademacher").integers(0, 2, tuple(shape), dtype="uint8")
    return torch.from_numpy(bits).float().mul_(2).sub_(1)


def gaussian_probe(
    shape: Sequence[int], *, seed: int, anchor: int, probe: int
) -> Float32[Tensor, "..."]:
    """Draw independent standard normals; InvalidArgument unless all numbers are uint64."""
    key = {"seed": seed, "anchor": anchor, "probe": probe}
    generator = keyed_generator(_DOMAIN, key, "gaussian")
    return torch.from_numpy(generator.standard_normal(tuple(shape), np.float32))


def pixel_direction(
    probe: Float[Tensor, "*batch 3 height width"],
) -> Float[Tensor, "*batch 3 height width"]:
    """Turn a direction in [0, 1] pixel units into one of the normalised model input."""
    return probe / torch.tensor(IMAGENET_STD, dtype=probe.dtype).view(3, 1, 1)


def given_probe(
    given: Float[Tensor, "n history height width 3"], image_size: int
) -> Float32[Tensor, "n history 3 model_height model_width"]:
    """Make directions probes: resized as frames are, then scaled to a root mean square of 1.

    A direction of which the resize leaves nothing is 0.
    """
    images = given.double().permute(0, 1, 4, 2, 3).contiguous()
    flat = resize_shorter(images.flatten(0, 1), image_size)
    resized = flat.reshape(*images.shape[:2], *flat.shape[1:])
    size, before = (x.square().flatten(1).mean(dim=1).sqrt() for x in (resized, images))
    scale = torch.where(size > before * _VANISHED, 1 / size, 0.0)
    return (resized * scale.view(-1, 1, 1, 1, 1)).float()


def squared_norm(
    tangents: Float[Tensor, "*batch horizon dim"], weights: Float64[Tensor, "horizon"]
) -> Float64[Tensor, "*batch"]:
    """Compute |A v|^2 of the weighted rollout (Eq. weighted-rollout-map in the paper).

    Its mean over Rademacher probes v is the Hutchinson estimate of ||J_G J_E||_F^2.
    """
    return (tangents.double().square().sum(dim=-1) * weights).sum(dim=-1)


def finite_difference(
    clean: Float[Tensor, "*#batch horizon dim"],
    moved: Float[Tensor, "*#batch horizon dim"],
    weights: Float64[Tensor, "horizon"],
    step: float,
) -> Float64[Tensor, "*broadcast"]:
    """Compute |G(x + step e) - G(x)|^2 / step^2 of the weighted rollout.

    For ``moved`` histories at ``step`` (sigma, [0, 1] pixel units) times a Gaussian probe.
    """
    return (acpc(step_distances(clean, moved), weights) / step).square()


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
    """Measure radius, nearest clean neighbour and disjointness of 2 or more anchors with views."""
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
