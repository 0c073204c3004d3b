"""Horizon and quantile sensitivity: does IR fall whatever the horizon and the quantile?"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from operator import itemgetter
from typing import Any

import numpy as np
from acpc.contract import GaussianNoise, Record, bounded, columns_of
from acpc_client import ScoreProtocol
from acpc_client.errors import ArgumentError

from acpc_lab.studies.base import Answers, LevelRows, Parameters, Study
from acpc_lab.studies.figures import Listing
from acpc_lab.studies.measuring import Ask, StudyCheckpoint
from acpc_lab.tables import Arrays, Integers, Numbers, column


class HorizonRows(LevelRows):
    """A row per checkpoint, horizon and quantile."""

    horizon: Integers = column("predicted steps H", low=1)
    quantile: Numbers = column("quantile q over anchors", 0, 1)
    ir_raw: Numbers = column("raw IR", low=0)


class HorizonParameters(Parameters):
    """The protocol's own horizon and quantile, at which the table's two halves meet."""

    horizon: int = bounded(8, ge=1, le=256)
    quantile: float = bounded(0.90, ge=0, le=1)


class IrReduction(Record):
    """IR of a task at its highest level over that of level 0, the median over runs."""

    task: str
    level: float
    horizon: int
    quantile: float
    ratio: float
    runs: int


class HorizonSummary(Record):
    """The answer of the study: ratios at the protocol's horizon or quantile, and the weakest."""

    horizon: int
    quantile: float
    entries: tuple[IrReduction, ...]
    largest: float


def summarise(rows: HorizonRows, parameters: HorizonParameters, arrays: Arrays) -> HorizonSummary:
    """Table "Horizon and quantile sensitivity of the IR reduction" in the paper.

    Raises ArgumentError: A run lacks a level, a row occurs twice, or the IR of a reference is 0.
    """
    entries = []
    for (task,), of_task in rows.by("task"):
        level = float(of_task.level.max())
        if level == 0:
            raise ArgumentError("level", f"{task}: is 0 in every row; wanted an augmented level")
        places = sorted(of_task.by("horizon", "quantile"), key=itemgetter(0))
        for (horizon, quantile), of_place in places:
            at = f"H {horizon}, q {quantile:g}"
            runs = of_place.by("run")
            ratios = [_ratio(f"{task}, run {run}, {at}", level, rows) for (run,), rows in runs]
            found = float(np.median(ratios)), len(ratios)
            entries.append(IrReduction(task, level, horizon, quantile, *found))
    largest = max(entry.ratio for entry in entries)
    return HorizonSummary(parameters.horizon, parameters.quantile, tuple(entries), largest)


def _ratio(where: str, level: float, rows: HorizonRows) -> float:
    """IR of a run at a level over that at level 0."""
    found = []
    for wanted in (level, 0.0):
        values = rows.ir_raw[rows.level == wanted].tolist()
        if len(values) != 1:
            wrong = f"{where}: found {len(values)} rows of level {wanted:g}, wanted 1"
            raise ArgumentError("level", wrong)
        found += values
    if found[1] == 0:
        raise ArgumentError("ir_raw", f"{where}: is 0 at level 0, so there is no ratio")
    return float(found[0] / found[1])


def shown(summary: HorizonSummary) -> Iterator[str | Listing]:
    """The ratios of the paper's table: quantiles at one horizon, horizons at one quantile."""
    ratios = {
        (entry.task, entry.horizon, entry.quantile): entry.ratio
        for entry in summary.entries
        if entry.horizon == summary.horizon or entry.quantile == summary.quantile
    }
    places = (
        (f"H{h} q{100 * q:g}", lambda task, h=h, q=q: ratios.get((task, h, q)), ".2f")
        for h, q in sorted({place[1:] for place in ratios})
    )
    tasks = list(dict.fromkeys(entry.task for entry in summary.entries))
    yield Listing(tasks, (("task", str), *places), "ratios", alike=True)
    yield "IR over the unaugmented checkpoint's, median over runs; lower is a larger reduction"


def require_levels(checkpoints: Sequence[StudyCheckpoint], parameters: HorizonParameters) -> None:
    """Rejects checkpoints whose rows ``summarise`` would reject. Raises ArgumentError."""
    named = columns_of(checkpoints, "task", "run", "level")
    at = parameters.to_dict() | {"ir_raw": 1.0}
    rows = HorizonRows.of(named | {name: [x] * len(checkpoints) for name, x in at.items()})
    summarise(rows, parameters, {})


def _gather(answers: Answers, *_: Any) -> tuple[HorizonRows, Arrays]:  # noqa: ANN401
    """A row per checkpoint, horizon and quantile that was asked for."""
    pairs = [(row, at) for row, score in answers for at in score.checkpoint.summaries]
    rows = columns_of((row for row, _ in pairs), "task", "run", "level")
    measured = columns_of((at for _, at in pairs), "horizon", "quantile", "ir_raw")
    return HorizonRows.of(rows | measured), {}


STUDY = Study(
    "horizons",
    "Does IR fall whatever the horizon and the quantile?",
    summarise,
    shown,
    "a ratio of at most 0.09 in every task, at every horizon and quantile",
    (
        "acpc study run horizons --checkpoints pairs.csv --out horizons/ "
        "--protocol '{extra_horizons: [1, 4]}'",
    ),
    Ask(ScoreProtocol(extra_horizons=(1, 2, 4), extra_quantiles=(0.8, 0.95)), GaussianNoise(0.08)),
    gather=_gather,
    check=require_levels,
)
