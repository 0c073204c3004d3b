"""Holds what a report shows: the rows of a sweep or of scores, with pictures and words around."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from acpc_client import AnchorPreview

from acpc_lab.evidence import Correction, Family
from acpc_lab.sweeps import CellResult, judged


def printable(text: str) -> str:
    """The text with a sign in place of what no page or figure can show."""
    return "".join(
        char if char.isprintable() or char == "\n" else "\N{REPLACEMENT CHARACTER}" for char in text
    )


def dotted(*parts: str) -> str:
    """The parts that are not empty, with a dot between them."""
    return " \N{MIDDLE DOT} ".join(filter(None, parts))


def counted(number: int, noun: str) -> str:
    """A number with its noun."""
    return f"{number} {noun}{'' if number == 1 else 's'}"


@dataclass(frozen=True, eq=False)
class ReportData:
    """Everything one report is made from.

    Attributes:
        cells: The rows, which are judged together.
        command: Command that measures all of it again.
        level_name: What the source calls the augmentation level; empty: it has no name.
        previews: Pictures by operation and anchor index.
        previews_missing: Why there are no pictures; shown in their place.
        notes: What a reader must know first, for example that cells are missing.
        correction: How verdicts are corrected for the number of measurements.
    """

    title: str
    cells: tuple[CellResult, ...]
    description: str = ""
    command: str = ""
    recipe: str = ""
    level_name: str = ""
    previews: Mapping[tuple[str, int], AnchorPreview] = field(default_factory=dict)
    previews_missing: str = ""
    notes: tuple[str, ...] = ()
    correction: Correction = Correction.HOLM

    def __post_init__(self) -> None:
        object.__setattr__(self, "cells", judged(self.cells, self.correction))

    def with_(self, **changes: Any) -> ReportData:  # noqa: ANN401 - dataclass fields
        """A copy with other values."""
        return replace(self, **changes)

    @property
    def candidates(self) -> tuple[CellResult, ...]:
        """The cells that can pass: those of other checkpoints than the reference."""
        return tuple(cell for cell in self.cells if not cell.is_reference)

    @property
    def family(self) -> Family:
        """The candidates, judged together."""
        return Family([cell.evidence for cell in self.candidates], self.correction)

    @property
    def interval_words(self) -> str:
        """How sure each interval is by itself, in words; the least sure where they differ."""
        return _least({cell.evidence.confidence for cell in self.cells if cell.evidence})

    @property
    def verdict_words(self) -> str:
        """The confidence of each verdict, which may rest on several looks, in words."""
        return _least({cell.evidence.sure for cell in self.cells if cell.evidence})

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
        return sum(not cell.state.done for cell in self.cells)

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


def _least(confidences: set[float]) -> str:
    found = math.floor(1e6 * min(confidences, default=1.0) + 1e-4) / 1e4
    return f"{'at least ' if len(confidences) > 1 else ''}{found:g} %"
