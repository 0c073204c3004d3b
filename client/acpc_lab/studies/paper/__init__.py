"""The tables that the paper prints, as it prints them, and the studies' own types made of them.

They are the check of every summary that can be computed from printed numbers, and examples of
what the summaries look like.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from importlib import resources
from typing import Annotated, TypeVar

from acpc_lab.studies.collapse import CollapseRows
from acpc_lab.studies.drift import DriftCell
from acpc_lab.studies.horizons import IrReduction
from acpc_lab.studies.shifts import ShiftRows
from acpc_lab.studies.threshold_summary import Split
from acpc_lab.tables import Column, Integers, Numbers, Rows, Texts, parse_csv

Table = TypeVar("Table", bound=Rows)


@dataclass(frozen=True, eq=False)
class ShiftPairTable(Rows):
    """Table cross-stressor-ir-sr-all-pairs."""

    task: Annotated[Texts, Column("task")]
    run: Annotated[Texts, Column("seed")]
    shift: Annotated[Texts, Column("blur or resize")]
    ir_rel: Annotated[Numbers, Column("relative IR")]
    sr: Annotated[Numbers, Column("SR")]
    success_gain: Annotated[Numbers, Column("points of success")]
    delta_score: Annotated[Numbers, Column("delta S")]
    met: Annotated[Integers, Column("1: the criterion is met")]
    boundary: Annotated[Integers, Column("1: a boundary case")]


@dataclass(frozen=True, eq=False)
class ShiftAgreementTable(Rows):
    """Table cross-stressor-ir-sr-summary."""

    shift: Annotated[Texts, Column("all, blur or resize")]
    pairs: Annotated[Integers, Column("pairs")]
    balanced_accuracy: Annotated[Numbers, Column("BA")]
    precision: Annotated[Numbers, Column("precision")]
    recall: Annotated[Numbers, Column("recall")]
    spearman: Annotated[Numbers, Column("Spearman")]
    boundary: Annotated[Integers, Column("boundary cases")]


@dataclass(frozen=True, eq=False)
class DriftCellTable(Rows):
    """Table target-aligned-acpc-absolute."""

    task: Annotated[Texts, Column("task")]
    run: Annotated[Texts, Column("seed")]
    base: Annotated[Numbers, Column("MAE of Base")]
    control: Annotated[Numbers, Column("MAE of Base+Control_8")]
    acpc: Annotated[Numbers, Column("MAE of Base+ACPC_8")]
    selected: Annotated[Texts, Column("selected control")]
    wins: Annotated[Integers, Column("paired wins")]
    folds: Annotated[Integers, Column("folds")]


@dataclass(frozen=True, eq=False)
class DriftRunTable(Rows):
    """Table target-aligned-acpc."""

    run: Annotated[Texts, Column("seed")]
    over_base: Annotated[Numbers, Column("reduction against Base, in %")]
    over_control: Annotated[Numbers, Column("reduction against Base+Control_8, in %")]
    improved: Annotated[Integers, Column("cells improved")]
    cells: Annotated[Integers, Column("cells")]


@dataclass(frozen=True, eq=False)
class SplitTable(Rows):
    """Table cross-task-all-subsets; tasks are joined by +."""

    source: Annotated[Texts, Column("selection tasks")]
    test: Annotated[Texts, Column("test tasks")]
    t_ir: Annotated[Numbers, Column("threshold of relative IR")]
    t_sr: Annotated[Numbers, Column("threshold of SR")]
    balanced_accuracy: Annotated[Numbers, Column("BA")]
    precision: Annotated[Numbers, Column("P")]
    recall: Annotated[Numbers, Column("R")]
    mismatch: Annotated[Numbers, Column("mean onset mismatch")]
    worst_mismatch: Annotated[Numbers, Column("largest onset mismatch")]


@dataclass(frozen=True, eq=False)
class SweepTaskTable(Rows):
    """Table full-sweep-compact."""

    task: Annotated[Texts, Column("task")]
    base_success: Annotated[Numbers, Column("success without augmentation, in %")]
    best_success: Annotated[Numbers, Column("best success, in %")]
    best_level: Annotated[Numbers, Column("its level")]
    base_ir_rel: Annotated[Numbers, Column("relative IR without augmentation")]
    best_ir_rel: Annotated[Numbers, Column("relative IR at the best level")]
    base_sr: Annotated[Numbers, Column("SR without augmentation")]
    best_sr: Annotated[Numbers, Column("SR at the best level")]
    first_recovered: Annotated[Numbers, Column("first level that meets the criterion")]
    last_recovered: Annotated[Numbers, Column("last level that meets the criterion")]


@dataclass(frozen=True, eq=False)
class HorizonTable(Rows):
    """Table horizon-quantile-sensitivity."""

    task: Annotated[Texts, Column("task")]
    horizon: Annotated[Integers, Column("H")]
    quantile: Annotated[Numbers, Column("q")]
    ratio: Annotated[Numbers, Column("ratio of IR")]


@dataclass(frozen=True, eq=False)
class CollapseTable(Rows):
    """Table sigreg-collapse-control."""

    checkpoint: Annotated[Texts, Column("SIGReg weight")]
    median_latent_distance: Annotated[Numbers, Column("median latent distance")]
    ir_raw: Annotated[Numbers, Column("raw IR")]
    sr: Annotated[Numbers, Column("SR")]
    success_clean: Annotated[Numbers, Column("clean success, in %")]
    success_clean_sd: Annotated[Numbers, Column("its deviation over evaluation seeds")]


def table(name: str, kind: type[Table]) -> Table:
    """A printed table."""
    file = resources.files(__name__).joinpath(f"{name}.csv")
    return parse_csv(file.read_text(encoding="utf-8"), kind, f"{name}.csv")


def shift_rows() -> ShiftRows:
    """The 24 pairs under blur and resize. The references' SR and clean success are not printed."""
    printed = table("shift_pairs", ShiftPairTable)
    names = ("task", "run", "shift", "ir_rel", "sr", "success_gain")
    return ShiftRows.of({name: getattr(printed, name) for name in names})


def collapse_rows() -> CollapseRows:
    """The four SIGReg weights."""
    printed = table("collapse_checkpoints", CollapseTable)
    return CollapseRows.of(
        {field.name: getattr(printed, field.name) for field in CollapseRows.fields()}
    )


def drift_cells() -> tuple[DriftCell, ...]:
    """The twelve task-run cells of the error-drift study."""
    columns = table("drift_cells", DriftCellTable).columns().values()
    return tuple(
        DriftCell(*values) for values in zip(*(column.tolist() for column in columns), strict=True)
    )


def splits() -> tuple[Split, ...]:
    """The 14 source and test splits; what the paper does not print of the source tasks is NaN."""
    printed = table("threshold_splits", SplitTable)
    return tuple(
        Split(
            source=tuple(source.split("+")),
            test=tuple(test.split("+")),
            t_ir=t_ir,
            t_sr=t_sr,
            source_mismatch=float("nan"),
            source_early=0,
            source_late=0,
            source_balanced_accuracy=float("nan"),
            balanced_accuracy=accuracy,
            precision=precision,
            recall=recall,
            mismatch=mismatch,
            worst_mismatch=worst,
        )
        for source, test, t_ir, t_sr, accuracy, precision, recall, mismatch, worst in zip(
            *(column.tolist() for column in printed.columns().values()), strict=True
        )
    )


def ir_reductions() -> tuple[IrReduction, ...]:
    """IR reductions by horizon and by quantile, each entry once."""
    printed = table("horizon_ratios", HorizonTable)
    values = zip(*(column.tolist() for column in printed.columns().values()), strict=True)
    return tuple(
        IrReduction(task=task, level=0.08, horizon=horizon, quantile=quantile, ratio=ratio, runs=3)
        for task, horizon, quantile, ratio in dict.fromkeys(values)
    )


PAPER_ROWS: dict[str, Callable[[], Rows]] = {"shifts": shift_rows, "collapse": collapse_rows}
"""Studies whose rows the paper prints."""
