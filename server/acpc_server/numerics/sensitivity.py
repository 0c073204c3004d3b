"""Local sensitivity: how strongly encoder and rollout amplify small Gaussian noise.

Eq. local-gaussian-sensitivity in the paper: for noise of a small standard deviation sigma the
expected squared change of the weighted rollout is sigma^2 ||J_G J_E||_F^2. Two estimates of that
norm, neither of which ever builds the Jacobian A = J_G J_E:

- Hutchinson: E |A v|^2 = tr(A^T A) for probes v of independent signs, A v by forward-mode
  differentiation;
- finite differences: E |G(x + sigma e) - G(x)|^2 / sigma^2 for standard normal e.

Given directions take the place of both probes, each scaled to |v|^2 = dim x, that of the signs.

Both live on the pixels of the history in [0, 1] units, at the checkpoint's image size.
"""

from collections.abc import Sequence

import torch
from jaxtyping import Float, Float32, Float64
from torch import Tensor

from acpc_server.numerics.consistency import acpc, step_distances
from acpc_server.numerics.keyed_random import keyed_generator, standard_normals
from acpc_server.numerics.pixels import IMAGENET_STD, resize_shorter

_DOMAIN = b"acpc/probe/1\0"
_VANISHED = 1e-6  # what rounding leaves of a direction that the resize takes away


def rademacher_probe(
    shape: Sequence[int], *, seed: int, anchor: int, probe: int
) -> Float32[Tensor, "..."]:
    """Independent signs, +1 or -1 with equal chance; InvalidArgument unless all are uint64."""
    key = {"seed": seed, "anchor": anchor, "probe": probe}
    bits = keyed_generator(_DOMAIN, key, "rademacher").integers(0, 2, tuple(shape), dtype="uint8")
    return torch.from_numpy(bits).float().mul_(2).sub_(1)


def gaussian_probe(
    shape: Sequence[int], *, seed: int, anchor: int, probe: int
) -> Float32[Tensor, "..."]:
    """Independent standard normals. Raises InvalidArgument: a number is not a uint64."""
    key = {"seed": seed, "anchor": anchor, "probe": probe}
    return standard_normals(keyed_generator(_DOMAIN, key, "gaussian"), shape, torch.device("cpu"))


def pixel_direction(
    probe: Float[Tensor, "*batch 3 height width"],
) -> Float[Tensor, "*batch 3 height width"]:
    """A direction in [0, 1] pixel units as a direction of the normalised model input."""
    return probe / torch.tensor(IMAGENET_STD, dtype=probe.dtype).view(3, 1, 1)


def given_probe(
    given: Float[Tensor, "n history height width 3"], image_size: int
) -> Float32[Tensor, "n history 3 model_height model_width"]:
    """Directions as probes: resized as frames are, then scaled to a root mean square of 1 each.

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
    """|A v|^2 of the weighted rollout (Eq. weighted-rollout-map in the paper).

    Its mean over Rademacher probes v is the Hutchinson estimate of ||J_G J_E||_F^2.
    """
    return (tangents.double().square().sum(dim=-1) * weights).sum(dim=-1)


def finite_difference(
    clean: Float[Tensor, "*#batch horizon dim"],
    moved: Float[Tensor, "*#batch horizon dim"],
    weights: Float64[Tensor, "horizon"],
    step: float,
) -> Float64[Tensor, "*broadcast"]:
    """|G(x + step e) - G(x)|^2 / step^2 of the weighted rollout.

    For ``moved`` histories at ``step`` (sigma, [0, 1] pixel units) times a Gaussian probe.
    """
    return (acpc(step_distances(clean, moved), weights) / step).square()
