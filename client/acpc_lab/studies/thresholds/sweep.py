"""Reads a training sweep: rows, runs, and which checkpoints meet the success-rate criterion."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from acpc.contract import bounded
from acpc_client.errors import ArgumentError

from acpc_lab.studies.base import LevelRows, Parameters, by_reading
from acpc_lab.studies.statistics import CLEAN_SEEDS, EPISODES, SLACK, Mask, clean_success, grouped
from acpc_lab.tables import Numbers, Texts, column, optional

PAST = "past"


class SweepRows(LevelRows):
    """A row per checkpoint of a training sweep, under one visual shift."""

    ir_raw: Numbers = optional("raw IR; either this or ir_rel", low=0)
    ir_rel: Numbers = optional("IR relative to level 0 of the run", low=0)
    sr: Numbers = column("separation rate", 0, 1)
    success_noisy: Numbers = column("success under the shift, in %", 0, 100)
    success_clean: Numbers = optional(
        "success on clean views, in %; or success_clean_seeds", 0, 100
    )
    success_clean_seeds: Texts = optional(CLEAN_SEEDS)
    different_label_distance: Numbers = optional("median distance of different-label pairs", low=0)
    family: Texts = optional("model family; thresholds are chosen in each")
    episodes: Numbers = optional(EPISODES, low=1)
    checkpoint_digest: Texts = optional("these four of the score's receipt, kept with thresholds")
    anchors_digest: Texts = optional("of the anchors")
    perturbation_digest: Texts = optional("of shift, draws and seed")
    parameters_digest: Texts = optional("of the protocol")


class ThresholdParameters(Parameters):
    """The search, section "Threshold grids" in the paper.

    Attributes:
        ir_grid: Thresholds of relative IR to try.
        sr_grid: Thresholds of SR to try.
        recovery: Share of the possible improvement that counts as recovered.
        clean_loss: Points of clean success that may be lost.
        clean_gain: Points by which clean success of a recovered level exceeds the unaugmented
            checkpoint's where recovery is not robustness alone.
        reading: Reading of the protocol: the paper's letter, or the authors' released code; decides
            the two below where they are None.
        ties: What early and late acceptances count: ``runs`` (the paper), or ``checkpoints``
            accepted below the first recovered level, and recovered but rejected (the released
            code). In a run that recovers nowhere no checkpoint is early.
        no_onset: What a missing onset counts: ``past``, one grid step past the last level (the
            paper does not say), or a distance in units of the level, in which all onsets then
            differ (the released code: 1.0).
    """

    ir_grid: tuple[float, ...] = bounded((0.05, 0.075, 0.10, 0.15, 0.20, 0.30), gt=0)
    sr_grid: tuple[float, ...] = bounded((0.80, 0.85, 0.90, 0.95), gt=0, le=1)
    recovery: float = bounded(0.8, gt=0, le=1)
    clean_loss: float = bounded(5.0, ge=0)
    clean_gain: float = bounded(5.0, gt=0)
    reading: str = "paper"
    ties: str | None = by_reading(paper="runs", released="checkpoints")
    no_onset: str | float | None = by_reading(paper=PAST, released=1.0)

    def check_rules(self) -> None:
        """A grid holds something, and a distance is positive."""
        for name in ("ir_grid", "sr_grid"):
            if not getattr(self, name):
                raise ArgumentError(name, "is empty, wanted at least one number")
        given = self.no_onset
        if given not in (None, PAST) and (isinstance(given, str) or not 0 < given < math.inf):
            raise ArgumentError("no_onset", f"found {given!r}, wanted {PAST} or a positive number")


@dataclass(frozen=True, eq=False)
class Run:
    """One task and training run; arrays over the levels of the sweep, success in %.

    Clean success is the mean over evaluation seeds where these are given, which alone have
    ``clean_sd``. ``required`` is what the criterion asks for, under the shift and on clean views.
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
        held = grouped(self.runs, "family")
        return {name: TrainingSweep(self.levels, tuple(runs)) for (name,), runs in held.items()}

    def by_task(self) -> dict[str, list[Run]]:
        """The runs of each task; of a sweep of one family."""
        return {name: runs for (name,), runs in grouped(self.runs, "task").items()}


def criterion(
    noisy: Numbers, clean: Numbers, parameters: ThresholdParameters
) -> tuple[tuple[float, float], Mask]:
    """What the paper's success-rate criterion asks for in a run, and which checkpoints meet it.

    It asks for P_base + ``recovery`` (P_best - P_base) under the shift, and on clean views for that
    of the unaugmented checkpoint, the first, less ``clean_loss`` points; all in %. The unaugmented
    checkpoint meets it only when no checkpoint of the run does better.
    """
    wanted = float(noisy[0] + parameters.recovery * (noisy.max() - noisy[0]))
    kept = float(clean[0] - parameters.clean_loss)
    return (wanted, kept), (noisy >= wanted - SLACK) & (clean >= kept - SLACK)


def read_training_sweep(rows: SweepRows, parameters: ThresholdParameters) -> TrainingSweep:
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
        try:
            clean, clean_sd = clean_success(cell.success_clean, cell.success_clean_seeds)
            if np.isnan(clean).any():
                wrong = "is missing; give it, or success_clean_seeds, in all rows"
                raise ArgumentError("success_clean", wrong)
            ir_rel = _relative_ir(cell.ir_raw, cell.ir_rel)
        except ArgumentError as error:
            raise ArgumentError(error.field, f"{title}: {error.description}") from error
        required, recovered = criterion(cell.success_noisy, clean, parameters)
        measured = (ir_rel, clean, clean_sd, required, recovered)
        runs.append(Run(family, task, run, cell, *measured))
    return TrainingSweep(tuple(levels.tolist()), tuple(runs))


def _relative_ir(raw: Numbers, relative: Numbers) -> Numbers:
    """Eq. ir-relative in the paper, or what the rows hold already."""
    if np.isfinite(raw).all() and not np.isfinite(relative).any():
        if raw[0] == 0:
            raise ArgumentError("ir_raw", "is 0 at level 0, so relative IR has no value")
        return np.asarray(raw / raw[0])
    if not np.isfinite(relative).all() or np.isfinite(raw).any():
        raise ArgumentError("ir_rel", "wanted ir_raw in all rows or ir_rel in all rows")
    if abs(relative[0] - 1) > 1e-6:
        wrong = f"found {relative[0]:g} at level 0, wanted 1: it is the reference"
        raise ArgumentError("ir_rel", wrong)
    return relative
