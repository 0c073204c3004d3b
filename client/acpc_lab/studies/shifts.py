"""Cross-shift comparison: does the change of S agree with the change in behaviour?"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Annotated

import numpy as np
from acpc.contract import Record
from acpc_client.errors import ArgumentError
from numpy.typing import NDArray

from acpc_lab.studies.base import SLACK, Confusion, Parameters, as_float, or_none, records, spearman
from acpc_lab.studies.success import Interval, gain_interval
from acpc_lab.tables import Arrays, Column, Numbers, Rows, Texts

EPS_SCORE = 1e-12
"""Stabiliser of the screen score, epsilon_score in the paper."""


@dataclass(frozen=True, eq=False)
class ShiftRows(Rows):
    """A row per pair of checkpoints and shift: the augmented one against its reference."""

    task: Annotated[Texts, Column("task")]
    run: Annotated[Texts, Column("training run, for example its seed")]
    shift: Annotated[Texts, Column("visual shift, for example blur")]
    ir_rel: Annotated[Numbers, Column("relative IR of the augmented checkpoint", low=0)]
    sr: Annotated[Numbers, Column("SR of the augmented checkpoint", low=0, high=1)]
    sr_reference: Annotated[
        Numbers,
        Column("SR of the reference; needed only where t_IR > 0.5", low=0, high=1, optional=True),
    ]
    success_gain: Annotated[
        Numbers, Column("success under the shift minus the reference's, in points", -100, 100)
    ]
    clean_gain: Annotated[
        Numbers,
        Column("clean success minus the reference's, in points [0]", -100, 100, optional=True),
    ]
    t_ir: Annotated[Numbers, Column("threshold of relative IR for this task", 0, optional=True)]
    t_sr: Annotated[Numbers, Column("threshold of SR for this task", 0, 1, optional=True)]
    family: Annotated[Texts, Column("model family, whose thresholds are taken", optional=True)]
    success: Annotated[
        Numbers,
        Column("success of the augmented checkpoint under the shift, in %", 0, 100, optional=True),
    ]
    episodes: Annotated[
        Numbers, Column("episodes behind each success rate, for intervals", low=1, optional=True)
    ]


@dataclass(frozen=True)
class ShiftParameters(Parameters):
    """The comparison, section "Threshold Protocol" in the paper.

    Attributes:
        t_ir: Threshold of relative IR where a row has none.
        t_sr: Threshold of SR where a row has none.
        gain: Points of success under the shift that count as better.
        clean_loss: Points of clean success that may be lost.
        boundary: Pairs that miss ``gain`` by at most so many points, with a positive change of S,
            are boundary cases.
    """

    t_ir: float = 0.30
    t_sr: float = 0.95
    gain: float = 5.0
    clean_loss: float = 5.0
    boundary: float = 1.0

    def __post_init__(self) -> None:
        self.require("t_ir", self.t_ir > 0, "a positive number")
        self.require("t_sr", 0 < self.t_sr <= 1, "a number in (0, 1]")
        self.require("gain", self.gain > 0, "a positive number")
        self.require("clean_loss", self.clean_loss >= 0, "a number of at least 0")
        self.require("boundary", self.boundary >= 0, "a number of at least 0")


@dataclass(frozen=True, repr=False, eq=False)
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
        gain_interval: 95 % interval of ``success_gain``; None where the row does not tell success
            and episodes.
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


@dataclass(frozen=True, repr=False, eq=False)
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


@dataclass(frozen=True, repr=False, eq=False)
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
        raise ArgumentError(
            "sr_reference",
            f"row {row + 1}: is missing, where t_IR is {t_ir[row]:g}; only a t_IR of at most 0.5 "
            "makes S of the reference independent of it",
        )
    return screen_score(np.ones_like(sr), np.where(np.isnan(sr), 0.0, sr), t_ir, t_sr)


def summarise(rows: ShiftRows, parameters: ShiftParameters, arrays: Arrays) -> ShiftSummary:
    """Section "Checkpoint Comparison under Blur and Resize" in the paper.

    Raises:
        ArgumentError: A row is there twice, or the SR of a reference is missing where it matters.
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
    delta = score - of_reference
    kept = np.nan_to_num(rows.clean_gain, nan=0.0) >= -parameters.clean_loss - SLACK
    better = (rows.success_gain >= parameters.gain - SLACK) & kept
    near = rows.success_gain >= parameters.gain - parameters.boundary - SLACK
    boundary = near & kept & ~better & (delta > 0)
    rises = np.nan_to_num(rows.clean_gain, nan=0.0) >= parameters.gain - SLACK
    everything = np.ones(len(rows), dtype=bool)
    kinds = dict.fromkeys(rows.shift.tolist())
    chosen = [("all", everything), *((name, rows.shift == name) for name in kinds)]
    return ShiftSummary(
        pairs=records(
            ShiftPair,
            rows.task,
            rows.run,
            rows.shift,
            score,
            of_reference,
            delta,
            rows.success_gain,
            better,
            boundary,
            rows.family,
            or_none(rows.clean_gain),
            rises,
            _gain_intervals(rows),
        ),
        agreement=tuple(
            _agreement(name, delta[mask], rows.success_gain[mask], better[mask], boundary[mask])
            for name, mask in chosen
        ),
    )


def _gain_intervals(rows: ShiftRows) -> NDArray[np.object_]:
    """Of every row, or None."""
    found = np.empty(len(rows), dtype=object)
    cells = zip(rows.success, rows.success_gain, rows.episodes, strict=True)
    for row, (success, gain, episodes) in enumerate(cells):
        told = math.nan if math.isnan(success) else episodes
        found[row] = gain_interval(success, success - gain, told)
    return found


def _agreement(
    shift: str,
    delta: Numbers,
    gain: Numbers,
    better: NDArray[np.bool_],
    boundary: NDArray[np.bool_],
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
