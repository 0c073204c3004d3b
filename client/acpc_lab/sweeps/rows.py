"""Declares a cell with what came of it, and its columns, once for files, terminals and reports."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import numpy as np
from acpc.contract import NUMBERS, Group, Identity, Place, curve_of, grids, to_plain
from acpc_client import AnchorValues, Evidence, Interval, Outcome, Result, Score
from acpc_client.errors import FailedPrecondition

from acpc_lab.campaigns import Entry
from acpc_lab.evidence import Correction, Family, SeverityLimit, Sureness, limits
from acpc_lab.sweeps.folder import Cell
from acpc_lab.tables import Quantity, plain


@dataclass(frozen=True, kw_only=True)
class CellResult(Entry):
    """A cell and what came of it; ``code`` and ``message`` say what ended it badly.

    Attributes:
        score: What was measured, per-anchor values included; None: nothing.
        time: When it was measured; None: not known.
        among: How sure the verdict is among the other cells; None for a reference.
        severity: Of the shift among those of the others; None for a composition that has none.
        limit: Up to which severity the checkpoint passes under shifts of this kind; None where
            fewer than two of them were scored.
        name: Of the checkpoint, for people.
        shift: In short form, for example ``gaussian_noise:0.08``.
        task: As a report names it, from the labels, as all that follow.
        run: Training run, usually its seed.
        level: Augmentation level of the training run; 0 is unaugmented.
        success: Planning success rate under the shift, in [0, 1].
        clean_success: Planning success rate on clean frames, in [0, 1].
    """

    cell: Cell
    score: Score | None
    time: datetime | None = None
    among: Sureness | None = None
    severity: float | None = None
    limit: SeverityLimit | None = None
    name: str = ""
    shift: str = ""
    task: str = ""
    run: str = ""
    level: float | None = None
    success: float | None = None
    clean_success: float | None = None

    def __post_init__(self) -> None:
        named = {"name": self.cell.checkpoint.name, "shift": str(self.cell.shift)}
        for name, value in named.items():
            object.__setattr__(self, name, getattr(self, name) or value)

    @property
    def evidence(self) -> Evidence | None:
        """How sure the score is; None without one, or where the server did not compute it."""
        return None if self.score is None else self.score.evidence

    @property
    def is_reference(self) -> bool:
        """Whether the checkpoint is compared with itself, and so can never pass."""
        return self.cell.of_reference or (self.score is not None and self.score.is_reference)

    @property
    def error(self) -> str:
        """Code and message of what ended it badly; empty: nothing did."""
        return f"{self.code}: {self.message}" if self.code else ""

    @property
    def problem(self) -> str:
        """Why there is no score; empty where there is one, or may still be."""
        if self.error:
            return f"{self.state.value}: {self.error}"
        return self.state.value if self.state.done and self.score is None else ""

    @property
    def passed(self) -> bool | None:
        """Whether the screen lets it pass, inconclusive included; None without a score."""
        if self.score is None:
            return None
        verdict = self.score.verdict
        return verdict.sr_passed and verdict.outcome in (Outcome.PASSED, Outcome.INCONCLUSIVE)

    def gated(self, gate: str) -> Outcome:
        """Returns what a gate makes of it; UNSPECIFIED without a score, a reference passes.

        That all cells pass needs no correction for their number, that one fails does. Raises
        FailedPrecondition: The gate is ``"confident"``, and the score has no evidence.
        """
        if self.score is None:
            return Outcome.UNSPECIFIED
        if self.is_reference or (gate == "point" and self.passed):
            return Outcome.PASSED
        if gate == "point":
            return Outcome.FAILED
        if self.among is None or self.among.alone is None:
            raise FailedPrecondition(
                "a score has no evidence, so nothing says how sure it is: score again",
                reason="NO_EVIDENCE",
            )
        if self.among.outcome and self.among.outcome.rejects:
            return Outcome.FAILED
        return Outcome.PASSED if self.among.alone is Outcome.PASSED else Outcome.UNDECIDED

    @property
    def outcome(self) -> Outcome | None:
        """The verdict by the numbers as they are; None without a score."""
        return None if self.score is None else self.score.verdict.outcome

    @property
    def sure(self) -> Outcome | None:
        """The confident outcome by itself, as the intervals show it; None without evidence."""
        return None if self.evidence is None else self.evidence.confident_outcome

    @property
    def values(self) -> AnchorValues | None:
        """Measurements at each anchor; None where they are not available."""
        return None if self.score is None else self.score.checkpoint.anchor_values

    def value(self, name: str) -> Any:  # noqa: ANN401 - of any column
        """Returns the value in a column of ``COLUMNS``; None where there is none."""
        return BY_NAME[name].of(self)

    def threshold(self, name: str) -> float | None:
        """Returns what the number in a column is compared with; None where it is with nothing."""
        return None if self.score is None else self.score.verdict.limit(name)

    def interval(self, name: str) -> Interval | None:
        """Returns the interval of the number in a column; None where it has none."""
        return None if self.score is None else self.score.interval(name)

    def result(self) -> Result:
        """Returns what was asked and what came of it, without the values per anchor."""
        answer = {
            "cell": self.cell.id,
            "labels": dict(self.cell.labels),
            "state": self.state.value,
            "attempt": self.attempt,
            "error": {"code": self.code, "message": self.message} if self.code else None,
            "score": None if self.score is None else without_anchors(self.score).to_dict(),
            "corrected": None if self.among is None else to_plain(self.among),
        }
        asked = to_plain(self.cell.request())
        return Result("sweep_cell", answer, asked, self.operation, self.time)

    def row(self) -> dict[str, Any]:
        """Returns one flat row, see ``COLUMNS``, with labels behind the reference."""
        row = {column.name: column.of(self) for column in COLUMNS}
        labels = {f"label_{name}": value for name, value in self.cell.labels.items()}
        first = {name: row.pop(name) for name in ("cell", "checkpoint", "weights", "reference")}
        return first | labels | row

    def anchor_rows(self) -> Iterator[dict[str, Any]]:
        """Yields one flat row per anchor; none without per-anchor values."""
        if self.values is None:
            return
        columns = {
            name: column.tolist() if isinstance(column, np.ndarray) else map(plain, column)
            for name, column in vars(self.values).items()
            if np.ndim(column) == 1 and len(column)
        }
        where = {name: self.value(name) for name in ("cell", "checkpoint", "shift", "seed")}
        for index, row in enumerate(zip(*columns.values(), strict=True)):
            yield {**where, "anchor": index, **dict(zip(columns, row, strict=True))}


def without_anchors(score: Score) -> Score:
    """Returns the score without its per-anchor values."""
    sides = {"checkpoint": score.checkpoint, "reference": score.reference}
    bare = {k: x and dataclasses.replace(x, anchor_values=None) for k, x in sides.items()}
    return dataclasses.replace(score, **bare)  # type: ignore[arg-type]


def judged(items: Sequence[CellResult], method: Correction) -> tuple[CellResult, ...]:
    """Returns cells with what follows from all of them: how sure each is, severities, limits."""
    others = [item for item in items if not item.is_reference]
    family = Family([item.evidence for item in others], method).each()
    among = {id(item): sure for item, sure in zip(others, family, strict=True)}
    shifts = {str(item.cell.shift): item.cell.shift for item in items}
    points = dict(zip(shifts, grids([*shifts.values()]), strict=True))
    bounded = limits((_curve(x), x.cell.shift, x.score, x.operation) for x in others)
    return tuple(
        dataclasses.replace(
            item,
            among=among.get(id(item)),
            severity=points[str(item.cell.shift)][1],
            limit=bounded.get((_curve(item), curve_of(item.cell.shift) or "")),
        )
        for item in items
    )


def _curve(item: CellResult) -> tuple[str, str]:
    """Returns a key that is equal for cells which differ by the shift alone."""
    return item.name, dataclasses.replace(item.cell, shift=Identity()).id


def _from(path: str, *names: str, first: str = "") -> Iterator[Quantity]:
    """Yields columns that are named as the attributes they hold, behind what stands first."""
    return (Quantity(f"{first}{name}", f"{path}.{name}") for name in names)


def _numbers(*groups: Group) -> Iterator[Quantity]:
    """Yields the columns of a score's numbers that are about these things."""
    for x in NUMBERS.values():
        if x.group in groups:
            wide = x.listing is Place.WIDE
            path = f"score.{x.of}.{x.name}"
            yield Quantity(x.name, path, x.spec, wide, title=x.title, hint=x.hint)


def _ends(path: str, *names: str, first: str = "") -> Iterator[Quantity]:
    """Yields a column for either end of each interval."""
    for name in names:
        for end in ("lower", "upper"):
            yield Quantity(f"{first}{name}_{end}", f"{path}.{name}.{end}")


_VERDICT, _SIDE, _RECEIPT = "score.verdict", "score.checkpoint", "score.receipt"
_PROTOCOL = f"{_RECEIPT}.parameters.protocol"
COLUMNS = (
    Quantity("cell", "cell.id"),
    Quantity("checkpoint", "cell.checkpoint.name"),
    Quantity("weights", "cell.checkpoint.weights"),
    Quantity("reference", "cell.reference.name"),
    Quantity("shift", lambda item: str(item.cell.shift)),
    Quantity("kind", "cell.shift.kind"),
    Quantity("severity", "severity"),
    Quantity("seed", "cell.seed", wide=True),
    Quantity("state", "state", wide=True),
    Quantity("operation", "operation"),
    Quantity("error", "error"),
    Quantity("content", "cell.content"),
    Quantity("outcome", f"{_VERDICT}.outcome", title="verdict"),
    *_numbers(Group.SCREEN, Group.MEASURED),
    Quantity("skill_lower", f"{_SIDE}.fit.interval.lower"),
    Quantity("skill_upper", f"{_SIDE}.fit.interval.upper"),
    *_from(f"{_SIDE}.fit", "outcome", "foreign", first="fit_"),
    *_from(_VERDICT, "ir_passed", "sr_passed"),
    Quantity("threshold_ir", f"{_VERDICT}.thresholds.ir", "g", title="t_IR"),
    Quantity("threshold_sr", f"{_VERDICT}.thresholds.sr", "g", title="t_SR"),
    *_numbers(Group.ANCHORS),
    *_from("score.reference", *(x.name for x in NUMBERS.values() if x.paired), first="reference_"),
    *_from(_RECEIPT, "checkpoint_digest", "reference_digest", "anchors_digest"),
    *_from(_RECEIPT, "perturbation_digest", "parameters_digest"),
    *_from(_RECEIPT, "code_version", "numeric_mode", "device"),
    *_from(_PROTOCOL, "reading", "partner_past"),
    Quantity("neighbourhood", f"{_PROTOCOL}.neighbourhood", spec="g",
             hint="quantile of state distances that reaches partners"),
    Quantity("confidence", "evidence.confidence"),
    *_ends("evidence", "ir_raw", "reference_ir_raw", "ir_relative", "sr", "reference_sr", "score",
           "delta_score"),
    Quantity("population", "evidence.population"),
    *_ends("evidence.other", "ir_raw", "ir_relative", "sr", "score", first="other_"),
    Quantity("other_outcome", "evidence.other.confident_outcome"),
    *_from("evidence", "confident_outcome", "doubt"),
    Quantity("anchors_to_decide", "evidence.anchors_to_decide", "d", title="anchors to decide",
             hint="so many in all would probably decide it"),
    *_from("evidence", "trajectories_to_decide", "trajectories", "windows"),
    Quantity("unseen", "evidence.unseen", ".2g", title="unseen",
             hint="this share of episodes may be of a kind that was not measured"),
    *_from("evidence", "p_passed", "p_failed"),
    *(Quantity(f"corrected_{name}", lambda x, name=name: x.evidence and x.among  # type: ignore[misc]
               and getattr(x.among, name)) for name in ("outcome", "p_passed", "p_failed")),
    Quantity("limit", "limit.reached"),
    Quantity("limit_lower", "limit.holds"),
    Quantity("limit_upper", "limit.breaks"),
    Quantity("limit_broken_by", "limit.broken_by"),
)  # fmt: skip
"""What ``CellResult.row`` holds, in this order; labels are put beside them."""
BY_NAME = {column.name: column for column in COLUMNS}
