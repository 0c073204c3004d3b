"""Medians and quantiles with NumPy's conventions, in float64, of any amount of numbers."""

import math
from collections.abc import Callable, Iterable, Sequence

import numpy as np
from jaxtyping import Float64
from torch import Tensor

from acpc_server.errors import InvalidArgument

_DIGIT = 21  # bits; three digits are a float64 without its sign


def median(values: Float64[Tensor, "*batch count"]) -> Float64[Tensor, "*batch"]:
    """Take the median over the last axis; of an even number the mean of the middle two."""
    ordered = values.sort(dim=-1).values
    count = values.shape[-1]
    return (ordered[..., (count - 1) // 2] + ordered[..., count // 2]) / 2


def linear_quantile(values: Float64[Tensor, "count"], quantile: float) -> float:
    """Take a quantile with linear interpolation between neighbours, as ``numpy.quantile``.

    InvalidArgument: ``quantile`` lies outside [0, 1], or the sample is empty.
    """
    return linear_quantiles(values[None], quantile)[0]


def linear_quantiles(values: Float64[Tensor, "rows count"], quantile: float) -> list[float]:
    """Take the quantile of each row; raises as :func:`linear_quantile`."""
    lower, upper, fraction = quantile_ranks(quantile, values.shape[1])
    ordered = np.partition(values.cpu().numpy(), [lower, upper], axis=1)
    pairs = zip(ordered[:, lower].tolist(), ordered[:, upper].tolist(), strict=True)
    return [interpolated(*pair, fraction) for pair in pairs]


def quantile_ranks(quantile: float, count: int) -> tuple[int, int, float]:
    """Return the ranks that a quantile lies between, 0 for the smallest, and how far along.

    Raises as :func:`linear_quantile`.
    """
    if not 0 <= quantile <= 1:
        raise InvalidArgument("quantile", f"is {quantile}; it must lie in [0, 1]")
    if count == 0:
        raise InvalidArgument("anchors", "give no value to take a quantile of; give more anchors")
    position = quantile * (count - 1)
    return math.floor(position), math.ceil(position), position - math.floor(position)


def interpolated(low: float, high: float, fraction: float) -> float:
    """Interpolate a quantile between the values at both of its ranks."""
    if fraction < 0.5:  # from the nearer neighbour, so that equal neighbours stay exact
        return low + fraction * (high - low)
    return high - (1 - fraction) * (high - low)


def order_statistics(
    passes: Callable[[], Iterable[Float64[np.ndarray, "count"]]], ranks: Sequence[int]
) -> list[float]:
    """Find the values of some ranks, 0 for the smallest, among numbers from 0 to infinity.

    ``passes`` starts a pass over all values, block by block, and each pass has the same. There are
    three: the bits of such numbers have their order, and a pass counts the next digit of all that
    begin as the value of a rank does.
    """
    begun, left = [0] * len(ranks), [*ranks]
    for shift in (2 * _DIGIT, _DIGIT, 0):
        counts = {start: np.zeros(2**_DIGIT, np.int64) for start in begun}
        for block in passes():
            bits = (block + 0.0).view(np.int64)  # -0 is 0
            for start in counts:
                digits = bits[bits >> shift + _DIGIT == start] >> shift & 2**_DIGIT - 1
                counts[start] += np.bincount(digits, minlength=2**_DIGIT)
        for place, start in enumerate(begun):
            upto = counts[start].cumsum()
            digit = int(np.searchsorted(upto, left[place], side="right"))
            left[place] -= int(upto[digit] - counts[start][digit])
            begun[place] = start << _DIGIT | digit
    values: list[float] = np.array(begun, np.int64).view(np.float64).tolist()
    return values
