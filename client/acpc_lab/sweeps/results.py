"""Reads what a sweep has measured, as typed results and as rows."""

from __future__ import annotations

import dataclasses
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from acpc.contract import Columns, Tabular, to_plain
from acpc_client import CheckpointRef, Evidence, Outcome, Result, Score
from acpc_client.errors import ArgumentError, FailedPrecondition

from acpc_lab.campaigns import Entry, TaskState
from acpc_lab.evidence import Family, FamilyWise, Sureness, evidence_columns
from acpc_lab.sweeps.cells import Cell
from acpc_lab.sweeps.spec import folder_of, load_spec
from acpc_lab.sweeps.tasks import SweepFolder, without_anchors
from acpc_lab.tables import Table

_SHOWN = ("checkpoint", "shift", "seed", "state", "ir_relative", "sr", "score", "outcome")


@dataclass(frozen=True)
class CellResult:
    """A cell and what came of it.

    Attributes:
        attempt: Number of the last attempt that has a job.
        code: Status name of what ended it badly.
        score: What was measured, per-anchor values included; None: nothing.
        time: When it was measured; None: not known.
        among: How sure the verdict is among the other cells; None for a reference.
    """

    cell: Cell
    state: TaskState
    attempt: int
    operation: str
    code: str
    message: str
    score: Score | None
    time: datetime | None = None
    among: Sureness | None = None

    @property
    def evidence(self) -> Evidence | None:
        """How sure the score is; None without one, or where the server did not compute it."""
        return None if self.score is None else self.score.evidence

    @property
    def is_reference(self) -> bool:
        """Whether the checkpoint is compared with itself, and so can never pass."""
        if self.cell.of_reference or self.score is None:
            return self.cell.of_reference
        receipt = self.score.receipt
        return receipt.checkpoint_digest == receipt.reference_digest != ""

    @property
    def passed(self) -> bool | None:
        """Whether the screen lets it pass, inconclusive included; None without a score."""
        if self.score is None:
            return None
        verdict = self.score.verdict
        return verdict.sr_passed and verdict.outcome in (Outcome.PASSED, Outcome.INCONCLUSIVE)

    def result(self) -> Result:
        """What was asked and what came of it, without the values per anchor."""
        score = None if self.score is None else without_anchors(self.score).to_dict()
        error = {"code": self.code, "message": self.message} if self.code else None
        answer = {
            "cell": self.cell.id,
            "labels": dict(self.cell.labels),
            "state": self.state.value,
            "attempt": self.attempt,
            "error": error,
            "score": score,
            "family_wise": None if self.among is None else to_plain(self.among),
        }
        asked = to_plain(self.cell.request())
        return Result("sweep_cell", answer, asked, self.operation, self.time)

    def row(self) -> dict[str, Any]:
        """One flat row; absent values are None."""
        cell, score = self.cell, self.score
        labels = {f"label_{name}": value for name, value in cell.labels.items()}
        row: dict[str, Any] = {
            "cell": cell.id,
            "checkpoint": cell.checkpoint.name,
            "weights": cell.checkpoint.weights,
            "reference": None if cell.reference is None else cell.reference.name,
            **labels,
            "shift": str(cell.shift),
            "kind": cell.shift.kind,
            "severity": cell.shift.severity,
            "seed": cell.seed,
            "state": self.state.value,
            "operation": self.operation or None,
            "error": f"{self.code}: {self.message}" if self.code else None,
            "content": cell.content or None,
        }
        return {**row, **_measured(score), **evidence_columns(self.evidence, self.among)}

    def anchor_rows(self) -> Iterator[dict[str, Any]]:
        """One flat row per anchor; none without per-anchor values."""
        values = None if self.score is None else self.score.checkpoint.anchor_values
        if values is None:
            return
        columns = {
            field.name: _plain(getattr(values, field.name))
            for field in dataclasses.fields(values)
            if np.ndim(getattr(values, field.name)) == 1
        }
        cell = self.cell
        where = {
            "cell": cell.id,
            "checkpoint": cell.checkpoint.name,
            "shift": str(cell.shift),
            "seed": cell.seed,
        }
        for index in range(len(values.radius)):
            row = {name: column[index] for name, column in columns.items() if column}
            yield {**where, "anchor": index, **row}


def _plain(column: Any) -> list[Any]:  # noqa: ANN401 - an array, or a tuple of enums
    """Per-anchor values as plain ones."""
    if isinstance(column, np.ndarray):
        return list(column.tolist())
    return [item.name.lower() for item in column]


_READ = ("reading", "partner_past", "neighbourhood")
"""Parameters of the protocol that have columns of their own; None in older scores."""


def _measured(score: Score | None) -> dict[str, Any]:
    names = (
        "outcome", "ir_raw", "rounding_floor", "ir_relative", "sr", "score", "delta_score",
        "ir_passed", "sr_passed", "threshold_ir", "threshold_sr", "anchors", "eligible", "skipped",
        "median_latent_distance", "different_label_distance", "reference_ir_raw",
        "reference_rounding_floor", "reference_sr",
        "checkpoint_digest",
        "reference_digest", "anchors_digest", "perturbation_digest", "parameters_digest",
        "code_version", "numeric_mode", "device", *_READ,
    )  # fmt: skip
    if score is None:
        return dict.fromkeys(names)
    side, verdict, receipt = score.checkpoint, score.verdict, score.receipt
    values = (
        verdict.outcome.name.lower(), side.ir_raw, side.rounding_floor, verdict.ir_relative,
        side.sr, verdict.score, verdict.delta_score, verdict.ir_passed, verdict.sr_passed,
        verdict.thresholds.ir, verdict.thresholds.sr, side.anchors, side.eligible, side.skipped,
        side.median_latent_distance, side.different_label_distance,
        score.reference.ir_raw if score.reference else None,
        score.reference.rounding_floor if score.reference else None,
        score.reference.sr if score.reference else None, receipt.checkpoint_digest,
        receipt.reference_digest or None, receipt.anchors_digest, receipt.perturbation_digest,
        receipt.parameters_digest, receipt.code_version, receipt.numeric_mode.name.lower(),
        receipt.device, *map(receipt.parameters.get("protocol", {}).get, _READ),
    )  # fmt: skip
    return dict(zip(names, values, strict=True))


def kept_at(path: str | Path) -> SweepFolder:
    """Where a sweep keeps what it knows; the path is its file, or that folder.

    Raises:
        ArgumentError: It is no folder, and no sweep file either.
    """
    folder = Path(path)
    if folder.suffix not in (".sweep", ".watch") and not folder.is_dir():
        folder = folder_of(folder, load_spec(folder))
    return SweepFolder(folder)


@dataclass(frozen=True)
class SweepResults(Tabular, Sequence[CellResult]):
    """Every cell of a sweep, done or not, in the order of the plan.

    Attributes:
        family_wise: How verdicts are corrected for the number of cells.
    """

    name: str
    description: str
    folder: Path
    _cells: tuple[Cell, ...]
    _entries: dict[str, Entry]
    family_wise: FamilyWise = FamilyWise.HOLM

    @classmethod
    def open(cls, path: str | Path) -> SweepResults:
        """Reads the results of a sweep, without a server.

        Args:
            path: The sweep file, or the folder beside it.

        Raises:
            ArgumentError: There is no such file, or the sweep has not been run yet.
            FailedPrecondition: Its files cannot be read.
        """
        disk = kept_at(path)
        plan = disk.read_plan()
        if plan is None:
            raise ArgumentError(
                "path", f"{disk.path} holds no plan; the sweep has not been run yet"
            )
        return cls(plan.name, plan.description, disk.path, plan.cells, disk.journal.entries())

    @cached_property
    def cells(self) -> tuple[CellResult, ...]:
        """Every cell with its score."""
        disk = SweepFolder(self.folder)
        items = [self._result(disk, cell) for cell in self._cells]
        members = [place for place, item in enumerate(items) if not item.is_reference]
        family = Family([items[place].evidence for place in members], self.family_wise)
        for place, among in zip(members, family.each(), strict=True):
            items[place] = dataclasses.replace(items[place], among=among)
        return tuple(items)

    def _result(self, disk: SweepFolder, cell: Cell) -> CellResult:
        entry = self._entries.get(cell.id, Entry())
        held = disk.load(cell) if entry.state is TaskState.SUCCEEDED else None
        score: Score | None = None if held is None else held.answer
        state = entry.state
        if state is TaskState.SUCCEEDED and score is None:
            state = TaskState.QUEUED if entry.operation else TaskState.PENDING
        ended = entry.attempt, entry.operation, entry.code, entry.message
        return CellResult(cell, state, *ended, score, None if held is None else held.time)

    @cached_property
    def apart(self) -> dict[str, str]:
        """By a cell's id what tells its checkpoint from other content under the same name."""
        contents: dict[CheckpointRef, set[str]] = defaultdict(set)
        for cell in self._cells:
            contents[cell.checkpoint].add(cell.content)
        return {
            cell.id: f" ({cell.content[:8]})" if len(contents[cell.checkpoint]) > 1 else ""
            for cell in self._cells
        }

    def corrected(self, family_wise: FamilyWise) -> SweepResults:
        """The same, with verdicts corrected for the number of cells in this way."""
        return dataclasses.replace(self, family_wise=family_wise)

    def __len__(self) -> int:
        return len(self._cells)

    def __getitem__(self, index: Any) -> Any:  # noqa: ANN401 - an int or a slice
        return self.cells[index]

    def __iter__(self) -> Iterator[CellResult]:
        return iter(self.cells)

    @property
    def unfinished(self) -> tuple[CellResult, ...]:
        """Cells that have no end yet."""
        return tuple(item for item in self.cells if not item.state.done)

    @property
    def failed(self) -> tuple[CellResult, ...]:
        """Cells that ended without a score."""
        bad = (TaskState.FAILED, TaskState.CANCELLED)
        return tuple(item for item in self.cells if item.state in bad)

    @property
    def rejected(self) -> tuple[CellResult, ...]:
        """Cells that the screen does not let pass.

        A checkpoint that is its own reference has relative IR 1 and cannot pass; it is here for
        comparison and is not rejected.
        """
        measured = (item for item in self.cells if not item.cell.of_reference)
        return tuple(item for item in measured if item.passed is False)

    @property
    def surely_failed(self) -> tuple[CellResult, ...]:
        """Cells that surely fail the screen, all cells considered; references do not count."""
        return tuple(x for x in self.cells if x.among and x.among.outcome is Outcome.FAILED)

    @property
    def undecided(self) -> tuple[CellResult, ...]:
        """Cells of which it is not sure that they pass; references do not count.

        Raises:
            FailedPrecondition: Scores without evidence.
        """
        if any(item.among is not None and item.among.alone is None for item in self.cells):
            raise FailedPrecondition(
                "a score has no evidence, so nothing says how sure it is: score again",
                reason="NO_EVIDENCE",
            )
        passing = (Outcome.PASSED, Outcome.INCONCLUSIVE)
        return tuple(x for x in self.cells if x.among and x.among.alone not in passing)

    def outcome(self, gate: str = "point") -> Outcome:
        """What a gate over all cells says; UNSPECIFIED where a cell has no score.

        That all cells pass needs no correction for their number, that one fails does.

        Raises:
            FailedPrecondition: The gate is ``"confident"``, and scores have no evidence.
        """
        if self.failed or self.unfinished:
            return Outcome.UNSPECIFIED
        if gate == "point":
            return Outcome.FAILED if self.rejected else Outcome.PASSED
        undecided = self.undecided
        if self.surely_failed:
            return Outcome.FAILED
        return Outcome.UNDECIDED if undecided else Outcome.PASSED

    @property
    def confidence(self) -> float | None:
        """That no confident verdict is wrong; None where no cell has evidence."""
        found = [item.evidence for item in self.cells if item.evidence is not None]
        return Family(found).confidence if found else None

    @property
    def inconsistencies(self) -> tuple[str, ...]:
        """What changed at the server while the sweep ran, so that cells do not compare."""
        seen: dict[tuple[str, str], set[str]] = defaultdict(set)
        for item in self.cells:
            if item.score is not None:
                receipt, cell = item.score.receipt, item.cell
                seen["anchors of", str(cell.anchors)].add(receipt.anchors_digest)
                measured = f"{cell.checkpoint}{cell.content}"
                seen["checkpoint", measured].add(receipt.checkpoint_digest)
                if cell.reference is not None and receipt.reference_digest:
                    seen["checkpoint", str(cell.reference)].add(receipt.reference_digest)
                seen["server", "releases"].add(receipt.code_version)
        return tuple(
            f"the {what} {which} changed during the sweep: its cells saw {len(digests)} different "
            f"ones ({', '.join(sorted(digest[:12] for digest in digests))})"
            for (what, which), digests in seen.items()
            if len(digests) > 1
        )

    @property
    def rounding_notes(self) -> tuple[str, ...]:
        """A warning for each cell with a raw IR near its rounding floor."""
        return tuple(
            f"{item.cell.shift}: {sentence}"
            for item in self.cells
            if item.score is not None
            for sentence in item.score.rounding_notes
        )

    @property
    def counts(self) -> dict[TaskState, int]:
        """Cells by state; states without a cell are left out."""
        counted = Counter(item.state for item in self.cells)
        return {state: counted[state] for state in TaskState if counted[state]}

    def result(self) -> Result:
        """Every cell's result, and what the file says, as one result."""
        plan = SweepFolder(self.folder).read_plan()
        answer = {
            "name": self.name,
            "description": self.description,
            "counts": {state.value: count for state, count in self.counts.items()},
            "inconsistencies": list(self.inconsistencies),
            "family_wise": {"method": self.family_wise.value, "confidence": self.confidence},
            "cells": [item.result().to_dict() for item in self.cells],
        }
        return Result("sweep", answer, {} if plan is None else plan.document)

    def table(self) -> Columns:
        """A row per cell; see ``CellResult.row``."""
        rows = self.rows()
        return {name: [row[name] for row in rows] for name in rows.columns}

    def headline(self) -> str:
        """The cells by state."""
        counts = ", ".join(f"{count} {state.value}" for state, count in self.counts.items())
        return f"{self.name}: {len(self)} cells: {counts}"

    def shown(self) -> Columns:
        """Checkpoint, shift, state and verdict of every cell."""
        table = self.table()
        return {name: table[name] for name in _SHOWN if name in table}

    def rows(self) -> Table:
        """One flat row per cell."""
        return Table((item.row() for item in self.cells), behind="reference")

    def anchor_rows(self) -> Table:
        """One flat row per cell and anchor; values per draw and per step are left out."""
        return Table((row for item in self.cells for row in item.anchor_rows()), behind="seed")
