"""How columns are standardised, as the paper does, and normalised, as a task file says.

The public library's three (``ZScoreScaler``, ``PercentileScaler``, ``IdentityScaler``), and fixed
statistics of other data than these.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Annotated, Any, Literal, TypeAlias, TypeVar

import numpy as np
from jaxtyping import Float, Float64
from pydantic import BaseModel, ConfigDict, Field, model_validator

from acpc.contract import FailedPrecondition
from acpc.datasets.columns import Dataset, DatasetColumn

T = TypeVar("T")
Ends: TypeAlias = tuple[Float64[np.ndarray, "width"], Float64[np.ndarray, "width"]]
MAX_SORTED_BYTES = 2**31  # bytes of a column whose percentiles are measured, 2 GiB as float64
NormaliserName = Literal["zscore", "percentile", "constant", "none"]
MEASURED: tuple[NormaliserName, ...] = ("zscore", "percentile", "none")
"""Those that need nothing but the dataset."""
_SMALLEST = 1e-8
MAX_KNOWN = 64
Numbers = Annotated[list[Annotated[float, Field(allow_inf_nan=False)]], Field(min_length=1)]


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

    def __init__(self) -> None:
        self._known: OrderedDict[tuple[object, ...], Any] = OrderedDict()
        self._lock = threading.Lock()

    def get(self, dataset: Dataset, column: DatasetColumn, *, ddof: int) -> ColumnStatistics:
        """As :func:`column_statistics`; read again once the file has been written to."""
        read = partial(column_statistics, dataset, column, ddof=ddof)
        return self._get(dataset, (column.name, ddof), read)

    def percentiles(self, dataset: Dataset, column: DatasetColumn) -> Ends:
        """As :func:`column_percentiles`; read again once the file has been written to."""
        read = partial(column_percentiles, dataset, column)
        return self._get(dataset, (column.name, "percentiles"), read)

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
                while len(self._known) > MAX_KNOWN:
                    self._known.popitem(last=False)
        return found


class NormalisedColumn(BaseModel):
    """A column and how it is normalised; a bare name is a column under ``zscore``.

    ``zscore``: less the mean, over the standard deviation; ``percentile``: the 1st percentile
    becomes -1, the 99th 1; ``constant``: with the numbers given here; ``none``: as recorded.
    Numbers are one for all coordinates, or one each.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)
    column: str = Field(default="action", min_length=1)
    normaliser: NormaliserName = "zscore"
    mean: Numbers | None = None  # with ``std``
    std: Numbers | None = None  # 0 divides by 1
    low: Numbers | None = None  # becomes -1; with ``high``
    high: Numbers | None = None  # becomes 1
    # Largest absolute value after normalising; of ``percentile`` 1 unless it is given.
    clip: float | None = Field(default=None, gt=0, allow_inf_nan=False)

    @model_validator(mode="before")
    @classmethod
    def _of_name(cls, value: Any) -> Any:  # noqa: ANN401 - of a file
        return {"column": value} if isinstance(value, str) else value

    @model_validator(mode="after")
    def _consistent(self) -> NormalisedColumn:
        moments, ends = self.mean or self.std, self.low or self.high
        wrong = {
            "'mean' and 'std' go together": (self.mean is None) != (self.std is None),
            "'low' and 'high' go together": (self.low is None) != (self.high is None),
            "give 'mean' and 'std', or 'low' and 'high'": bool(moments and ends),
            f"{self.normaliser} takes no 'mean' and 'std'": bool(moments)
            and self.normaliser not in ("zscore", "constant"),
            f"{self.normaliser} takes no 'low' and 'high'": bool(ends)
            and self.normaliser not in ("percentile", "constant"),
            "constant needs 'mean' and 'std', or 'low' and 'high'": self.normaliser == "constant"
            and not (moments or ends),
            "a 'std' is negative": min(self.std or [0.0]) < 0,
        }
        for words, found in wrong.items():
            if found:
                raise ValueError(words)
        return self

    def fitted(
        self, dataset: Dataset, column: DatasetColumn, *, ddof: int, known: StatisticsCache
    ) -> Normaliser:
        """The normaliser of a dataset's column; ``ddof`` is of a measured standard deviation.

        Raises FailedPrecondition: Numbers of another width than the column's, ends that are not in
        order, or a column that has no statistics.
        """
        if self.normaliser == "none":
            return Normaliser(None, self.clip)
        if self.mean is not None and self.std is not None:
            mean, std = (self._wide(dataset, column, x) for x in (self.mean, self.std))
            return Normaliser(ColumnStatistics(mean, std, 0), self.clip)
        if self.normaliser == "zscore":
            return Normaliser(known.get(dataset, column, ddof=ddof), self.clip)
        if self.low is not None and self.high is not None:
            low, high = (self._wide(dataset, column, x) for x in (self.low, self.high))
            if not (low < high).all():
                raise self._bad(dataset, "a 'low' is not below its 'high'")
        else:
            low, high = known.percentiles(dataset, column)
        half = np.maximum(high - low, _SMALLEST) / 2
        clip = 1.0 if self.normaliser == "percentile" and self.clip is None else self.clip
        return Normaliser(ColumnStatistics(low + half, half, 0), clip)

    def _wide(
        self, dataset: Dataset, column: DatasetColumn, numbers: list[float]
    ) -> Float64[np.ndarray, "width"]:
        if len(numbers) not in (1, column.width):
            raise self._bad(
                dataset, f"{len(numbers)} numbers are given, but it has {column.width} coordinates"
            )
        return np.broadcast_to(np.array(numbers, np.float64), (column.width,))

    def _bad(self, dataset: Dataset, words: str) -> FailedPrecondition:
        return dataset.bad(self.column, f"cannot be normalised as the task says: {words}")


@dataclass(frozen=True)
class Normaliser:
    """What is subtracted and divided by, if anything, and where the result is cut off."""

    statistics: ColumnStatistics | None
    clip: float | None = None

    def __call__(
        self, values: Float[np.ndarray, "*rows width"]
    ) -> Float64[np.ndarray, "*rows width"]:
        """Normalised values, float64; NaN, which files hold at an episode's end, becomes 0."""
        scaled = values if self.statistics is None else self.statistics.standardise(values)
        scaled = np.nan_to_num(scaled.astype(np.float64), nan=0.0)
        found: np.ndarray = scaled if self.clip is None else np.clip(scaled, -self.clip, self.clip)
        return found
