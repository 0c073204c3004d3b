"""Reads a training sweep: rows, runs, and which checkpoints meet the success-rate criterion."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import numpy as np
from acpc_client.errors import ArgumentError

from acpc_lab.studies.base import LevelRows
from acpc_lab.studies.statistics import SLACK, CleanSeeds, Episodes, Mask, clean_success
from acpc_lab.tables import Column, Numbers, Texts, groups


class SweepRows(LevelRows):
    """A row per checkpoint of a training sweep, under one visual shift."""

    ir_raw: Annotated[Numbers, Column("raw IR; either this or ir_rel", low=0, optional=True)]
    ir_rel: Annotated[Numbers, Column("IR relative to level 0 of the run", low=0, optional=True)]
    sr: Annotated[Numbers, Column("separation rate", low=0, high=1)]
    success_noisy: Annotated[Numbers, Column("success under the shift, in %", low=0, high=100)]
    success_clean: Annotated[
        Numbers,
        Column("success on clean views, in %; or success_clean_seeds", 0, 100, optional=True),
    ]
    success_clean_seeds: CleanSeeds
    different_label_distance: Annotated[
        Numbers, Column("median distance of different-label pairs", low=0, optional=True)
    ]
    family: Annotated[Texts, Column("model family; thresholds are chosen in each", optional=True)]
    episodes: Episodes
    checkpoint_digest: Annotated[
        Texts, Column("these four of the score's receipt, kept with thresholds", optional=True)
    ]
    anchors_digest: Annotated[Texts, Column("of the anchors", optional=True)]
    perturbation_digest: Annotated[Texts, Column("of shift, draws and seed", optional=True)]
    parameters_digest: Annotated[Texts, Column("of the protocol", optional=True)]


@dataclass(frozen=True, eq=False)
class Run:
    """One task and training run; arrays over the levels of the sweep.

    Attributes:
        rows: Of its checkpoints, in the order of the levels.
        ir_rel: Relative IR.
        clean: Clean success in %, the mean over evaluation seeds where these are given.
        clean_sd: Its deviation over evaluation seeds; NaN where these are not given.
        required: Success under the shift and on clean views that the criterion asks for, in %.
    """

    family: str
    task: str
    run: str
    rows: SweepRows
    ir_rel: Numbers
    clean: Numbers
    clean_sd: Numbers
    required: tuple[float, float]
    recovered: Mask

    @property
    def loss(self) -> float:
        """Points of success that the unaugmented checkpoint loses under the shift."""
        return float(self.clean[0] - self.rows.success_noisy[0])


@dataclass(frozen=True)
class TrainingSweep:
    """Every run over the same levels, in ascending order from the unaugmented 0."""

    levels: tuple[float, ...]
    runs: tuple[Run, ...]

    def by_family(self) -> dict[str, TrainingSweep]:
        """The sweep of each model family."""
        return {name: TrainingSweep(self.levels, runs) for name, runs in self._by("family").items()}

    def by_task(self) -> dict[str, tuple[Run, ...]]:
        """The runs of each task; of a sweep of one family."""
        return self._by("task")

    def _by(self, name: str) -> dict[str, tuple[Run, ...]]:
        keyed = groups(getattr(run, name) for run in self.runs)
        return {value: tuple(self.runs[i] for i in held) for (value,), held in keyed.items()}


def required_success(
    noisy: Numbers, clean: Numbers, *, recovery: float, clean_loss: float
) -> tuple[float, float]:
    """Success under the shift and on clean views that the paper's criterion asks for, in %.

    P_base + recovery (P_best - P_base), and that of the unaugmented checkpoint less ``clean_loss``.

    Args:
        noisy: Success under the shift by level, the unaugmented checkpoint first, in %.
        clean: Success on clean observations, likewise.
        recovery: Share of the improvement from the unaugmented to the best checkpoint.
        clean_loss: Points of clean success that may be lost against the unaugmented checkpoint.
    """
    wanted = noisy[0] + recovery * (noisy.max() - noisy[0])
    return float(wanted), float(clean[0] - clean_loss)


def meets_criterion(noisy: Numbers, clean: Numbers, required: tuple[float, float]) -> Mask:
    """Which checkpoints of a run have the success that is required on both kinds of views.

    The unaugmented checkpoint does only when no checkpoint of the run does better.
    """
    met: Mask = (noisy >= required[0] - SLACK) & (clean >= required[1] - SLACK)
    return met


def read_training_sweep(rows: SweepRows, *, recovery: float, clean_loss: float) -> TrainingSweep:
    """The sweep behind the rows.

    Raises ArgumentError: A run lacks a level, has one twice, or has no unaugmented reference.
    """
    levels = np.unique(rows.level)
    if len(levels) < 2 or levels[0] != 0:
        found = ", ".join(f"{level:g}" for level in levels)
        wrong = f"found {found}; wanted 0, the reference, and at least one more"
        raise ArgumentError("level", wrong)
    runs = []
    for (family, task, run), cells in rows.by("family", "task", "run"):
        cell = cells.where(np.argsort(cells.level, kind="stable"))
        title = f"{family + ', ' if family else ''}{task}, run {run}"
        for level in levels:
            if (times := int((cell.level == level).sum())) != 1:
                why = "wanted 1: onset is counted in steps of a grid that all runs share"
                raise ArgumentError("level", f"{title} has {times} rows of level {level:g}, {why}")
        clean, clean_sd = _clean_success(title, cell)
        noisy = cell.success_noisy
        required = required_success(noisy, clean, recovery=recovery, clean_loss=clean_loss)
        recovered = meets_criterion(noisy, clean, required)
        measured = (_relative_ir(title, cell), clean, clean_sd, required, recovered)
        runs.append(Run(family, task, run, cell, *measured))
    return TrainingSweep(tuple(levels.tolist()), tuple(runs))


def _clean_success(cell: str, rows: SweepRows) -> tuple[Numbers, Numbers]:
    try:
        found = clean_success(rows.success_clean, rows.success_clean_seeds)
    except ArgumentError as error:
        raise ArgumentError(error.field, f"{cell}: {error.description}") from error
    if np.isnan(found[0]).any():
        wrong = f"{cell}: is missing; give it, or success_clean_seeds, in all rows"
        raise ArgumentError("success_clean", wrong)
    return found


def _relative_ir(cell: str, rows: SweepRows) -> Numbers:
    """Eq. ir-relative in the paper, or what the rows hold already."""
    raw, relative = np.isfinite(rows.ir_raw), np.isfinite(rows.ir_rel)
    if raw.all() and not relative.any():
        if rows.ir_raw[0] == 0:
            raise ArgumentError("ir_raw", f"{cell}: is 0 at level 0, so relative IR has no value")
        return np.asarray(rows.ir_raw / rows.ir_raw[0])
    if not relative.all() or raw.any():
        raise ArgumentError("ir_rel", f"{cell}: wanted ir_raw in all rows or ir_rel in all rows")
    if abs(rows.ir_rel[0] - 1) > 1e-6:
        wrong = f"{cell}: found {rows.ir_rel[0]:g} at level 0, wanted 1: it is the reference"
        raise ArgumentError("ir_rel", wrong)
    return rows.ir_rel
