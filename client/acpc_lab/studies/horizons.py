"""Horizon and quantile sensitivity: does IR fall whatever the horizon and the quantile?"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import numpy as np
from acpc.contract import Record
from acpc_client.errors import ArgumentError

from acpc_lab.studies.base import Parameters
from acpc_lab.tables import Arrays, Column, Integers, Numbers, Rows, Texts, groups


@dataclass(frozen=True, eq=False)
class HorizonRows(Rows):
    """A row per checkpoint, horizon and quantile."""

    task: Annotated[Texts, Column("task")]
    run: Annotated[Texts, Column("training run, for example its seed")]
    level: Annotated[Numbers, Column("augmentation level; 0: the unaugmented reference", low=0)]
    horizon: Annotated[Integers, Column("predicted steps H", low=1)]
    quantile: Annotated[Numbers, Column("quantile q over anchors", low=0, high=1)]
    ir_raw: Annotated[Numbers, Column("raw IR", low=0)]


@dataclass(frozen=True)
class HorizonParameters(Parameters):
    """The protocol's own horizon and quantile, at which the table's two halves meet."""

    horizon: int = 8
    quantile: float = 0.90

    def __post_init__(self) -> None:
        self.require("horizon", self.horizon >= 1, "a positive integer")
        self.require("quantile", 0 <= self.quantile <= 1, "a number in [0, 1]")


@dataclass(frozen=True, repr=False, eq=False)
class IrReduction(Record):
    """One task at one horizon and quantile.

    Attributes:
        level: The highest augmentation level.
        ratio: Median over runs of IR at that level over IR of the unaugmented checkpoint.
    """

    task: str
    level: float
    horizon: int
    quantile: float
    ratio: float
    runs: int


@dataclass(frozen=True, repr=False, eq=False)
class HorizonSummary(Record):
    """The answer of the study.

    Attributes:
        horizon: The protocol's horizon, at which quantiles vary.
        quantile: The protocol's quantile, at which horizons vary.
        largest: The weakest reduction of any entry.
    """

    horizon: int
    quantile: float
    entries: tuple[IrReduction, ...]
    largest: float


def summarise(rows: HorizonRows, parameters: HorizonParameters, arrays: Arrays) -> HorizonSummary:
    """Table "Horizon and quantile sensitivity of the IR reduction" in the paper.

    Raises ArgumentError: A run lacks the reference or the highest level, a row occurs twice, or the
    IR of a reference is 0.
    """
    entries = []
    for (task,), of_task in groups(rows.task.tolist()).items():
        cell = rows.where(of_task)
        level = float(cell.level.max())
        if level == 0:
            raise ArgumentError("level", f"{task}: is 0 in every row; wanted an augmented level")
        keys = groups(cell.horizon.tolist(), cell.quantile.tolist())
        for (horizon, quantile), held in sorted(keys.items()):
            ratios = _ratios(task, level, cell.where(held))
            entries.append(
                IrReduction(
                    task=task,
                    level=level,
                    horizon=horizon,
                    quantile=quantile,
                    ratio=float(np.median(ratios)),
                    runs=len(ratios),
                )
            )
    largest = max(entry.ratio for entry in entries)
    return HorizonSummary(parameters.horizon, parameters.quantile, tuple(entries), largest)


def _ratios(task: str, level: float, rows: HorizonRows) -> list[float]:
    ratios = []
    for (run,), held in groups(rows.run.tolist()).items():
        cell = rows.where(held)
        where = f"{task}, run {run}, H {cell.horizon[0]}, q {cell.quantile[0]:g}"
        found = []
        for wanted in (level, 0.0):
            values = cell.ir_raw[cell.level == wanted]
            if len(values) != 1:
                raise ArgumentError(
                    "level", f"{where}: found {len(values)} rows of level {wanted:g}, wanted 1"
                )
            found.append(float(values[0]))
        if found[1] == 0:
            raise ArgumentError("ir_raw", f"{where}: is 0 at level 0, so there is no ratio")
        ratios.append(found[0] / found[1])
    return ratios
