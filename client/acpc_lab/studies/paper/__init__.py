"""The tables that the paper prints, as it prints them, and the studies' own types made of them.

They are the check of every summary that can be computed from printed numbers, and examples of
what the summaries look like.
"""

from __future__ import annotations

import csv
import math
from collections.abc import Callable
from importlib import resources
from types import SimpleNamespace
from typing import Any, TypeVar

import numpy as np

from acpc_lab.studies.collapse import CollapseRows
from acpc_lab.studies.drift import DriftCell
from acpc_lab.studies.horizons import IrReduction
from acpc_lab.studies.shifts import ShiftRows
from acpc_lab.studies.statistics import records
from acpc_lab.studies.thresholds import Split
from acpc_lab.tables import Rows

Kind = TypeVar("Kind", bound=Rows)
_TEXTS = {"task", "run", "shift", "source", "test", "selected", "checkpoint"}
_INTEGERS = {"pairs", "boundary", "met", "wins", "folds", "improved", "cells", "horizon"}


def table(name: str) -> SimpleNamespace:
    """A printed table: an array per column; the comments of its file say what it holds."""
    file = resources.files(__name__).joinpath(f"{name}.csv")
    lines = [line for line in file.read_text(encoding="utf-8").splitlines() if line[:1] != "#"]
    header, *rows = csv.reader(lines)
    kinds = {**dict.fromkeys(_TEXTS, np.str_), **dict.fromkeys(_INTEGERS, np.int64)}
    columns = zip(header, zip(*rows, strict=True), strict=True)
    arrays: dict[str, Any] = {
        name: np.array(cells).astype(kinds.get(name, np.float64)) for name, cells in columns
    }
    return SimpleNamespace(**arrays)


def shift_rows() -> ShiftRows:
    """The 24 pairs under blur and resize. The references' SR and clean success are not printed."""
    return _rows(ShiftRows, "shift_pairs")


def collapse_rows() -> CollapseRows:
    """The four SIGReg weights."""
    return _rows(CollapseRows, "collapse_checkpoints")


def _rows(kind: type[Kind], name: str) -> Kind:
    printed = vars(table(name))
    return kind.of({f.name: printed[f.name] for f in kind.fields() if f.name in printed})


def drift_cells() -> tuple[DriftCell, ...]:
    """The twelve task-run cells of the error-drift study."""
    return records(DriftCell, *vars(table("drift_cells")).values())


def splits() -> tuple[Split, ...]:
    """The 14 source and test splits; what the paper does not print of the source tasks is NaN."""

    def split(source: str, test: str, t_ir: float, t_sr: float, *tested: float) -> Split:
        numbers: Any = (t_ir, t_sr, math.nan, 0, 0, math.nan, *tested)
        return Split(tuple(source.split("+")), tuple(test.split("+")), *numbers)

    return records(split, *vars(table("threshold_splits")).values())


def ir_reductions() -> tuple[IrReduction, ...]:
    """IR reductions by horizon and by quantile, each entry once."""
    entries = records(lambda *entry: entry, *vars(table("horizon_ratios")).values())
    return tuple(
        IrReduction(task, 0.08, h, q, ratio, 3) for task, h, q, ratio in dict.fromkeys(entries)
    )


PAPER_ROWS: dict[str, Callable[[], Rows]] = {"shifts": shift_rows, "collapse": collapse_rows}
"""Studies whose rows the paper prints."""
