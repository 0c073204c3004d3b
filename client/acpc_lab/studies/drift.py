"""Error-drift study: does ACPC tell how far a perturbation changes the prediction error?"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from acpc.contract import DriftStudy, Record, bounded, columns_of
from acpc_client.errors import ArgumentError

from acpc_lab.studies.base import Parameters, RunRows, Study
from acpc_lab.studies.figures import RUN, Listing
from acpc_lab.studies.measuring import Ask, StudyCheckpoint
from acpc_lab.studies.statistics import Spread, grouped, held_out_errors
from acpc_lab.tables import Arrays, Integers, Numbers, column, groups

CONTROLS = ("zeroed", "swapped", "shuffled")
ROUNDING = 1e-5
"""Relative excess of drift over ACPC that fp32 arithmetic of a network can leave."""


class DriftRows(RunRows):
    """A row per anchor, shift and draw of one checkpoint."""

    anchor: Integers = column("identity of the anchor")
    group: Integers = column("group of trajectories that is left out together")
    shift: Integers = column("index of the shift", low=0)
    severity: Numbers = column("severity of the shift", low=0)
    draw: Integers = column("draw of the shift", low=0)
    encoder_shift: Numbers = column("distance of the encoded histories", low=0)
    acpc_one_step: Numbers = column("ACPC after one step", low=0)
    acpc: Numbers = column("ACPC after H steps under the recorded actions", low=0)
    acpc_zeroed: Numbers = column("ACPC under zero actions", low=0)
    acpc_swapped: Numbers = column("ACPC under another trajectory's actions", low=0)
    acpc_shuffled: Numbers = column("ACPC under the actions in another order", low=0)
    clean_error: Numbers = column("prediction error of the clean history", low=0)
    perturbed_error: Numbers = column("prediction error of the perturbed one", low=0)
    drift: Numbers = column("|perturbed_error - clean_error|", low=0)


class DriftParameters(Parameters):
    """The regression.

    Attributes:
        alpha: Penalty of the ridge on standardised features.
    """

    alpha: float = bounded(1.0, gt=0)


class DriftCell(Record):
    """One task and training run; errors are out-of-group MAEs, in latent units.

    Attributes:
        base: Severity, encoder shift and one-step ACPC.
        control: Base and ``selected``, the control that does best on the groups left out.
        acpc: Base and ACPC under the recorded actions.
        wins: Of the ``folds``, one a group, those in which ``acpc`` beats ``control``.
    """

    task: str
    run: str
    base: float
    control: float
    acpc: float
    selected: str
    wins: int
    folds: int

    @property
    def over_base(self) -> float:
        """Relative reduction of MAE against Base."""
        return 1 - self.acpc / self.base

    @property
    def over_control(self) -> float:
        """Relative reduction of MAE against Base and control."""
        return 1 - self.acpc / self.control

    @property
    def improved(self) -> bool:
        """Whether ACPC is best."""
        return self.acpc < min(self.base, self.control)


class RunReduction(Record):
    """Relative MAE reductions of one training run, its tasks weighing alike."""

    run: str
    over_base: float
    over_control: float
    improved: int
    cells: int


class Reduction(Record):
    """Relative MAE reductions over training runs."""

    runs: tuple[RunReduction, ...]
    over_base: Spread
    over_control: Spread
    improved: int
    cells: int


class DriftSummary(Record):
    """The answer of the error-drift study.

    Attributes:
        controls: MAE with each control, in the order of the cells and of ``CONTROLS``.
        bound_violations: Rows whose drift exceeds ACPC by more than rounding: a measurement that is
            correct has none, by Prop. target-free-error-drift in the paper.
        tightest: Largest drift / ACPC.
        largest_identity: Largest ACPC of an unchanged view, 0 or rounding; None without
            ``{i}.identity_acpc``.
    """

    cells: tuple[DriftCell, ...]
    controls: tuple[tuple[float, ...], ...]
    reduction: Reduction
    rows: int
    bound_violations: int
    tightest: float
    largest_identity: float | None


def summarise(rows: DriftRows, parameters: DriftParameters, arrays: Arrays) -> DriftSummary:
    """Section "ACPC and Prediction-Error Change" in the paper.

    Rows of severity 0, which are identity checks, take no part. Raises ArgumentError: A row is
    there twice, drift is not the difference of the errors, no perturbed row is left, a cell has
    fewer than two groups, or an error is 0 and has no reduction.
    """
    rows.require_unique("task", "run", "anchor", "shift", "draw")
    difference = np.abs(rows.perturbed_error - rows.clean_error)
    wrong = np.abs(rows.drift - difference) > 1e-9 * (rows.perturbed_error + rows.clean_error)
    if wrong.any():
        row = int(np.argmax(wrong))
        why = f"found {rows.drift[row]:g}, where the errors differ by {difference[row]:g}"
        raise ArgumentError("drift", f"row {row + 1}: {why}")
    perturbed = rows.severity > 0
    if not perturbed.any():
        raise ArgumentError("severity", "is 0 in every row; there is no drift to predict")
    used = rows.where(perturbed)
    found = [_cell(named, mine, parameters.alpha) for named, mine in used.by("task", "run")]
    cells, controls = zip(*found, strict=True)
    identities = [v.max(initial=0.0) for k, v in arrays.items() if k.endswith(".identity_acpc")]
    moved = used.acpc > 0
    ratios = used.drift[moved] / used.acpc[moved]
    return DriftSummary(
        cells=cells,
        controls=controls,
        reduction=reduction(cells),
        rows=len(used),
        bound_violations=int((used.drift > used.acpc * (1 + ROUNDING) + 1e-9).sum()),
        tightest=float(ratios.max(initial=0.0)),
        largest_identity=float(max(identities)) if identities else None,
    )


def _cell(
    named: tuple[str, str], rows: DriftRows, alpha: float
) -> tuple[DriftCell, tuple[float, ...]]:
    base = [rows.severity, rows.encoder_shift, rows.acpc_one_step]

    def errors(*features: Numbers) -> Numbers:
        return held_out_errors([*base, *features], rows.drift, rows.group, alpha)

    with_controls = [errors(getattr(rows, f"acpc_{name}")) for name in CONTROLS]
    means = [float(error.mean()) for error in with_controls]
    best = int(np.argmin(means))
    with_acpc = errors(rows.acpc)
    folds = groups(rows.group.tolist()).values()
    wins = sum(bool(with_acpc[fold].mean() < with_controls[best][fold].mean()) for fold in folds)
    maes = (float(errors().mean()), means[best], float(with_acpc.mean()))
    return DriftCell(*named, *maes, CONTROLS[best], wins, len(folds)), tuple(means)


def reduction(cells: Sequence[DriftCell]) -> Reduction:
    """Tasks averaged equally within each run, then mean and sample deviation over runs.

    Raises ArgumentError: An error is 0 and has no relative reduction.
    """
    for cell in cells:
        if min(cell.base, cell.control) <= 0:
            why = "so there is no relative reduction; is it 0 in every row?"
            wrong = f"{cell.task}, run {cell.run}: is predicted without error, {why}"
            raise ArgumentError("drift", wrong)
    runs = []
    for (run,), mine in grouped(cells, "run").items():
        reductions = columns_of(mine, "over_base", "over_control").values()
        over_base, over_control = (float(np.mean(values)) for values in reductions)
        improved = sum(cell.improved for cell in mine)
        runs.append(RunReduction(run, over_base, over_control, improved, len(mine)))
    return Reduction(
        runs=tuple(runs),
        over_base=Spread.of(run.over_base for run in runs),
        over_control=Spread.of(run.over_control for run in runs),
        improved=sum(run.improved for run in runs),
        cells=len(cells),
    )


def shown(summary: DriftSummary) -> Iterator[str | Listing]:
    """Errors by task and run, the reductions over runs, and the bound."""

    def control(index: int, name: str) -> tuple[Any, ...]:
        return f"+{name}", lambda row: f"{row[1][index]:.3f}" + " *" * (name == row[0].selected)

    columns = (
        ("task", lambda row: row[0].task),
        ("run", lambda row: row[0].run),
        ("Base", lambda row: row[0].base, ".3f"),
        *(control(index, name) for index, name in enumerate(CONTROLS)),
        ("+ACPC", lambda row: row[0].acpc, ".3f"),
        ("wins", lambda row: f"{row[0].wins}/{row[0].folds}"),
    )
    yield Listing(list(zip(summary.cells, summary.controls, strict=True)), columns)
    yield errors(summary.cells)
    yield "out-of-group MAE of the error drift; * marks the control it is compared with"
    found = summary.reduction
    yield (
        f"ACPC lowers it by {found.over_base.shown(100, '%')} against Base and by "
        f"{found.over_control.shown(100, '%')} against Base and control, over "
        f"{len(found.runs)} run(s); best in {found.improved} of {found.cells} cells"
    )
    yield (
        f"bound |error drift| <= ACPC: {summary.bound_violations} violations in {summary.rows} "
        f"rows, largest ratio {summary.tightest:.3f}"
    )


def errors(cells: Sequence[DriftCell]) -> Listing:
    """The figure of the errors; compare within a row only, because latent scales differ."""
    columns = (*RUN, ("Base", "base"), ("+Control", "control"), ("+ACPC", "acpc"))
    return Listing(cells, columns, "errors", named=2, alike=True, printed=False)


def require_one_per_run(checkpoints: Sequence[StudyCheckpoint], _: DriftParameters) -> None:
    """Rejects two checkpoints of a task and run: the study takes the unaugmented one alone.

    Raises ArgumentError: There are two.
    """
    for (task, run), held in grouped(checkpoints, "task", "run").items():
        if len(held) > 1:
            found = " and ".join(row.checkpoint.name for row in held[:2])
            why = "this study takes one checkpoint of each, the unaugmented one"
            raise ArgumentError("checkpoint", f"{task}, run {run} has {found}; {why}")


STUDY = Study(
    "drift",
    "Does ACPC tell how far a perturbation changes the prediction error?",
    summarise,
    shown,
    "55.9 +- 4.7% against Base and 51.3 +- 3.5% against Base and control, over 3 runs; "
    "best in 12 of 12 cells",
    (
        "acpc study run drift --checkpoints unaugmented.csv --out drift/",
        "acpc study run drift --rows drift/rows.csv --protocol '{alpha: 10}'",
    ),
    Ask(DriftStudy()),
    check=require_one_per_run,
)
