"""Defines what a report shows: one measurement per checkpoint and shift, from any source."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from acpc.arrays import NDArray
from acpc_client import AnchorValues, Outcome, Score, ScoreProtocol

from acpc_lab.evidence import Family, FamilyWise, Sureness
from acpc_lab.sweeps import MeasuredRow


def printable(text: str) -> str:
    """The text on one line, with a sign in place of what no page or figure can show."""
    shown = (char if char.isprintable() else "\N{REPLACEMENT CHARACTER}" for char in text)
    return "".join(" " if char.isspace() else sign for char, sign in zip(text, shown, strict=True))


def dotted(*parts: str) -> str:
    """The parts that are not empty, with a dot between them."""
    return " \N{MIDDLE DOT} ".join(filter(None, parts))


def counted(number: int, noun: str) -> str:
    """A number with its noun."""
    return f"{number} {noun}{'' if number == 1 else 's'}"


def some(names: Sequence[str], most: int = 5) -> str:
    """The first few names, and how many more there are."""
    rest = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + rest


@dataclass(frozen=True)
class Measurement(MeasuredRow):
    """One checkpoint under one visual shift: a row of a sweep, with what a report adds to it.

    Attributes:
        shift: The shift in short form, for example ``gaussian_noise:0.08``.
        score: What was measured; None when the job gave no score.
        run: Training run, usually its seed.
        level: Augmentation level of the training run; 0 is unaugmented.
        success: Planning success rate under the shift, in [0, 1].
        clean_success: Planning success rate on clean frames, in [0, 1].
        problem: Why there is no score.
        protocol: How it was measured.
        anchors: At which anchors, in words.
        pending: Whether its job has not ended yet.
        of_reference: Whether it was asked to be compared with itself.
        among: How sure the verdict is among the others of a report, which sets it; None for a
            reference.
    """

    name: str
    shift: str
    score: Score | None = None
    task: str = ""
    run: str = ""
    level: float | None = None
    success: float | None = None
    clean_success: float | None = None
    problem: str = ""
    operation: str = ""
    protocol: ScoreProtocol = field(default_factory=ScoreProtocol)
    anchors: str = ""
    pending: bool = False
    of_reference: bool = False
    among: Sureness | None = None

    def __post_init__(self) -> None:
        for name in ("name", "shift", "task", "run", "problem", "operation"):
            object.__setattr__(self, name, printable(getattr(self, name)))

    @property
    def title(self) -> str:
        """Task and checkpoint."""
        return dotted(self.task, self.name)

    @property
    def values(self) -> AnchorValues | None:
        """Measurements at each anchor; None where they are not available."""
        return None if self.score is None else self.score.checkpoint.anchor_values

    @property
    def steps(self) -> NDArray[np.float64] | None:
        """Distance at each rollout step in clean motions, (n, H); None where that is not known."""
        found = None if self.values is None else self.values.step_radius
        return found if found is not None and found.ndim == 2 else None

    @property
    def wanted(self) -> float:
        """What D must exceed: raw IR plus the margin (Eq. sr in the paper); NaN without a score."""
        return self.score.checkpoint.ir_raw + self.protocol.margin if self.score else math.nan

    @property
    def outcome(self) -> Outcome | None:
        """The verdict's outcome, or None without a score."""
        return None if self.score is None else self.score.verdict.outcome

    @property
    def sure(self) -> Outcome | None:
        """The confident outcome by itself, as the intervals show it; None without evidence."""
        return None if self.evidence is None else self.evidence.confident_outcome


@dataclass(frozen=True, eq=False)
class Preview:
    """What the model saw at one anchor: uint8 (history, height, width, 3).

    Attributes:
        partner: The nearest different-state history; None where the anchor has none.
    """

    clean: NDArray[np.uint8]
    perturbed: NDArray[np.uint8]
    partner: NDArray[np.uint8] | None


@dataclass(frozen=True, eq=False)
class ReportData:
    """Everything one report is made from.

    Attributes:
        command: Command that measures all of it again.
        level_name: What the source calls the augmentation level; empty: it has no name.
        previews: Pictures by operation and anchor index.
        previews_missing: Why there are no pictures; shown in their place.
        notes: What a reader must know first, for example that cells are missing.
        focus: Names of the checkpoints whose worst anchors are shown; empty: chosen by S.
        family_wise: How verdicts are corrected for the number of measurements.
    """

    title: str
    cells: tuple[Measurement, ...]
    description: str = ""
    command: str = ""
    recipe: str = ""
    level_name: str = ""
    previews: Mapping[tuple[str, int], Preview] = field(default_factory=dict)
    previews_missing: str = ""
    notes: tuple[str, ...] = ()
    focus: tuple[str, ...] = ()
    family_wise: FamilyWise = FamilyWise.HOLM

    def __post_init__(self) -> None:
        known = iter(self.family.each())
        cells = (replace(c, among=None if c.is_reference else next(known)) for c in self.cells)
        object.__setattr__(self, "cells", tuple(cells))

    @property
    def candidates(self) -> tuple[Measurement, ...]:
        """The cells that can pass: those of other checkpoints than the reference."""
        return tuple(cell for cell in self.cells if not cell.is_reference)

    @property
    def family(self) -> Family:
        """The candidates, judged together."""
        return Family([cell.evidence for cell in self.candidates], self.family_wise)

    @property
    def corrects(self) -> bool:
        """Whether verdicts are corrected for the number of measurements."""
        return self.family_wise is FamilyWise.HOLM and len(self.candidates) > 1

    @property
    def interval_words(self) -> str:
        """How sure each interval is by itself, in words; the least sure where they differ."""
        return _least({cell.evidence.confidence for cell in self.cells if cell.evidence})

    @property
    def verdict_words(self) -> str:
        """The confidence of each verdict, which may rest on several looks, in words."""
        return _least({cell.evidence.sure for cell in self.cells if cell.evidence})

    @property
    def by_epoch(self) -> bool:
        """Whether levels are moments of a training run."""
        return self.level_name in ("epoch", "step")

    @property
    def shifts(self) -> tuple[str, ...]:
        """The shifts, in the order they first appear."""
        return tuple(dict.fromkeys(cell.shift for cell in self.cells))

    @property
    def tasks(self) -> tuple[str, ...]:
        """The tasks, in the order they first appear."""
        return tuple(dict.fromkeys(cell.task for cell in self.cells))

    @property
    def pending(self) -> int:
        """Measurements that have not ended yet."""
        return sum(cell.pending for cell in self.cells)

    @property
    def level_axis(self) -> str:
        """The level in the words of an axis."""
        return "augmentation level" if self.level_name in ("", "level") else self.level_name

    @property
    def level_words(self) -> str:
        """The level in the words of a sentence."""
        axis = self.level_axis
        return f"level ({axis})" if axis == self.level_name else axis

    @property
    def levels(self) -> list[float]:
        """The augmentation levels, each once, from weak to strong."""
        return sorted({cell.level for cell in self.cells if cell.level is not None})

    @property
    def has_levels(self) -> bool:
        """Whether there is an augmentation level to draw against."""
        return len(self.levels) > 1

    def scored(self, shift: str, task: str | None = None) -> list[Measurement]:
        """The cells of a shift, and of a task, that have a score."""
        return [
            cell
            for cell in self.cells
            if cell.shift == shift and cell.score is not None and task in (None, cell.task)
        ]

    def with_(self, **changes: Any) -> ReportData:  # noqa: ANN401 - dataclass fields
        """A copy with other values."""
        return replace(self, **changes)


def _least(confidences: set[float]) -> str:
    found = math.floor(1e6 * min(confidences, default=1.0) + 1e-4) / 1e4
    return f"{'at least ' if len(confidences) > 1 else ''}{found:g} %"
