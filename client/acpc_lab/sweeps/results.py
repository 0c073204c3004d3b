"""Reads what a sweep has measured, as typed results and as rows."""

from __future__ import annotations

import dataclasses
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from acpc.contract import NUMBERS, Columns, Place, Tabular
from acpc_client import CheckpointRef, Outcome, Result
from acpc_client.errors import ArgumentError

from acpc_lab.campaigns import ENDED_BADLY, Entry, TaskState, counted
from acpc_lab.evidence import Correction, Family, SeverityLimit
from acpc_lab.sweeps.folder import SweepFolder, SweepPlan
from acpc_lab.sweeps.rows import CellResult, judged
from acpc_lab.sweeps.spec import folder_of, load_spec
from acpc_lab.tables import Table

# Share of a checkpoint's median latent distance below which its reference has not spread.
_SPREAD = 0.05
_NUMBERS = (name for name, number in NUMBERS.items() if number.listing is Place.FIRST)
_SHOWN = ("checkpoint", "shift", "seed", "state", *_NUMBERS, "score", "outcome")


@dataclass(frozen=True)
class SweepResults(Tabular, Sequence[CellResult]):
    """Every cell of a sweep, done or not, in the order of the plan.

    Attributes:
        folder: Where the scores are.
        cells: Every cell with its score, and what follows from all of them.
        correction: How verdicts are corrected for the number of cells.
    """

    plan: SweepPlan
    folder: Path
    cells: tuple[CellResult, ...]
    correction: Correction = Correction.HOLM

    def __post_init__(self) -> None:
        object.__setattr__(self, "cells", judged(self.cells, self.correction))

    @classmethod
    def open(cls, path: str | Path) -> SweepResults:
        """Reads the results of a sweep file, or of the folder beside it, without a server.

        Raises ArgumentError: There is no such file, or the sweep has not been run yet;
        FailedPrecondition: Its files cannot be read.
        """
        folder = Path(path)
        if folder.suffix not in (".sweep", ".watch") and not folder.is_dir():
            folder = folder_of(folder, load_spec(folder))
        disk = SweepFolder(folder)
        plan = disk.read_plan()
        if plan is None:
            raise ArgumentError("path", f"{folder} holds no plan; the sweep has not been run yet")
        return cls.of(plan, disk, disk.entries())

    @classmethod
    def of(cls, plan: SweepPlan, disk: SweepFolder, entries: Mapping[str, Entry]) -> SweepResults:
        """Reads the scores of a plan's cells, whose states are known by their ids."""
        contents: dict[CheckpointRef, set[str]] = defaultdict(set)
        for cell in plan.cells:
            contents[cell.checkpoint].add(cell.content)
        found = []
        for cell in plan.cells:
            entry = entries.get(cell.id, Entry())
            done = entry.state is TaskState.SUCCEEDED
            held = disk.load(cell) if done else None
            if done and held is None:
                entry = entry.without_answer()
            several = len(contents[cell.checkpoint]) > 1
            name = cell.checkpoint.name + (f" ({cell.content[:8]})" if several else "")
            score, time = (held.answer, held.time) if held else (None, None)
            state = vars(entry)
            found.append(CellResult(**state, cell=cell, name=name, score=score, time=time))
        return cls(plan, disk.path, tuple(found))

    @property
    def name(self) -> str:
        """The name of the sweep."""
        return self.plan.name

    @property
    def limits(self) -> tuple[SeverityLimit, ...]:
        """Up to which severity each checkpoint passes, of each kind that has several."""
        return tuple({id(x.limit): x.limit for x in self.cells if x.limit is not None}.values())

    def corrected(self, correction: Correction) -> SweepResults:
        """Returns the same, with verdicts corrected for the number of cells in this way."""
        return dataclasses.replace(self, correction=correction)

    def __len__(self) -> int:
        return len(self.cells)

    def __getitem__(self, index: Any) -> Any:  # noqa: ANN401 - an int or a slice
        return self.cells[index]

    @property
    def failed(self) -> tuple[CellResult, ...]:
        """Cells that ended without a score."""
        return tuple(item for item in self.cells if item.state in ENDED_BADLY)

    @property
    def rejected(self) -> tuple[CellResult, ...]:
        """Cells that fail the screen, without those of checkpoints that are their own reference."""
        return tuple(x for x in self.cells if x.passed is False and not x.is_reference)

    def outcome(self, gate: str = "point") -> Outcome:
        """Returns the verdict of a gate over all cells; UNSPECIFIED where a cell has no score.

        The numbers decide while a cell has none. Raises FailedPrecondition: The gate is
        ``"confident"``, and scores have no evidence.
        """
        complete = all(item.score is not None for item in self.cells)
        outcomes = [item.gated(gate if complete else "point") for item in self.cells]
        worst = (Outcome.UNSPECIFIED, Outcome.FAILED, Outcome.UNDECIDED)
        return next((outcome for outcome in worst if outcome in outcomes), Outcome.PASSED)

    @property
    def confidence(self) -> float | None:
        """Confidence that no confident verdict is wrong; None where no cell has evidence."""
        found = [item.evidence for item in self.cells if item.evidence is not None]
        return Family(found).confidence if found else None

    @property
    def inconsistencies(self) -> tuple[str, ...]:
        """What changed at the server while the sweep ran, so that cells do not compare.

        Jobs until decided may stop at different anchors, whose digests differ.
        """
        seen: dict[tuple[str, str, int], set[str]] = defaultdict(set)
        for item in self.cells:
            if item.score is not None:
                receipt, cell = item.score.receipt, item.cell
                count = item.score.checkpoint.anchors
                seen["anchors of", str(cell.anchors), count].add(receipt.anchors_digest)
                measured = f"{cell.checkpoint}{cell.content}"
                seen["checkpoint", measured, 0].add(receipt.checkpoint_digest)
                if cell.reference is not None and receipt.reference_digest:
                    seen["checkpoint", str(cell.reference), 0].add(receipt.reference_digest)
                seen["server", "releases", 0].add(receipt.code_version)
        return tuple(
            f"the {what} {which} changed during the sweep: its cells saw {len(digests)} different "
            f"ones ({', '.join(sorted(digest[:12] for digest in digests))})"
            for (what, which, _), digests in seen.items()
            if len(digests) > 1
        )

    @property
    def rounding_notes(self) -> tuple[str, ...]:
        """A warning for each cell with a raw IR near its rounding floor."""
        measured = ((item.cell.shift, item.score) for item in self.cells)
        return tuple(f"{at}: {note}" for at, x in measured if x for note in x.rounding_notes)

    @property
    def reference_notes(self) -> tuple[str, ...]:
        """A warning for each reference whose latents lie far closer together than a checkpoint's.

        It is collapsed, or not trained yet: relative IR over it says nothing.
        """
        found = {}
        for item in self.cells:
            if item.score and item.score.reference and item.cell.reference:
                own = item.score.checkpoint.median_latent_distance
                other = item.score.reference.median_latent_distance
                if 0 < other < _SPREAD * own:
                    name = item.cell.reference.name
                    found[item.cell.reference] = (
                        f"the reference {name} looks collapsed or untrained: its latents lie "
                        f"{other:.2g} apart, those of {item.name} {own:.2g}; choose an unaugmented "
                        "checkpoint of the same run at the end of its training"
                    )
        return tuple(found.values())

    @property
    def counts(self) -> dict[TaskState, int]:
        """Cells by state; states without a cell are left out."""
        return counted(self.cells)

    def result(self) -> Result:
        """Returns every cell's result, and what the file says, as one result."""
        answer = {
            "name": self.name,
            "description": self.plan.description,
            "counts": {state.value: count for state, count in self.counts.items()},
            "inconsistencies": list(self.inconsistencies),
            "correction": {"method": self.correction.value, "confidence": self.confidence},
            "limits": [limit.to_dict() for limit in self.limits],
            "cells": [item.result().to_dict() for item in self.cells],
        }
        return Result("sweep", answer, self.plan.document)

    def headline(self) -> str:
        """Counts the cells by state."""
        counts = ", ".join(f"{count} {state.value}" for state, count in self.counts.items())
        return f"{self.name}: {len(self)} cells: {counts}"

    def rows(self) -> Table:
        """Returns one flat row per cell; see ``CellResult.row``."""
        return Table((item.row() for item in self.cells), behind="reference")

    def table(self) -> Columns:
        """Returns the rows by column."""
        return self.rows().by_column()

    def shown(self) -> Columns:
        """Returns checkpoint, shift, state and verdict of every cell."""
        table = self.table()
        return {name: table[name] for name in _SHOWN if name in table}

    def anchor_rows(self) -> Table:
        """Returns one flat row per cell and anchor; values per draw and per step are left out."""
        return Table((row for item in self.cells for row in item.anchor_rows()), behind="seed")
