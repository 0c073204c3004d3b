"""Medians and quantiles with NumPy's conventions, in float64."""

import math

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

    Args:
        values: The sample, in any order.
        quantile: In [0, 1].
        copies: Times each value counts. 2 gives the quantile of a list that holds every value
            twice without building it.

    Raises:
        InvalidArgument: ``quantile`` lies outside [0, 1], or the sample is empty.
    """
    if not 0 <= quantile <= 1:
        raise InvalidArgument("quantile", f"is {quantile}; it must lie in [0, 1]")
    if len(values) == 0:
        raise InvalidArgument("anchors", "give no value to take a quantile of; give more anchors")
    position = quantile * (copies * len(values) - 1)
    lower, upper = math.floor(position) // copies, math.ceil(position) // copies
    ordered = np.partition(values.cpu().numpy(), [lower, upper])
    low, high = float(ordered[lower]), float(ordered[upper])
    fraction = position - math.floor(position)
    if fraction < 0.5:  # from the nearer neighbour, so that equal neighbours stay exact
        return low + fraction * (high - low)
    return high - (1 - fraction) * (high - low)
