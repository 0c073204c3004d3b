"""Components of IR and SR in float64: motion scale, radii, distances of different states."""

import math

import torch
from jaxtyping import Float, Float64
from torch import Tensor

from acpc_server.errors import FailedPrecondition, InvalidArgument
from acpc_server.numerics.consistency import acpc, step_distances
from acpc_server.numerics.pairing import Check, go_on, off_diagonal_quantile
from acpc_server.numerics.quantiles import linear_quantile, median

EPS_NORM = 1e-8
"""Stabiliser of the clean-motion scale, epsilon_norm in the paper."""


def transitions(observed: Float[Tensor, "n frames dim"]) -> Float64[Tensor, "n steps"]:
    """Compute displacements ||u_k - u_(k-1)|| inside Eq. clean-transition-scale in the paper.

    From embeddings u_0..u_H of the last history frame and the H observed frames after it, in latent
    units; InvalidArgument for fewer than two frames.
    """
    if observed.shape[1] < 2:
        raise InvalidArgument(
            "observed", f"has {observed.shape[1]} frames per anchor; motion needs at least 2"
        )
    return step_distances(observed[:, :-1], observed[:, 1:])


def motion_scale(displacements: Float64[Tensor, "n steps"]) -> Float64[Tensor, "n"]:
    """Compute the clean-motion scale s_i, the median displacement (Eq. clean-transition-scale)."""
    return median(displacements)


def normalised_radius(
    pair_acpc: Float64[Tensor, "n draws"], scale: Float64[Tensor, "n"]
) -> Float64[Tensor, "n draws"]:
    """Compute R_i^(m) = ACPC / (s_i + 1e-8), Eq. normalized-same-state-radius in the paper."""
    return pair_acpc / (scale[:, None] + EPS_NORM)


def step_radius(
    distances: Float64[Tensor, "n draws horizon"], scale: Float64[Tensor, "n"]
) -> Float64[Tensor, "n horizon"]:
    """Average how far the perturbation moves each predicted step, in units of clean motion.

    The norms inside Eq. acpc-h in the paper, normalised as in Eq. normalized-same-state-radius and
    averaged over draws.
    """
    return (distances / (scale[:, None, None] + EPS_NORM)).mean(dim=1)


def invariance_radius(draw_radius: Float64[Tensor, "n draws"], quantile: float) -> float:
    """Compute raw IR, Eq. ir-raw in the paper: quantile over anchors of the mean over draws.

    In units of clean one-step motion, with linear interpolation; the paper has q = 0.90.
    InvalidArgument: no anchors, no draws, or a bad quantile; FailedPrecondition: a radius is not
    finite.
    """
    anchors, draws = draw_radius.shape
    if draws == 0:
        raise InvalidArgument("draws", "is 0; IR needs at least 1 draw per anchor")
    broken = int((~torch.isfinite(draw_radius)).any(dim=1).sum())
    if broken:
        raise FailedPrecondition(
            f"the checkpoint's predictions are not finite for {broken} of {anchors} anchors, so it "
            "has no IR; check the checkpoint and its input normalisation"
        )
    return linear_quantile(draw_radius.mean(dim=1), quantile)


def deciding_anchors(radius: Float64[Tensor, "n"], quantile: float) -> list[int]:
    """Return the indices of the anchors whose radii decide IR, up to four.

    They are the two whose radii it lies between, and the next on either side, which rounding may
    have swapped with them.
    """
    below = math.floor(quantile * (len(radius) - 1))
    ranks = torch.argsort(radius, stable=True)
    return ranks[max(0, below - 1) : below + 3].tolist()


def different_state_distance(
    rollouts: Float[Tensor, "n horizon dim"],
    partner_rollouts: Float[Tensor, "n horizon dim"],
    weights: Float64[Tensor, "horizon"],
    scale: Float64[Tensor, "n"],
) -> Float64[Tensor, "n"]:
    """Compute D_i, Eq. different-state-distance in the paper, for anchors that have a partner.

    ``partner_rollouts`` start from each partner's history under the *anchor's* actions. Distances
    are in units of clean one-step motion; FailedPrecondition where one is not finite.
    """
    distance = acpc(step_distances(rollouts, partner_rollouts), weights) / (scale + EPS_NORM)
    if not torch.isfinite(distance).all():
        raise FailedPrecondition(
            "the checkpoint's predictions are not finite for a tested different-state pair, so it "
            "has no SR; check the checkpoint and its input normalisation"
        )
    return distance


def check_eligible(eligible: int, anchors: int) -> None:
    """Raise FailedPrecondition where no anchor has a partner: SR is undefined."""
    if eligible == 0:
        raise FailedPrecondition(
            f"none of the {anchors} anchors has a nearby anchor with another state label, so "
            "SR is undefined; use more anchors or a label rule that splits them"
        )


def separation_rate(distance: Float64[Tensor, "n"], ir_raw: float, margin: float) -> float:
    """Compute SR, Eq. sr in the paper: the share of eligible anchors with D_i > IR_raw + delta.

    D_i is NaN where the anchor has no partner; the paper has delta = 0.10. InvalidArgument: a bad
    margin; FailedPrecondition: no anchor is eligible.
    """
    if not (math.isfinite(margin) and margin >= 0):
        raise InvalidArgument("margin", f"is {margin}; give a finite value of at least 0")
    eligible = distance[~distance.isnan()]
    check_eligible(len(eligible), len(distance))
    return int((eligible > ir_raw + margin).sum()) / len(eligible)


def median_latent_distance(latents: Float[Tensor, "n dim"], check: Check = go_on) -> float:
    """Compute the median distance of the latents of 2 or more anchors; near zero means collapse."""
    return off_diagonal_quantile(latents, 0.5, "latents", check)
