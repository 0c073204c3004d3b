"""Cross-shift comparison: does the change of S agree with the change in behaviour?"""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from acpc.contract import Record, bounded, columns_of, screen_score
from acpc_client.errors import ArgumentError

from acpc_lab.plotting import INK, hue, panels, zero_line
from acpc_lab.studies import statistics
from acpc_lab.studies.base import Evidence, Figures, Parameters, RunRows, Study
from acpc_lab.studies.figures import AGREEMENT, RUN, Listing, family_column
from acpc_lab.studies.thresholds import ThresholdSummary
from acpc_lab.tables import Arrays, Numbers, Texts, column, optional


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
    episodes: Numbers = optional(statistics.EPISODES, low=1)


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
        score: S of the augmented checkpoint; ``reference_score``: of the reference.
        delta_score: Their difference; positive favours the augmented checkpoint.
        success_gain: In points.
        better: Whether the success criterion is met.
        boundary: Just short of the criterion, with a positive difference.
        clean_gain: Clean success minus the reference's, in points; None: it is not given.
        clean_rises: It is ``gain`` or more, too, so that the gain under the shift cannot be
            attributed to robustness alone.
        gain_interval: 95 % interval of ``success_gain``; None: no success or no episodes.
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
    gain_interval: statistics.Interval | None

    @property
    def agrees(self) -> bool:
        """Whether the sign of the difference tells what the behaviour does."""
        return (self.delta_score > 0) == self.better


class ShiftAgreement(Record):
    """Agreement over the pairs of one shift, or over all.

    In ``agreeing`` pairs the sign of delta S matches the criterion. Precision is None when no delta
    S is positive, recall when no pair meets the criterion; Spearman is NaN when a side is constant.
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


def summarise(rows: ShiftRows, parameters: ShiftParameters, arrays: Arrays) -> ShiftSummary:
    """Section "Checkpoint Comparison under Blur and Resize" in the paper.

    Raises ArgumentError: A row is there twice, or lacks the SR of a reference where it matters.
    """
    rows.require_unique("family", "task", "run", "shift")
    pairs = [_pair(number, row, parameters) for number, row in enumerate(rows.each(), start=1)]
    by_shift = [
        ("all", pairs),
        *((key, held) for (key,), held in statistics.grouped(pairs, "shift").items()),
    ]
    return ShiftSummary(tuple(pairs), tuple(_agreement(*held) for held in by_shift))


def _pair(number: int, row: Any, parameters: ShiftParameters) -> ShiftPair:  # noqa: ANN401 - of Rows
    """The pair of a row.

    The reference's relative IR is 1: its IR term is (t_IR - 1) / t_IR, and its SR term is never
    below -1. Where t_IR <= 0.5 the IR term is at most -1 and decides alone, whatever SR is.
    """
    limits = {name: getattr(row, name) for name in ("t_ir", "t_sr")}
    for name, value in limits.items():
        limits[name] = getattr(parameters, name) if math.isnan(value) else value
        if value == 0:
            raise ArgumentError(name, f"row {number}: found 0, wanted a positive number")
    if math.isnan(row.sr_reference) and limits["t_ir"] > 0.5:
        why = "only a t_IR of at most 0.5 makes S of the reference independent of it"
        wrong = f"row {number}: is missing, where t_IR is {limits['t_ir']:g}; {why}"
        raise ArgumentError("sr_reference", wrong)
    sr_reference = 0.0 if math.isnan(row.sr_reference) else row.sr_reference
    score = screen_score(row.ir_rel, row.sr, **limits)
    of_reference = screen_score(1.0, sr_reference, **limits)
    gain, delta = row.success_gain, score - of_reference
    clean_gain = 0.0 if math.isnan(row.clean_gain) else row.clean_gain
    kept = clean_gain >= -parameters.clean_loss - statistics.SLACK
    better = kept and gain >= parameters.gain - statistics.SLACK
    near = kept and gain >= parameters.gain - parameters.boundary - statistics.SLACK
    episodes = math.nan if math.isnan(row.success) else row.episodes
    return ShiftPair(
        task=row.task,
        run=row.run,
        shift=row.shift,
        score=score,
        reference_score=of_reference,
        delta_score=delta,
        success_gain=gain,
        better=better,
        boundary=near and not better and delta > 0,
        family=row.family,
        clean_gain=None if math.isnan(row.clean_gain) else row.clean_gain,
        clean_rises=clean_gain >= parameters.gain - statistics.SLACK,
        gain_interval=statistics.gain_interval(row.success, row.success - gain, episodes),
    )


def _agreement(shift: str, pairs: Sequence[ShiftPair]) -> ShiftAgreement:
    columns = columns_of(pairs, "delta_score", "success_gain", "better", "boundary")
    delta, gain, better, boundary = map(np.array, columns.values())
    counts = statistics.Confusion.of(delta > 0, better)
    return ShiftAgreement(
        shift=shift,
        pairs=len(pairs),
        agreeing=counts.true_positive + counts.true_negative,
        balanced_accuracy=float(counts.balanced_accuracy),
        precision=statistics.as_float(counts.precision),
        recall=statistics.as_float(counts.recall),
        spearman=statistics.spearman(delta, gain),
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
    asked = [(row.family or alone, (row.task,)) for row in rows.each()]
    for key in asked:
        if key not in chosen:
            known = ", ".join(f"{family} {test[0]}".strip() for family, test in chosen)
            found = f"{key[0]} {key[1][0]}".strip()
            raise ArgumentError("task", f"found {found}, where the threshold study has {known}")
    pairs = np.array([chosen[key] for key in asked])  # (rows, 2)
    return dataclasses.replace(rows, t_ir=pairs[:, 0], t_sr=pairs[:, 1])


def shown(summary: ShiftSummary) -> Iterator[str | Listing]:
    """The pairs, and how far the change of S agrees with the behaviour, by shift."""
    columns = (
        *family_column(summary.pairs),
        *RUN,
        ("shift", "shift"),
        ("S", "score", ".3f"),
        ("delta S", "delta_score", ".3f"),
        ("success gain", _gain),
        ("criterion", lambda pair: "met" if pair.better else "not met"),
        ("agrees", lambda p: "boundary" if p.boundary else "yes" if p.agrees else "no"),
    )
    yield Listing(summary.pairs, columns)
    yield "S: the smaller of the margins to both thresholds; delta S: above the reference's S"
    rising = dict.fromkeys(f"{pair.task} {pair.run}" for pair in summary.pairs if pair.clean_rises)
    if rising:
        yield f"clean success rises too in {', '.join(rising)}: the gain is not robustness alone"
    counted, ranked = (("shift", "shift"), ("pairs", "pairs")), ("Spearman", "spearman", ".3f")
    columns = (*counted, *AGREEMENT, ranked, ("boundary", "boundary"))
    yield Listing(summary.agreement, columns)


def _gain(pair: ShiftPair) -> str:
    """Writes a gain in points, with its 95 % interval where the rows have episodes."""
    ends = "" if pair.gain_interval is None else " [{:+.0f}, {:+.0f}]".format(*pair.gain_interval)
    return f"{pair.success_gain:+.1f}{ends}"


def draw(made: Evidence) -> Figures:
    """Means over runs by task and shift: behaviour on the left, the diagnostic on the right."""
    pairs, (figure, axes) = made.summary.pairs, panels(2, width=3.0)
    shifts, tasks = map(dict.fromkeys, columns_of(pairs, "shift", "task").values())
    by_bar, width = statistics.grouped(pairs, "shift", "task"), 0.8 / len(shifts)
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
    return {"bars": figure}


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
    draw=draw,
)
