"""Cross-shift comparison: does the change of S agree with the change in behaviour?"""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np
from acpc.contract import Record, bounded, columns_of
from acpc_client.errors import ArgumentError

from acpc_lab.plotting import INK, hue, panels, zero_line
from acpc_lab.studies.base import Evidence, Listing, Parameters, RunRows, Study, family_column
from acpc_lab.studies.statistics import (
    EPISODES,
    SLACK,
    Confusion,
    Interval,
    Mask,
    as_float,
    gain_interval,
    grouped,
    or_none,
    records,
    spearman,
)
from acpc_lab.studies.thresholds import ThresholdSummary
from acpc_lab.tables import Arrays, Numbers, Texts, column, optional

if TYPE_CHECKING:
    from matplotlib.figure import Figure

EPS_SCORE = 1e-12
"""Stabiliser of the screen score, epsilon_score in the paper."""


class ShiftRows(RunRows):
    """A row per pair of checkpoints and shift: the augmented one against its reference."""

    shift: Texts = column("visual shift, for example blur")
    ir_rel: Numbers = column("relative IR of the augmented checkpoint", low=0)
    sr: Numbers = column("SR of the augmented checkpoint", 0, 1)
    sr_reference: Numbers = optional("SR of the reference; needed only where t_IR > 0.5", 0, 1)
    success_gain: Numbers = column(
        "success under the shift minus the reference's, in points", -100, 100
    )
    clean_gain: Numbers = optional("clean success minus the reference's, in points [0]", -100, 100)
    t_ir: Numbers = optional("threshold of relative IR for this task", 0)
    t_sr: Numbers = optional("threshold of SR for this task", 0, 1)
    family: Texts = optional("model family, whose thresholds are taken")
    success: Numbers = optional("success of the augmented checkpoint under the shift, in %", 0, 100)
    episodes: Numbers = optional(EPISODES, low=1)


class ShiftParameters(Parameters):
    """The comparison, section "Threshold Protocol" in the paper.

    Attributes:
        t_ir: Threshold of relative IR where a row has none.
        t_sr: Threshold of SR where a row has none.
        gain: Points of success under the shift that count as better.
        clean_loss: Points of clean success that may be lost.
        boundary: Points by which a boundary case, with a positive change of S, may miss the gain.
    """

    t_ir: float = bounded(0.30, gt=0)
    t_sr: float = bounded(0.95, gt=0, le=1)
    gain: float = bounded(5.0, gt=0)
    clean_loss: float = bounded(5.0, ge=0)
    boundary: float = bounded(1.0, ge=0)


class ShiftPair(Record):
    """One pair of checkpoints under one shift.

    Attributes:
        score: S of the augmented checkpoint.
        reference_score: S of the reference, whose relative IR is 1.
        delta_score: Their difference; positive favours the augmented checkpoint.
        success_gain: In points.
        better: Whether the success criterion is met.
        boundary: Just short of the criterion, with a positive difference.
        clean_gain: Clean success minus the reference's, in points; None where it is not given.
        clean_rises: Clean success rises by ``gain`` points or more, too, so that the gain under
            the shift cannot be attributed to robustness alone.
        gain_interval: 95 % interval of ``success_gain``; None where the row lacks success or
            episodes.
    """

    task: str
    run: str
    shift: str
    score: float
    reference_score: float
    delta_score: float
    success_gain: float
    better: bool
    boundary: bool
    family: str
    clean_gain: float | None
    clean_rises: bool
    gain_interval: Interval | None

    @property
    def agrees(self) -> bool:
        """Whether the sign of the difference tells what the behaviour does."""
        return (self.delta_score > 0) == self.better


class ShiftAgreement(Record):
    """Agreement over the pairs of one shift, or over all.

    Attributes:
        agreeing: Pairs in which the sign of delta S matches the criterion.
        precision: None when no delta S is positive.
        recall: None when no pair meets the criterion.
        spearman: Of delta S and the success gain, average ranks; NaN when one is constant.
    """

    shift: str
    pairs: int
    agreeing: int
    balanced_accuracy: float
    precision: float | None
    recall: float | None
    spearman: float
    boundary: int


class ShiftSummary(Record):
    """The answer of the cross-shift comparison; ``agreement`` begins with all pairs."""

    pairs: tuple[ShiftPair, ...]
    agreement: tuple[ShiftAgreement, ...]


def screen_score(ir_rel: Numbers, sr: Numbers, t_ir: Numbers, t_sr: Numbers) -> Numbers:
    """S, Eq. ir-sr-score in the paper; nonnegative exactly when both requirements hold."""
    score: Numbers = np.minimum(
        (t_ir - ir_rel) / (np.abs(t_ir) + EPS_SCORE), (sr - t_sr) / (np.abs(t_sr) + EPS_SCORE)
    )
    return score


def reference_score(sr: Numbers, t_ir: Numbers, t_sr: Numbers) -> Numbers:
    """S of a reference, whose relative IR is 1 by definition.

    Its IR term is (t_IR - 1) / t_IR, and its SR term is never below -1. Where t_IR <= 0.5 the IR
    term is at most -1 and decides alone, so SR may be NaN there. Raises ArgumentError: SR is NaN
    where it matters.
    """
    undecided = np.isnan(sr) & (t_ir > 0.5)
    if undecided.any():
        row = int(np.argmax(undecided))
        why = "only a t_IR of at most 0.5 makes S of the reference independent of it"
        wrong = f"row {row + 1}: is missing, where t_IR is {t_ir[row]:g}; {why}"
        raise ArgumentError("sr_reference", wrong)
    return screen_score(np.ones_like(sr), np.where(np.isnan(sr), 0.0, sr), t_ir, t_sr)


def summarise(rows: ShiftRows, parameters: ShiftParameters, arrays: Arrays) -> ShiftSummary:
    """Section "Checkpoint Comparison under Blur and Resize" in the paper.

    Raises ArgumentError: A row is there twice, or the SR of a reference is missing where it
    matters.
    """
    rows.require_unique("family", "task", "run", "shift")
    t_ir = np.where(np.isnan(rows.t_ir), parameters.t_ir, rows.t_ir)
    t_sr = np.where(np.isnan(rows.t_sr), parameters.t_sr, rows.t_sr)
    for name, values in (("t_ir", t_ir), ("t_sr", t_sr)):
        if not values.all():
            row = int(np.argmin(values)) + 1
            raise ArgumentError(name, f"row {row}: found 0, wanted a positive number")
    score = screen_score(rows.ir_rel, rows.sr, t_ir, t_sr)
    of_reference = reference_score(rows.sr_reference, t_ir, t_sr)
    gain, clean_gain = rows.success_gain, np.nan_to_num(rows.clean_gain, nan=0.0)
    delta = score - of_reference
    kept = clean_gain >= -parameters.clean_loss - SLACK
    better = (gain >= parameters.gain - SLACK) & kept
    near = gain >= parameters.gain - parameters.boundary - SLACK
    boundary = near & kept & ~better & (delta > 0)
    rises = clean_gain >= parameters.gain - SLACK
    named, scores = (rows.task, rows.run, rows.shift), (score, of_reference, delta)
    intervals = np.empty(len(rows), dtype=object)
    counted = np.where(np.isnan(rows.success), np.nan, rows.episodes)
    for row, (rate, more, episodes) in enumerate(zip(rows.success, gain, counted, strict=True)):
        intervals[row] = gain_interval(rate, rate - more, episodes)
    clean = (or_none(rows.clean_gain), rises, intervals)
    kinds = dict.fromkeys(rows.shift.tolist())
    chosen = [("all", np.ones(len(rows), dtype=bool)), *((k, rows.shift == k) for k in kinds)]
    return ShiftSummary(
        records(ShiftPair, *named, *scores, gain, better, boundary, rows.family, *clean),
        tuple(_agreement(k, delta[m], gain[m], better[m], boundary[m]) for k, m in chosen),
    )


def _agreement(
    shift: str, delta: Numbers, gain: Numbers, better: Mask, boundary: Mask
) -> ShiftAgreement:
    counts = Confusion.of(delta > 0, better)
    return ShiftAgreement(
        shift=shift,
        pairs=len(delta),
        agreeing=counts.true_positive + counts.true_negative,
        balanced_accuracy=float(counts.balanced_accuracy),
        precision=as_float(counts.precision),
        recall=as_float(counts.recall),
        spearman=spearman(delta, gain) if len(delta) > 1 else math.nan,
        boundary=int(boundary.sum()),
    )


def chosen_elsewhere(rows: ShiftRows, evidence: Evidence) -> ShiftRows:
    """The rows with the thresholds that were chosen on all tasks but each row's own.

    Those of the row's model family; a row that names none takes those of the only family. Raises
    ArgumentError: It is no threshold study, or it lacks a family or task of the rows.
    """
    summary = evidence.summary
    if not isinstance(summary, ThresholdSummary):
        wrong = f"come from a threshold study; this is a study of {evidence.study.name}"
        raise ArgumentError("thresholds", wrong)
    chosen = {(s.family, s.test): (s.t_ir, s.t_sr) for s in summary.splits if len(s.test) == 1}
    alone = summary.families[0].family if len(summary.families) == 1 else ""
    cells = zip(rows.family.tolist(), rows.task.tolist(), strict=True)
    asked = [(family or alone, (task,)) for family, task in cells]
    for key in asked:
        if key not in chosen:
            known = ", ".join(f"{family} {test[0]}".strip() for family, test in chosen)
            found = f"{key[0]} {key[1][0]}".strip()
            raise ArgumentError("task", f"found {found}, where the threshold study has {known}")
    pairs = np.array([chosen[key] for key in asked])  # (rows, 2)
    return dataclasses.replace(rows, t_ir=pairs[:, 0], t_sr=pairs[:, 1])


def shown(summary: ShiftSummary) -> Iterator[str | Listing]:
    """The pairs, and how far the change of S agrees with the behaviour, by shift."""
    yield Listing(
        summary.pairs,
        (
            *family_column(summary.pairs),
            ("task", "task"),
            ("run", "run"),
            ("shift", "shift"),
            ("S", "score", ".3f"),
            ("delta S", "delta_score", ".3f"),
            ("success gain", _gain),
            ("criterion", lambda pair: "met" if pair.better else "not met"),
            ("agrees", lambda p: "boundary" if p.boundary else "yes" if p.agrees else "no"),
        ),
    )
    yield "S: the smaller of the margins to both thresholds; delta S: above the reference's S"
    rising = dict.fromkeys(f"{pair.task} {pair.run}" for pair in summary.pairs if pair.clean_rises)
    if rising:
        yield f"clean success rises too in {', '.join(rising)}: the gain is not robustness alone"
    yield Listing(
        summary.agreement,
        (
            ("shift", "shift"),
            ("pairs", "pairs"),
            ("BA", "balanced_accuracy", ".3f"),
            ("precision", "precision", ".3f"),
            ("recall", "recall", ".3f"),
            ("Spearman", "spearman", ".3f"),
            ("boundary", "boundary"),
        ),
    )


def _gain(pair: ShiftPair) -> str:
    """Writes a gain in points, with its 95 % interval where the rows have episodes."""
    ends = "" if pair.gain_interval is None else " [{:+.0f}, {:+.0f}]".format(*pair.gain_interval)
    return f"{pair.success_gain:+.1f}{ends}"


def shift_bars(pairs: Sequence[ShiftPair]) -> Figure:
    """Means over runs by task and shift: behaviour on the left, the diagnostic on the right."""
    figure, axes = panels(2, width=3.0)
    shifts, tasks = map(dict.fromkeys, columns_of(pairs, "shift", "task").values())
    by_bar, width = grouped(pairs, "shift", "task"), 0.8 / len(shifts)
    for (index, shift), (place, task) in itertools.product(enumerate(shifts), enumerate(tasks)):
        at, named = place + (index - (len(shifts) - 1) / 2) * width, None if place else shift
        mine = columns_of(by_bar.get((shift, task), ()), "success_gain", "delta_score")
        for axis, values in zip(axes, mine.values(), strict=True):
            if values:
                axis.bar(at, np.mean(values), 0.9 * width, color=hue(index), label=named)
                axis.plot([at] * len(values), values, ".", color=INK, markersize=3)
    for axis, label in zip(axes, ("success (points)", "the screen score S"), strict=True):
        axis.set_xticks(range(len(tasks)), tasks)
        axis.set_ylabel(f"change of {label}")
        zero_line(axis)
    axes[0].legend()
    return figure


STUDY = Study(
    "shifts",
    "Does the change of the screen score agree with the change in behaviour?",
    summarise,
    shown,
    "over 24 pairs BA 0.889, precision 0.882, recall 1.000, Spearman 0.835; 2 boundary cases",
    (
        "acpc study run shifts --rows paper",
        "acpc study run shifts --rows pairs.csv --thresholds-from thresholds/ --out shifts/",
    ),
    about="A row compares an augmented checkpoint with its unaugmented reference under a shift "
    "such as blur. Thresholds stand in the columns `t_ir` and `t_sr`, come from a threshold study "
    "(for each task, the pair chosen on all other tasks), or are the same for all.",
    draw=lambda made: {"bars": shift_bars(made.summary.pairs)},
)
