"""What a sweep has measured: typed, as rows, as CSV and Parquet."""

from __future__ import annotations

import csv
import io
import json
import math
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from acpc_client.errors import ArgumentError
from acpc_client.extras import pyarrow
from acpc_client.files import write_whole
from acpc_client.results import Outcome, Score
from acpc_client.sweeps.cells import Cell
from acpc_client.sweeps.journal import CellState, Entry, Journal
from acpc_client.sweeps.spec import folder_of, load_spec

FORMATS = (".csv", ".parquet", ".json")


@dataclass(frozen=True)
class CellResult:
    """A cell and what came of it.

    Attributes:
        cell: What was asked.
        state: Where it is in its life.
        attempt: Number of the last attempt that has a job.
        operation: Its job; empty: none.
        code: Status name of what ended it badly.
        message: What ended it badly.
        score: What was measured, per-anchor values included; None: nothing.
    """

    cell: Cell
    state: CellState
    attempt: int
    operation: str
    code: str
    message: str
    score: Score | None

    @property
    def passed(self) -> bool | None:
        """Whether the screen lets it pass, inconclusive included; None without a score."""
        if self.score is None:
            return None
        verdict = self.score.verdict
        return verdict.sr_passed and verdict.outcome in (Outcome.PASSED, Outcome.INCONCLUSIVE)

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
        }
        return {**row, **_measured(score)}


def _measured(score: Score | None) -> dict[str, Any]:
    names = (
        "outcome", "ir_raw", "ir_relative", "sr", "score", "delta_score", "ir_passed", "sr_passed",
        "threshold_ir", "threshold_sr", "anchors", "eligible", "skipped",
        "median_latent_distance", "reference_ir_raw", "reference_sr", "checkpoint_digest",
        "reference_digest", "anchors_digest", "perturbation_digest", "parameters_digest",
        "code_version", "numeric_mode", "device",
    )  # fmt: skip
    if score is None:
        return dict.fromkeys(names)
    side, verdict, receipt = score.checkpoint, score.verdict, score.receipt
    values = (
        verdict.outcome.name.lower(), side.ir_raw, verdict.ir_relative, side.sr, verdict.score,
        verdict.delta_score, verdict.ir_passed, verdict.sr_passed, verdict.thresholds.ir,
        verdict.thresholds.sr, side.anchors, side.eligible, side.skipped,
        side.median_latent_distance, score.reference.ir_raw if score.reference else None,
        score.reference.sr if score.reference else None, receipt.checkpoint_digest,
        receipt.reference_digest or None, receipt.anchors_digest, receipt.perturbation_digest,
        receipt.parameters_digest, receipt.code_version, receipt.numeric_mode.name.lower(),
        receipt.device,
    )  # fmt: skip
    return dict(zip(names, values, strict=True))


@dataclass(frozen=True)
class SweepResults(Sequence[CellResult]):
    """Every cell of a sweep, done or not, in the order of the plan.

    Attributes:
        name: Of the sweep.
        description: Free text of the file.
        folder: Where the sweep is kept.
    """

    name: str
    description: str
    folder: Path
    _cells: tuple[Cell, ...]
    _entries: dict[str, Entry]

    @classmethod
    def open(cls, path: str | Path) -> SweepResults:
        """Reads the results of a sweep, without a server.

        Args:
            path: The sweep file, or the folder beside it.

        Raises:
            ArgumentError: There is no such file, or the sweep has not been run yet.
            FailedPrecondition: Its files cannot be read.
        """
        folder = Path(path)
        if not folder.is_dir():
            folder = folder_of(folder, load_spec(folder))
        journal = Journal(folder)
        plan = journal.read_plan()
        if plan is None:
            raise ArgumentError("path", f"{folder} holds no plan; the sweep has not been run yet")
        return cls(plan.name, plan.description, folder, plan.cells, journal.entries())

    @cached_property
    def cells(self) -> tuple[CellResult, ...]:
        """Every cell with its score."""
        journal = Journal(self.folder)
        return tuple(self._result(journal, cell) for cell in self._cells)

    def _result(self, journal: Journal, cell: Cell) -> CellResult:
        entry = self._entries.get(cell.id, Entry())
        score = journal.load(cell) if entry.state is CellState.SUCCEEDED else None
        state = entry.state
        if state is CellState.SUCCEEDED and score is None:
            state = CellState.QUEUED if entry.operation else CellState.PENDING
        return CellResult(
            cell, state, entry.attempt, entry.operation, entry.code, entry.message, score
        )

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
        bad = (CellState.FAILED, CellState.CANCELLED)
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
    def inconsistencies(self) -> tuple[str, ...]:
        """What changed at the server while the sweep ran, so that cells do not compare."""
        seen: dict[tuple[str, str], set[str]] = defaultdict(set)
        for item in self.cells:
            if item.score is not None:
                receipt, cell = item.score.receipt, item.cell
                seen["anchors of", str(cell.anchors)].add(receipt.anchors_digest)
                seen["checkpoint", str(cell.checkpoint)].add(receipt.checkpoint_digest)
                if cell.reference is not None:
                    seen["checkpoint", str(cell.reference)].add(receipt.reference_digest)
                seen["server", "releases"].add(receipt.code_version)
        return tuple(
            f"the {what} {which} changed during the sweep: its cells saw {len(digests)} different "
            f"ones ({', '.join(sorted(digest[:12] for digest in digests))})"
            for (what, which), digests in seen.items()
            if len(digests) > 1
        )

    def rows(self) -> list[dict[str, Any]]:
        """One flat row per cell, all with the same keys."""
        rows = [item.row() for item in self.cells]
        keys = dict.fromkeys(key for row in rows for key in row if key.startswith("label_"))
        return [{**dict.fromkeys(_ordered(row, keys)), **row} for row in rows]

    def to_csv(self) -> str:
        """The rows as CSV; absent values are empty."""
        rows = self.rows()
        text = io.StringIO()
        writer = csv.DictWriter(text, list(rows[0]) if rows else [], lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
        return text.getvalue()

    def save(self, path: str | Path) -> None:
        """Writes the rows in the format that the suffix names.

        Raises:
            ArgumentError: Another suffix than .csv, .parquet and .json.
            FailedPrecondition: Parquet, and pyarrow is not installed.
            OSError: The file cannot be written.
        """
        target = Path(path)
        match target.suffix:
            case ".csv":
                content = self.to_csv().encode()
            case ".json":
                rows = [{key: _strict(value) for key, value in row.items()} for row in self.rows()]
                content = (json.dumps(rows, indent=1, allow_nan=False) + "\n").encode()
            case ".parquet":
                content = self._to_parquet()
            case _:
                wanted = ", ".join(FORMATS)
                raise ArgumentError("path", f"found {target.name}, wanted one of {wanted}")
        write_whole(target, content)

    def _to_parquet(self) -> bytes:
        pa, pq = pyarrow()
        rows = self.rows()
        for name in {key for row in rows for key in row if key.startswith("label_")}:
            kinds = {type(row[name]) for row in rows} - {type(None)}
            if len(kinds) > 1 and not kinds <= {int, float}:  # a column has one type
                for row in rows:
                    row[name] = None if row[name] is None else str(row[name])
        content = io.BytesIO()
        pq.write_table(pa.Table.from_pylist(rows), content)
        return content.getvalue()


def _ordered(row: dict[str, Any], labels: dict[str, None]) -> Iterator[str]:
    """The keys of a row with every label behind the reference."""
    for key in row:
        if not key.startswith("label_"):
            yield key
        if key == "reference":
            yield from labels


def _strict(value: Any) -> Any:  # noqa: ANN401 - any value of a row
    """What JSON can hold: no NaN, no infinity."""
    return None if isinstance(value, float) and not math.isfinite(value) else value
