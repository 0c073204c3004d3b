"""Pairwise ACPC and its companions: how far two predicted rollouts lie apart.

Every function casts its latents to float64, which holds a model's output exactly, before it
subtracts. Latents that are not finite give distances that are not finite; the functions that decide
something reject those.
"""

import math
from collections.abc import Sequence
from functools import cache

import torch
from jaxtyping import Float, Float64
from torch import Tensor

from acpc_server.errors import InvalidArgument

WEIGHT_SUM_TOLERANCE = 1e-6
"""How far the horizon weights may sum from 1."""

_PIECE = 2**22
"""Coordinates whose float64 differences are held at a time, 32 MiB."""


def horizon_weights(weights: Sequence[float], horizon: int) -> Float64[Tensor, "horizon"]:
    """Return checked horizon weights alpha_1..alpha_H of Eq. weighted-rollout-map in the paper.

    Weights are used exactly as given: they are never rescaled. Their sum may miss 1 by at most
    1e-6, the room that weights rounded to float32 need. Empty weights mean uniform ones, 1 / H.
    InvalidArgument: another length or sum, an entry negative or not finite, ``horizon`` below 1.
    """
    if horizon < 1:
        raise InvalidArgument("horizon", f"is {horizon}; predict at least 1 step")
    if len(weights) == 0:
        return _uniform(horizon)
    if len(weights) != horizon:
        raise InvalidArgument(
            "weights",
            f"has {len(weights)} entries for {horizon} predicted steps; give one per step, or none",
        )
    for index, weight in enumerate(weights):
        if not (math.isfinite(weight) and weight >= 0):
            raise InvalidArgument(
                "weights", f"entry {index} is {weight}; weights are finite and not negative"
            )
    total = sum(weights)  # inf where math.fsum would raise OverflowError
    if abs(total - 1) > WEIGHT_SUM_TOLERANCE:
        raise InvalidArgument(
            "weights", f"sum to {total}; they must sum to 1: divide each by their sum"
        )
    return torch.tensor(list(weights), dtype=torch.float64)


@cache
def _uniform(horizon: int) -> Tensor:
    return torch.full((horizon,), 1 / horizon, dtype=torch.float64)


def step_distances(
    clean: Float[Tensor, "*#batch horizon dim"], perturbed: Float[Tensor, "*#batch horizon dim"]
) -> Float64[Tensor, "*broadcast horizon"]:
    """Compute the projected distance after each predicted step, the norms inside Eq. acpc-h.

    In latent units; leading axes broadcast. InvalidArgument where horizon or width differ.
    """
    return _square_sums(clean, perturbed).sqrt()


def acpc(
    distances: Float64[Tensor, "*batch horizon"], weights: Float64[Tensor, "*#batch horizon"]
) -> Float64[Tensor, "*batch"]:
    """Compute ACPC_H, Eq. acpc-h in the paper: sqrt(sum_k alpha_k d_k^2), in latent units."""
    shares = weights.to(distances.device)
    # A step without weight counts nothing, even where its square overflows.
    squares = (distances.square() * shares).masked_fill(shares == 0, 0.0)
    return squares.sum(dim=-1).sqrt()


def encoder_shift(
    clean: Float[Tensor, "*#batch history dim"], perturbed: Float[Tensor, "*#batch history dim"]
) -> Float64[Tensor, "*broadcast"]:
    """Compute the paper's encoder shift ||z - z~||_2 (Sec. Pairwise ACPC), before any prediction.

    The l2 distance of all frames of the history together. InvalidArgument where shapes differ.
    """
    return _square_sums(clean, perturbed, over=2).sqrt()


def prediction_error(
    rollout: Float[Tensor, "*#batch horizon dim"],
    observed: Float[Tensor, "*#batch horizon dim"],
    weights: Float64[Tensor, "*#batch horizon"],
) -> Float64[Tensor, "*broadcast"]:
    """Compute the distance e of a rollout to the observed future in the weighted rollout space.

    Prop. target-free-error-drift in the paper; ``observed`` are the projected embeddings of the H
    observed frames after the history. InvalidArgument where horizon or width differ.
    """
    return acpc(step_distances(rollout, observed), weights)


def error_drift(
    clean_error: Float64[Tensor, "*#batch"], perturbed_error: Float64[Tensor, "*#batch"]
) -> Float64[Tensor, "*batch"]:
    """Compute the change of prediction error |e~ - e|; at most :func:`drift_bound`.

    Eq. target-free-error-drift in the paper, which proves the bound in real numbers.
    """
    return (perturbed_error - clean_error).abs()


def drift_bound(
    pair_acpc: Float64[Tensor, "*#batch"],
    clean_error: Float64[Tensor, "*#batch"],
    perturbed_error: Float64[Tensor, "*#batch"],
    *,
    horizon: int,
    dim: int,
) -> Float64[Tensor, "*batch"]:
    """Widen ACPC_H to a bound that computed drift never exceeds (Prop. target-free-error-drift).

    Each of the three norms sums ``horizon * dim`` squares in float64, so each is off by a factor of
    at most 1 +- g with g = (horizon + dim + 16) * 2**-52, generously. The exact errors differ by at
    most the exact ACPC, hence the computed ones by at most ACPC * (1 + g) + g * (e + e~).
    """
    slack = (horizon + dim + 16) * 2.0**-52
    return pair_acpc * (1.0 + 2.0 * slack) + 2.0 * slack * (clean_error + perturbed_error)


def _square_sums(clean: Tensor, perturbed: Tensor, over: int = 1) -> Tensor:
    """Sum squared float64 differences over the last ``over`` axes; leading ones broadcast.

    Of many coordinates a piece at a time, cut along the first of the other axes.
    """
    if clean.shape[-2:] != perturbed.shape[-2:]:
        raise InvalidArgument(
            "latents",
            f"have shapes {tuple(clean.shape)} and {tuple(perturbed.shape)}; "
            "the last two axes, steps and latent width, must agree",
        )
    if max(clean.numel(), perturbed.numel()) > _PIECE:
        x, y = torch.broadcast_tensors(clean, perturbed)  # type: ignore[no-untyped-call]
        for axis in range(x.ndim - over):
            if (count := x.shape[axis]) > 1:
                halves = x.split((count + 1) // 2, axis), y.split((count + 1) // 2, axis)
                parts = [_square_sums(*half, over=over) for half in zip(*halves, strict=True)]
                return torch.cat(parts, dim=axis)
    difference = perturbed.to(torch.float64) - clean.to(torch.float64)
    return difference.square().sum(dim=tuple(range(-over, 0)))
