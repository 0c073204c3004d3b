"""Computes mean and standard deviation of a column, as the paper standardises it."""

import threading
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias, TypeVar

import numpy as np
from jaxtyping import Float, Float64

from acpc.contract import FailedPrecondition
from acpc.datasets.columns import Dataset, DatasetColumn

T = TypeVar("T")
Ends: TypeAlias = tuple[Float64[np.ndarray, "width"], Float64[np.ndarray, "width"]]
MAX_SORTED_BYTES = 2**31
"""Bytes of a column whose percentiles are measured, 2 GiB as float64."""


@dataclass(frozen=True)
class ColumnStatistics:
    """Mean and standard deviation of each coordinate over the ``rows`` that hold no NaN.

    A coordinate that never changes has standard deviation 0 exactly; standardising divides it by 1,
    so that it becomes 0 and weighs nothing, instead of turning rounding noise into distances.
    """

    mean: Float64[np.ndarray, "width"]
    std: Float64[np.ndarray, "width"]
    rows: int

    def standardise(
        self, values: Float[np.ndarray, "... width"]
    ) -> Float64[np.ndarray, "... width"]:
        """``(values - mean) / std`` in float64; NaN stays NaN."""
        divisor = np.where(self.std == 0.0, 1.0, self.std)
        standardised: np.ndarray = (values.astype(np.float64) - self.mean) / divisor
        return standardised


def column_statistics(dataset: Dataset, column: DatasetColumn, *, ddof: int) -> ColumnStatistics:
    """Statistics over the whole column, in float64 and in one pass (the update of Chan et al.).

    ``ddof`` is 1 for the unbiased estimate (the paper), 0 to divide by N. Raises FailedPrecondition
    at an infinite value, or fewer than ``ddof + 1`` rows without NaN.
    """
    rows, mean, squares = 0, np.zeros(column.width), np.zeros(column.width)
    low, high = np.full(column.width, np.inf), np.full(column.width, -np.inf)
    for raw in column.blocks():
        block = raw.reshape(len(raw), column.width).astype(np.float64)
        block = block[~np.isnan(block).any(axis=1)]
        if not len(block):
            continue
        if np.isinf(block).any():
            raise FailedPrecondition(
                f"dataset {dataset.name!r}, column {column.name!r} holds infinite values"
            )
        block_mean = block.mean(axis=0)
        shift = block_mean - mean
        total = rows + len(block)
        squares += ((block - block_mean) ** 2).sum(axis=0) + shift**2 * rows * len(block) / total
        mean += shift * len(block) / total
        rows = total
        low, high = np.minimum(low, block.min(axis=0)), np.maximum(high, block.max(axis=0))
    if rows <= ddof:
        raise FailedPrecondition(
            f"dataset {dataset.name!r}, column {column.name!r} has {rows} rows without NaN; "
            f"statistics need at least {ddof + 1}"
        )
    constant = low == high
    return ColumnStatistics(
        mean=np.where(constant, low, mean),
        std=np.where(constant, 0.0, np.sqrt(squares / (rows - ddof))),
        rows=rows,
    )


def column_percentiles(dataset: Dataset, column: DatasetColumn) -> Ends:
    """The 1st and the 99th percentile of each coordinate over the rows that hold no NaN.

    As the public library's ``PercentileScaler`` measures them: with linear interpolation. Raises
    FailedPrecondition: No such row, or more than ``MAX_SORTED_BYTES``, which are held at once.
    """
    if column.shape[0] * column.width * 8 > MAX_SORTED_BYTES:
        raise dataset.bad(
            column.name, "is too large to measure its percentiles; give 'low', 'high'"
        )
    blocks = (raw.reshape(len(raw), column.width).astype(np.float64) for raw in column.blocks())
    rows = np.concatenate([block[~np.isnan(block).any(axis=1)] for block in blocks])
    if not len(rows):
        raise dataset.bad(column.name, "has no row without NaN, so it has no percentiles")
    low, high = np.percentile(rows, (1, 99), axis=0)
    return low, high


class StatisticsCache:
    """Statistics of the columns read lately. Reading one takes some seconds a million rows."""

    def __init__(self, size: int = 64) -> None:
        self._size = size
        self._known: OrderedDict[tuple[object, ...], Any] = OrderedDict()
        self._lock = threading.Lock()

    def get(self, dataset: Dataset, column: DatasetColumn, *, ddof: int) -> ColumnStatistics:
        """As :func:`column_statistics`; read again once the file has been written to."""
        return self._get(
            dataset, (column.name, ddof), lambda: column_statistics(dataset, column, ddof=ddof)
        )

    def percentiles(self, dataset: Dataset, column: DatasetColumn) -> Ends:
        """As :func:`column_percentiles`; read again once the file has been written to."""
        return self._get(
            dataset, (column.name, "percentiles"), lambda: column_percentiles(dataset, column)
        )

    def _get(self, dataset: Dataset, what: tuple[object, ...], read: Callable[[], T]) -> T:
        identity = dataset.identity()
        key = (identity, *what)
        with self._lock:
            if key in self._known:
                self._known.move_to_end(key)
                known: T = self._known[key]
                return known
        found = read()
        if dataset.identity() == identity:  # not written to meanwhile
            with self._lock:
                self._known[key] = found
                while len(self._known) > self._size:
                    self._known.popitem(last=False)
        return found
