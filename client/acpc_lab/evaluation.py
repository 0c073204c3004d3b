"""Closed-loop evaluation: what a planner achieves through a checkpoint, as rows for the studies.

``sweep_rows`` and ``shift_rows`` put its successes beside IR and SR, as the threshold and the
cross-shift study take them. docs/studies/closed-loop.md shows it.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from acpc_client import Identity, Perturbation, Score
from acpc_client.errors import ArgumentError

from acpc_lab.studies import LevelRows, ShiftRows, StudyCheckpoint, SweepRows
from acpc_lab.tables import Integers, Texts, column


class SuccessRows(LevelRows):
    """A row per checkpoint, shift and evaluation seed."""

    checkpoint: Texts = column("checkpoint, with its weights file where it has several")
    shift: Texts = column("visual shift in its short form; identity: clean")
    seed: Integers = column("evaluation seed", low=0)
    episodes: Integers = column("episodes of the seed", low=1)
    successes: Integers = column("episodes that reach the goal", low=0)


Scores = Iterable[tuple[StudyCheckpoint, Score]]
"""Each checkpoint with its score under one shift, on one set of anchors."""


def sweep_rows(scores: Scores, success: SuccessRows, shift: Perturbation) -> SweepRows:
    """Rows of the threshold study: a training sweep under one shift.

    Args:
        scores: Of every checkpoint under the shift.
        success: Of every checkpoint under the shift and on clean observations.
        shift: The shift.

    Raises ArgumentError: A checkpoint was not evaluated.
    """
    rates = _rates(success)
    rows = []
    for row, score in scores:
        noisy, clean = _of(rates, row, shift), _of(rates, row, Identity())
        cells = {
            "task": row.task,
            "run": row.run,
            "level": row.level,
            "ir_raw": score.checkpoint.ir_raw,
            "sr": score.checkpoint.sr,
            "success_noisy": _percent(noisy),
            "success_clean_seeds": " ".join(
                f"{percent:g}" for percent in 100 * clean.successes / clean.episodes
            ),
            "episodes": _shared_episodes(noisy, clean),
        }
        digests = ("checkpoint", "anchors", "perturbation", "parameters")
        receipt = {f"{x}_digest": getattr(score.receipt, f"{x}_digest") for x in digests}
        rows.append(cells | receipt)
    return SweepRows.of(_columns(rows))


def shift_rows(
    scores: Mapping[Perturbation, Sequence[tuple[StudyCheckpoint, Score]]], success: SuccessRows
) -> ShiftRows:
    """Rows of the cross-shift study: an augmented checkpoint of each run against its level 0.

    Args:
        scores: Of both checkpoints of every run, by shift.
        success: Of every checkpoint under every shift and on clean observations.

    Raises ArgumentError: A checkpoint was not evaluated, or its run has no reference.
    """
    rates = _rates(success)
    rows = []
    for shift, measured in scores.items():
        references = {(r.task, r.run): (r, score) for r, score in measured if r.level == 0}
        for row, score in measured:
            if row.level == 0:
                continue
            if (row.task, row.run) not in references:
                raise ArgumentError("level", f"{row.task}, run {row.run}: level 0 is missing")
            other, reference = references[row.task, row.run]
            ours, theirs = _of(rates, row, shift), _of(rates, other, shift)
            clean = [_percent(_of(rates, checkpoint, Identity())) for checkpoint in (row, other)]
            rate = _percent(ours)
            cells = {
                "task": row.task,
                "run": row.run,
                "shift": str(shift),
                "ir_rel": score.checkpoint.ir_raw / reference.checkpoint.ir_raw,
                "sr": score.checkpoint.sr,
                "sr_reference": reference.checkpoint.sr,
                "success": rate,
                "success_gain": rate - _percent(theirs),
                "clean_gain": clean[0] - clean[1],
                "episodes": _shared_episodes(ours, theirs),
            }
            rows.append(cells)
    return ShiftRows.of(_columns(rows))


def _columns(rows: Sequence[Mapping[str, Any]]) -> dict[str, list[Any]]:
    return {name: [row[name] for row in rows] for name in rows[0]} if rows else {}


_Rates = Mapping[tuple[Any, ...], SuccessRows]


def _rates(success: SuccessRows) -> _Rates:
    """The seeds of each checkpoint and shift. Raises ArgumentError: One was evaluated twice."""
    success.require_unique("task", "run", "level", "checkpoint", "shift", "seed")
    return dict(success.by("task", "run", "level", "shift"))


def _of(rates: _Rates, row: StudyCheckpoint, shift: Perturbation) -> SuccessRows:
    try:
        return rates[row.task, row.run, row.level, str(shift)]
    except KeyError:
        raise ArgumentError("success", f"{row} was not evaluated under {shift}") from None


def _percent(rows: SuccessRows) -> float:
    return 100 * int(rows.successes.sum()) / int(rows.episodes.sum())


def _shared_episodes(first: SuccessRows, second: SuccessRows) -> float:
    """How many episodes both rates were counted over; NaN where the numbers differ."""
    counts = {int(rows.episodes.sum()) for rows in (first, second)}
    return counts.pop() if len(counts) == 1 else math.nan
