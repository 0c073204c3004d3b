"""Declares the columns of a sweep's results, once for CSV, notebooks, terminals and reports."""

from __future__ import annotations

import dataclasses
import enum
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime
from functools import reduce
from typing import Any, NamedTuple

import numpy as np
from acpc.contract import to_plain
from acpc_client import Evidence, Interval, Outcome, Result, Score, SeverityLimit

from acpc_lab.campaigns import Entry
from acpc_lab.evidence import Sureness, evidence_columns, limit_numbers
from acpc_lab.sweeps.cells import Cell
from acpc_lab.sweeps.tasks import without_anchors


class MeasuredRow:
    """Fields that a cell of a sweep and a measurement of a report share.

    Attributes:
        score: What was measured, per-anchor values included; None: nothing.
        among: How sure the verdict is among the other rows; None for a reference.
    """

    score: Score | None
    among: Sureness | None

    @property
    def of_reference(self) -> bool:
        """Whether it was asked to be compared with itself."""
        raise NotImplementedError

    @property
    def evidence(self) -> Evidence | None:
        """How sure the score is; None without one, or where the server did not compute it."""
        return None if self.score is None else self.score.evidence

    @property
    def is_reference(self) -> bool:
        """Whether the checkpoint is compared with itself, and so can never pass."""
        if self.of_reference or self.score is None:
            return self.of_reference
        receipt = self.score.receipt
        return receipt.checkpoint_digest == receipt.reference_digest != ""

    def value(self, name: str) -> Any:  # noqa: ANN401 - of any column
        """Returns the value in a column of ``COLUMNS`` that reads the score; None without one."""
        return BY_NAME[name].of(self)

    def interval(self, name: str) -> Interval | None:
        """Returns the interval of the number in a column; None where it has none."""
        found = getattr(self.evidence, name, None)
        return found if isinstance(found, Interval) else None


@dataclass(frozen=True, kw_only=True)
class CellResult(Entry, MeasuredRow):
    """A cell and what came of it; ``code`` and ``message`` say what ended it badly.

    Attributes:
        time: When it was measured; None: not known.
        severity: Of the shift among those of the sweep; None for a composition that has none.
        limit: Up to which severity the checkpoint passes under shifts of this kind; None where the
            sweep has fewer than two of them.
    """

    cell: Cell
    score: Score | None
    time: datetime | None = None
    among: Sureness | None = None
    severity: float | None = None
    limit: SeverityLimit | None = None

    @property
    def of_reference(self) -> bool:
        """Whether the checkpoint is its own reference."""
        return self.cell.of_reference

    @property
    def error(self) -> str:
        """Code and message of what ended it badly; empty: nothing did."""
        return f"{self.code}: {self.message}" if self.code else ""

    @property
    def passed(self) -> bool | None:
        """Whether the screen lets it pass, inconclusive included; None without a score."""
        if self.score is None:
            return None
        verdict = self.score.verdict
        return verdict.sr_passed and verdict.outcome in (Outcome.PASSED, Outcome.INCONCLUSIVE)

    def result(self) -> Result:
        """Returns what was asked and what came of it, without the values per anchor."""
        answer = {
            "cell": self.cell.id,
            "labels": dict(self.cell.labels),
            "state": self.state.value,
            "attempt": self.attempt,
            "error": {"code": self.code, "message": self.message} if self.code else None,
            "score": None if self.score is None else without_anchors(self.score).to_dict(),
            "family_wise": None if self.among is None else to_plain(self.among),
        }
        asked = to_plain(self.cell.request())
        return Result("sweep_cell", answer, asked, self.operation, self.time)

    def row(self) -> dict[str, Any]:
        """Returns one flat row, see ``COLUMNS``, with labels and evidence; absent values: None."""
        row = {column.name: column.of(self) for column in COLUMNS}
        labels = {f"label_{name}": value for name, value in self.cell.labels.items()}
        first = {name: row.pop(name) for name in ("cell", "checkpoint", "weights", "reference")}
        sure = evidence_columns(self.evidence, self.among)
        return first | labels | row | sure | limit_numbers(self.limit)

    def anchor_rows(self) -> Iterator[dict[str, Any]]:
        """Yields one flat row per anchor; none without per-anchor values."""
        values = None if self.score is None else self.score.checkpoint.anchor_values
        if values is None:
            return
        held = {field.name: getattr(values, field.name) for field in dataclasses.fields(values)}
        columns = {
            name: column.tolist() if isinstance(column, np.ndarray) else map(_plain, column)
            for name, column in held.items()
            if np.ndim(column) == 1 and len(column)
        }
        names = ("cell", "checkpoint", "shift", "seed")
        where = {column.name: column.of(self) for column in COLUMNS if column.name in names}
        for index, row in enumerate(zip(*columns.values(), strict=True)):
            yield {**where, "anchor": index, **dict(zip(columns, row, strict=True))}


class Quantity(NamedTuple):
    """One column of a sweep's results.

    Attributes:
        name: Of the column in files and data frames.
        path: Attributes that lead from a ``CellResult`` to the value, joined by dots; or a function
            of the result.
        title: Heading for people; empty: the name.
        spec: Format of a number for people, for example ``.3f``.
        rank: How soon a narrow table leaves it out: the highest goes first, 0 never.
    """

    name: str
    path: str | Callable[[CellResult], object]
    title: str = ""
    spec: str = ""
    rank: int = 0

    def of(self, item: Any) -> Any:  # noqa: ANN401 - any record with a score
        """Returns the value as a plain one; None where there is none."""
        if callable(self.path):
            found = self.path(item)
        else:
            found = reduce(
                lambda held, name: None if held is None else getattr(held, name),
                self.path.split("."),
                item,
            )
        return _plain(found)


def _plain(value: object) -> object:
    if isinstance(value, enum.IntEnum):
        return value.name.lower()
    return value.value if isinstance(value, enum.Enum) else value


def _of_protocol(name: str) -> Callable[[CellResult], object]:
    def read(item: CellResult) -> object:
        protocol = item.score.receipt.parameters.get("protocol", {}) if item.score else {}
        return protocol.get(name)

    return read


def _from(path: str, *names: str) -> Iterator[Quantity]:
    """Yields columns that are named as the attributes they hold."""
    return (Quantity(name, f"{path}.{name}") for name in names)


_VERDICT, _SIDE, _RECEIPT = "score.verdict", "score.checkpoint", "score.receipt"
COLUMNS = (
    Quantity("cell", "cell.id"),
    Quantity("checkpoint", "cell.checkpoint.name"),
    Quantity("weights", "cell.checkpoint.weights"),
    Quantity("reference", "cell.reference.name"),
    Quantity("shift", lambda item: str(item.cell.shift)),
    Quantity("kind", "cell.shift.kind"),
    Quantity("severity", "severity"),
    Quantity("seed", "cell.seed", rank=6),
    Quantity("state", "state", rank=3),
    Quantity("operation", lambda item: item.operation or None),
    Quantity("error", lambda item: item.error or None),
    Quantity("content", lambda item: item.cell.content or None),
    Quantity("outcome", f"{_VERDICT}.outcome", "verdict"),
    Quantity("ir_raw", f"{_SIDE}.ir_raw", "IR", ".3f"),
    Quantity("rounding_floor", f"{_SIDE}.rounding_floor", spec=".2g"),
    Quantity("ir_relative", f"{_VERDICT}.ir_relative", "IR relative", ".3f"),
    Quantity("sr", f"{_SIDE}.sr", "SR", ".3f"),
    Quantity("score", f"{_VERDICT}.score", "S", ".3f"),
    Quantity("delta_score", f"{_VERDICT}.delta_score", "delta S", ".3f"),
    *_from(_VERDICT, "ir_passed", "sr_passed"),
    Quantity("threshold_ir", f"{_VERDICT}.thresholds.ir", "t_IR", "g"),
    Quantity("threshold_sr", f"{_VERDICT}.thresholds.sr", "t_SR", "g"),
    *_from(_SIDE, "anchors", "eligible", "skipped"),
    *_from(_SIDE, "median_latent_distance", "different_label_distance"),
    *(
        Quantity(f"reference_{name}", f"score.reference.{name}")
        for name in ("ir_raw", "rounding_floor", "sr")
    ),
    Quantity("checkpoint_digest", f"{_RECEIPT}.checkpoint_digest"),
    Quantity(
        "reference_digest",
        lambda x: (x.score.receipt.reference_digest or None) if x.score else None,
    ),
    *_from(_RECEIPT, "anchors_digest", "perturbation_digest", "parameters_digest"),
    *_from(_RECEIPT, "code_version", "numeric_mode", "device"),
    *(Quantity(name, _of_protocol(name)) for name in ("reading", "partner_past", "neighbourhood")),
)
"""What ``CellResult.row`` holds, in this order; labels stand behind the reference."""
BY_NAME = {column.name: column for column in COLUMNS}
