"""The cross-entropy method's two steps: sample a pool, fit the next proposal to its elites.

Facts of the public solver: proposals start at mean 0 and standard deviation 1, candidate 0 is the
current mean, the elites are the k lowest costs, and the next standard deviation is the unbiased one
of the elites. The fit is unweighted and, as Cor. adaptive-cem-alignment in the paper needs it,
permutation-invariant to the last bit: elites are taken in the order of their indices.
"""

from dataclasses import dataclass

import torch
from jaxtyping import Float, Float32, Int64
from torch import Tensor

from acpc_server.errors import InvalidArgument
from acpc_server.numerics.keyed_random import keyed_generator, standard_normals

_DOMAIN = b"acpc/pool/1\0"


@dataclass(frozen=True)
class Proposal:
    """An independent Gaussian for every action coordinate.

    Attributes:
        mean: (H, block width).
        std: (H, block width), nowhere negative.
    """

    mean: Float32[Tensor, "horizon width"]
    std: Float32[Tensor, "horizon width"]


def initial_proposal(horizon: int, width: int) -> Proposal:
    """Mean 0 and standard deviation 1, where every run starts."""
    return Proposal(torch.zeros(horizon, width), torch.ones(horizon, width))


def pool_normals(
    seed: int, iteration: int, *, candidates: int, horizon: int, width: int
) -> Float32[Tensor, "{candidates} {horizon} {width}"]:
    """The random numbers of one pool; a larger pool starts with those of a smaller one.

    Runs that share a seed share their numbers.

    Raises:
        InvalidArgument: A number is not a uint64.
    """
    generator = keyed_generator(_DOMAIN, {"seed": seed, "iteration": iteration})
    return standard_normals(generator, (candidates, horizon, width), torch.device("cpu"))


def sample_pool(
    proposal: Proposal, normals: Float32[Tensor, "candidates horizon width"]
) -> Float32[Tensor, "candidates horizon width"]:
    """Candidates mean + std * normal; the first is the mean itself."""
    candidates = proposal.mean + proposal.std * normals
    candidates[0] = proposal.mean
    return candidates


def fit_proposal(
    candidates: Float[Tensor, "candidates horizon width"], elites: Int64[Tensor, "elites"]
) -> Proposal:
    """Mean and unbiased standard deviation of 2 or more elites, in float64, rounded to float32."""
    if len(elites) < 2:
        raise InvalidArgument("elites", f"are {len(elites)}; a standard deviation needs 2")
    chosen = candidates[elites.sort().values].double()  # (k, H, width)
    return Proposal(chosen.mean(dim=0).float(), chosen.std(dim=0, correction=1).float())
