"""How a column of actions or of proprioception is normalised: what a task file says, and fitting.

The public library's three (``ZScoreScaler``, ``PercentileScaler``, ``IdentityScaler``), and fixed
statistics of other data than these.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, Literal

import numpy as np
from jaxtyping import Float, Float64
from pydantic import BaseModel, ConfigDict, Field, model_validator

from acpc.contract import FailedPrecondition
from acpc.datasets.columns import Dataset, DatasetColumn
from acpc.datasets.statistics import ColumnStatistics, StatisticsCache

NormaliserName = Literal["zscore", "percentile", "constant", "none"]
MEASURED: tuple[NormaliserName, ...] = ("zscore", "percentile", "none")
"""Those that need nothing but the dataset."""
_SMALLEST = 1e-8
Numbers = Annotated[list[Annotated[float, Field(allow_inf_nan=False)]], Field(min_length=1)]


class NormalisedColumn(BaseModel):
    """A column and how it is normalised; a bare name is a column under ``zscore``.

    Attributes:
        column: Its name.
        normaliser: ``zscore``: less the mean, over the standard deviation; ``percentile``: the 1st
            percentile becomes -1, the 99th 1; ``constant``: with the numbers given here;
            ``none``: as recorded.
        mean: Of ``zscore`` or ``constant``, one or one a coordinate, with ``std``.
        std: The standard deviation; 0 divides by 1.
        low: What becomes -1, of ``percentile`` or ``constant``, with ``high``.
        high: What becomes 1.
        clip: Largest absolute value after normalising; of ``percentile`` 1 unless it is given.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)
    column: str = Field(default="action", min_length=1)
    normaliser: NormaliserName = "zscore"
    mean: Numbers | None = None
    std: Numbers | None = None
    low: Numbers | None = None
    high: Numbers | None = None
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

    def named(self) -> dict[str, object]:
        """What a receipt says of it: what was set."""
        return {**self.model_dump(exclude_none=True), "normaliser": self.normaliser}

    def under(self, normaliser: NormaliserName) -> NormalisedColumn:
        """The same column under another of ``MEASURED``."""
        return NormalisedColumn(column=self.column, normaliser=normaliser)

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
