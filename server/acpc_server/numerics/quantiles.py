"""Medians and quantiles with NumPy's conventions, in float64, of any amount of numbers.

The k-th smallest is found exactly: the numbers are read in blocks, in as many passes as needed.
Values inside an open interval are kept while they fit; beyond that every second one is kept, and
these narrow the interval for the next pass. With a good first guess one pass is enough.
"""

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float64
from torch import Tensor

from acpc_server.errors import InvalidArgument


def median(values: Float64[Tensor, "*batch count"]) -> Float64[Tensor, "*batch"]:
    """Take the median over the last axis; of an even number the mean of the middle two."""
    ordered = values.sort(dim=-1).values
    count = values.shape[-1]
    return (ordered[..., (count - 1) // 2] + ordered[..., count // 2]) / 2


def linear_quantile(values: Float64[Tensor, "count"], quantile: float, copies: int = 1) -> float:
    """Take a quantile with linear interpolation between neighbours, as ``numpy.quantile``.

    Each value counts ``copies`` times, without building the list that holds it so often.
    InvalidArgument: ``quantile`` lies outside [0, 1], or the sample is empty.
    """
    return linear_quantiles(values[None], quantile, copies)[0]


def linear_quantiles(
    values: Float64[Tensor, "rows count"], quantile: float, copies: int = 1
) -> list[float]:
    """Take the quantile of each row; raises as :func:`linear_quantile`."""
    rank = QuantileRank.of(quantile, copies * values.shape[1])
    lower, upper = rank.lower // copies, rank.upper // copies
    ordered = np.partition(values.cpu().numpy(), [lower, upper], axis=1)
    pairs = zip(ordered[:, lower].tolist(), ordered[:, upper].tolist(), strict=True)
    return [rank.between(*pair) for pair in pairs]


@dataclass(frozen=True)
class QuantileRank:
    """The rank of a quantile in an ordered sample: between two ranks, 0 for the smallest."""

    lower: int
    upper: int
    fraction: float

    @classmethod
    def of(cls, quantile: float, count: int) -> "QuantileRank":
        """Return the rank of a quantile among values; raises as :func:`linear_quantile`."""
        if not 0 <= quantile <= 1:
            raise InvalidArgument("quantile", f"is {quantile}; it must lie in [0, 1]")
        if count == 0:
            raise InvalidArgument(
                "anchors", "give no value to take a quantile of; give more anchors"
            )
        position = quantile * (count - 1)
        return cls(math.floor(position), math.ceil(position), position - math.floor(position))

    def between(self, low: float, high: float) -> float:
        """Interpolate the quantile between the values at both ranks."""
        if self.fraction < 0.5:  # from the nearer neighbour, so that equal neighbours stay exact
            return low + self.fraction * (high - low)
        return high - (1 - self.fraction) * (high - low)


Block = Float64[np.ndarray, "count"]
Passes = Callable[[], Iterable[Block]]

ROOM = 2**22
"""Values kept at once, 32 MiB."""

_ERRORS = 6.0
"""Half-width of a guess in standard errors of a sampled rank, each at most half a root of n."""


def order_statistics(
    passes: Passes, ranks: Sequence[int], guess: tuple[float, float], room: int = ROOM
) -> list[float]:
    """Find the values of the given ranks, 0 for the smallest.

    Args:
        passes: Starts a pass over all values, block by block; each pass has the same values.
        ranks: Which to find, each below the number of values.
        guess: Open interval where they may lie; it changes the time taken, never the result.
        room: Values to keep at once.
    """
    found: dict[int, float] = {}
    low, high = guess
    while True:
        scan = _Scan(low, high, room)
        for block in passes():
            scan.add(block)
        found.update({rank: value for rank in ranks if (value := scan.at(rank)) is not None})
        missing = [rank for rank in ranks if rank not in found]
        if not missing:
            return [found[rank] for rank in ranks]
        low, high = scan.closer(missing[0])


def bracket(sample: Float64[np.ndarray, "count"], position: float) -> tuple[float, float]:
    """Return an open interval that very likely holds a quantile of what was sampled."""
    ordered = np.sort(sample)
    centre, room = position * (len(ordered) - 1), len(ordered) / 4  # never the whole sample
    reach = min(_ERRORS * math.sqrt(len(ordered)) / 2 + 1, room)
    low, high = math.floor(centre - reach), math.ceil(centre + reach)
    return (
        float(ordered[low]) if low >= 0 else -math.inf,
        float(ordered[high]) if high < len(ordered) else math.inf,
    )


@dataclass
class _Scan:
    """One pass: counts at and around the ends of (low, high), and values from between."""

    low: float
    high: float
    room: int

    def __post_init__(self) -> None:
        self._below = self._at_low = self._between = self._at_high = 0
        self._kept: list[np.ndarray] = []
        self._held, self._stride = 0, 1

    def add(self, block: Block) -> None:
        inside = block[(block > self.low) & (block < self.high)]
        self._below += int((block < self.low).sum())
        self._at_low += int((block == self.low).sum())
        if self.high > self.low:
            self._at_high += int((block == self.high).sum())
        # Of all values between, in the order they come, every ``stride``-th is kept.
        kept = inside[-self._between % self._stride :: self._stride]
        self._between += len(inside)
        self._kept.append(kept)
        self._held += len(kept)
        while self._held > self.room:
            self._kept = [np.concatenate(self._kept)[::2]]
            self._held, self._stride = len(self._kept[0]), 2 * self._stride

    def at(self, rank: int) -> float | None:
        """Return the value of a rank, if this pass has found it."""
        rank -= self._below
        if rank < 0:
            return None
        if rank < self._at_low:
            return self.low
        rank -= self._at_low
        if rank < self._between:
            return float(np.partition(self._values(), rank)[rank]) if self._stride == 1 else None
        return self.high if rank - self._between < self._at_high else None

    def closer(self, rank: int) -> tuple[float, float]:
        """Return the interval for the next pass, for a rank that this one has not found."""
        rank -= self._below
        if rank < 0:
            return -math.inf, self.low
        rank -= self._at_low
        if rank >= self._between:
            return self.high, math.inf
        low, high = bracket(self._values(), rank / max(1, self._between - 1))
        return max(low, self.low), min(high, self.high)

    def _values(self) -> np.ndarray:
        return np.concatenate(self._kept)
