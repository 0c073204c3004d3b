"""Medians and quantiles with NumPy's conventions, in float64."""

import math
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float64
from torch import Tensor

from acpc_server.errors import InvalidArgument


def median(values: Float64[Tensor, "*batch count"]) -> Float64[Tensor, "*batch"]:
    """Median over the last axis: the mean of the middle two when their number is even.

    ``torch.median`` returns the lower of the two instead.
    """
    ordered = values.sort(dim=-1).values
    count = values.shape[-1]
    return (ordered[..., (count - 1) // 2] + ordered[..., count // 2]) / 2


def linear_quantile(values: Float64[Tensor, "count"], quantile: float, copies: int = 1) -> float:
    """Quantile with linear interpolation between neighbours, as ``numpy.quantile`` by default.

    Each value counts ``copies`` times: 2 gives the quantile of a list that holds every value twice
    without building it.

    Raises:
        InvalidArgument: ``quantile`` lies outside [0, 1], or the sample is empty.
    """
    rank = QuantileRank.of(quantile, copies * len(values))
    lower, upper = rank.lower // copies, rank.upper // copies
    ordered = np.partition(values.cpu().numpy(), [lower, upper])
    return rank.between(float(ordered[lower]), float(ordered[upper]))


@dataclass(frozen=True)
class QuantileRank:
    """The rank of a quantile in an ordered sample: between two ranks, 0 for the smallest."""

    lower: int
    upper: int
    fraction: float

    @classmethod
    def of(cls, quantile: float, count: int) -> "QuantileRank":
        """The rank of a quantile among ``count`` values; raises as :func:`linear_quantile`."""
        if not 0 <= quantile <= 1:
            raise InvalidArgument("quantile", f"is {quantile}; it must lie in [0, 1]")
        if count == 0:
            raise InvalidArgument(
                "anchors", "give no value to take a quantile of; give more anchors"
            )
        position = quantile * (count - 1)
        return cls(math.floor(position), math.ceil(position), position - math.floor(position))

    def between(self, low: float, high: float) -> float:
        """The quantile, given the values at both ranks."""
        if self.fraction < 0.5:  # from the nearer neighbour, so that equal neighbours stay exact
            return low + self.fraction * (high - low)
        return high - (1 - self.fraction) * (high - low)
