"""Planner study: does ACPC reflect what a changed plan costs the clean model?"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import numpy as np
from acpc.contract import PlannerStudy, Record, bounded, columns_of
from acpc_client.errors import ArgumentError

from acpc_lab.studies.base import LevelRows, Parameters, Study, by_reading
from acpc_lab.studies.figures import Listing
from acpc_lab.studies.measuring import Ask
from acpc_lab.studies.statistics import Spread, held_out_errors
from acpc_lab.tables import Arrays, Integers, Numbers, column, groups, optional


class PlannerRows(LevelRows):
    """A row per anchor, shift and draw of paired CEM on one checkpoint."""

    anchor: Integers = column("identity of the anchor")
    shift: Integers = column("index of the shift", low=0)
    severity: Numbers = column("severity of the shift", low=0)
    draw: Integers = column("draw of the shift", low=0)
    acpc_one_step_q90: Numbers = column("q90 of the candidates' one-step ACPC", low=0)
    acpc_q90: Numbers = column("q90 of the candidates' H-step ACPC", low=0)
    clean_gap: Numbers = column("clean cost from best to second best", low=0)
    selection_regret: Numbers = column(
        "extra clean cost of the plan chosen from the perturbed history", low=0
    )
    first_divergence: Integers = column("first iteration with another elite set; -1: none", low=-1)
    certified: Integers = column("1: the elite set was certified throughout", 0, 1)
    displacement_q90: Numbers = optional("q90 of the candidates' final-step distance", low=0)
    first_acpc_one_step_q90: Numbers = optional(
        "the four features of the first pool, not the last", 0
    )
    first_acpc_q90: Numbers = optional("likewise", low=0)
    first_displacement_q90: Numbers = optional("likewise", low=0)
    first_clean_gap: Numbers = optional("likewise", low=0)
    candidate_pairs: Numbers = optional("candidates rolled out from both histories", low=0)
    bound_violations: Numbers = optional("those among them that break a bound", low=0)


class PlannerParameters(Parameters):
    """The regression.

    Attributes:
        alpha: Penalty of the ridge on standardised features.
        reading: Reading of the protocol: the paper's letter, or the authors' released code; decides
            the two below where they are None.
        pool: Pool of the clean run that gives the features, its quantiles and gap: ``last`` (the
            paper does not say), or ``first``, which both runs share (the released code).
        distance: Feature at the planner's horizon: ``acpc`` (Eq. acpc-h), or ``displacement``, the
            final-step distance r_j (the released code).
    """

    alpha: float = bounded(1.0, gt=0)
    reading: str = "paper"
    pool: str | None = by_reading(paper="last", released="first")
    distance: str | None = by_reading(paper="acpc", released="displacement")

    def feature(self, rows: PlannerRows, name: str) -> Numbers:
        """A feature of the pool. Raises ArgumentError: The rows lack its column."""
        name = f"first_{name}" if self.pool == "first" else name
        values: Numbers = getattr(rows, name)
        if np.isnan(values).any():
            raise ArgumentError(name, "is missing; measure the rows again, with this column")
        return values


class PlannerCell(Record):
    """One test task in one training run: MAE of log(1 + selection regret).

    ``baseline`` has severity, training condition, one-step ACPC and the clean gap, ``expanded``
    also the distance at the planner's horizon.
    """

    task: str
    run: str
    baseline: float
    expanded: float


class PlannerRun(Record):
    """One training run: MAEs averaged over its test tasks, and their relative reduction."""

    run: str
    baseline: float
    expanded: float
    reduction: float


class PlannerSummary(Record):
    """The answer of the planner study.

    Attributes:
        reduction: Relative MAE reduction over training runs.
        improved: Cells in which the expanded model is better.
        changed: Share of the paired runs whose elite sets diverged; ``certified``: throughout.
        broken_certificates: Certified runs that diverged; a correct certificate has none.
        mean_regret: Over all rows, in the planner's cost.
        candidate_pairs: Candidates rolled out from both histories; None: a row does not say.
        bound_violations: Those among them that break a bound (Prop. exact-cost-certificate or
            target-free-error-drift in the paper); a correct measurement has none.
    """

    cells: tuple[PlannerCell, ...]
    runs: tuple[PlannerRun, ...]
    reduction: Spread
    improved: int
    rows: int
    changed: float
    certified: float
    broken_certificates: int
    mean_regret: float
    candidate_pairs: int | None
    bound_violations: int | None


def summarise(rows: PlannerRows, parameters: PlannerParameters, arrays: Arrays) -> PlannerSummary:
    """Section "Adaptive-CEM Selection-Regret Protocol" in the paper.

    Within each training run ridges are fitted on all tasks but one and tested on that one. Raises
    ArgumentError: A row is there twice, a run has one task, a baseline has no error, or the rows
    lack a feature.
    """
    rows.require_unique("task", "run", "level", "anchor", "shift", "draw")
    require_two_tasks(rows.task.tolist(), rows.run.tolist())
    cells, runs = [], []
    for (run,), of_run in rows.by("run"):
        held = _cells(run, of_run, parameters)
        errors = columns_of(held, "baseline", "expanded").values()
        baseline, expanded = (float(np.mean(values)) for values in errors)
        if baseline == 0:
            wrong = f"run {run}: is predicted without error; is it 0 in every row?"
            raise ArgumentError("selection_regret", wrong)
        cells += held
        runs.append(PlannerRun(run, baseline, expanded, 1 - expanded / baseline))
    diverged = rows.first_divergence >= 0
    certified = rows.certified == 1
    return PlannerSummary(
        cells=tuple(cells),
        runs=tuple(runs),
        reduction=Spread.of(run.reduction for run in runs),
        improved=sum(cell.expanded < cell.baseline for cell in cells),
        rows=len(rows),
        changed=float(diverged.mean()),
        certified=float(certified.mean()),
        broken_certificates=int((diverged & certified).sum()),
        mean_regret=float(rows.selection_regret.mean()),
        candidate_pairs=_count(rows.candidate_pairs),
        bound_violations=_count(rows.bound_violations),
    )


def require_two_tasks(tasks: Sequence[str], runs: Iterable[str]) -> None:
    """Rejects checkpoints of which a run has one task. Raises ArgumentError."""
    for (run,), held in groups(runs).items():
        found = {tasks[index] for index in held}
        if len(found) < 2:
            why = "the regression leaves one task out, so each run needs at least two"
            raise ArgumentError("task", f"run {run} has one task, {found.pop()}; {why}")


def _count(column: Numbers) -> int | None:
    return None if np.isnan(column).any() else int(column.sum())


def _cells(run: str, rows: PlannerRows, parameters: PlannerParameters) -> list[PlannerCell]:
    target = np.log1p(rows.selection_regret)
    features = [
        rows.severity,
        (rows.level > 0).astype(np.float64),  # one indicator: with augmentation or without
        np.log1p(parameters.feature(rows, "acpc_one_step_q90")),
        np.log1p(parameters.feature(rows, "clean_gap")),
    ]
    added = np.log1p(parameters.feature(rows, f"{parameters.distance}_q90"))
    baseline = held_out_errors(features, target, rows.task, parameters.alpha)
    expanded = held_out_errors([*features, added], target, rows.task, parameters.alpha)
    return [
        PlannerCell(task, run, float(baseline[held].mean()), float(expanded[held].mean()))
        for (task,), held in groups(rows.task.tolist()).items()
    ]


def _lowered(cell: PlannerCell) -> float | None:
    """By how much ACPC lowers the error, in %."""
    return 100 * (1 - cell.expanded / cell.baseline) if cell.baseline else None


def shown(summary: PlannerSummary) -> Iterator[str | Listing]:
    """Errors by test task, their reduction over runs, certificates and bounds."""
    columns = (
        ("test task", "task"),
        ("run", "run"),
        ("baseline MAE", "baseline", ".4f"),
        ("with the feature", "expanded", ".4f"),
    )
    yield Listing(summary.cells, columns)
    lowered = ("lower error with ACPC (%)", _lowered)
    yield Listing(summary.cells, (*columns, lowered), "errors", named=2, printed=False)
    yield (
        f"the distance at the planner's horizon lowers the MAE of log(1 + regret) by "
        f"{summary.reduction.shown(100, '%')} over {len(summary.runs)} run(s); better in "
        f"{summary.improved} of {len(summary.cells)} cells"
    )
    yield (
        f"{summary.changed:.1%} of {summary.rows} paired runs diverged, "
        f"{summary.certified:.1%} were certified, {summary.broken_certificates} "
        f"certificates broken; mean regret {summary.mean_regret:.4g}"
    )
    if summary.candidate_pairs is not None:
        found = f"{summary.bound_violations} violations in {summary.candidate_pairs}"
        yield f"bounds: {found} candidate pairs"


STUDY = Study(
    "planner",
    "Does ACPC reflect what a changed plan costs the clean model?",
    summarise,
    shown,
    "15.2 +- 2.0% over 3 runs; better in 12 of 12 cells",
    (
        "acpc study run planner --checkpoints checkpoints.csv --anchors 100 --out planner/",
        "acpc study run planner --rows planner/rows.csv --protocol released",
    ),
    Ask(PlannerStudy()),
    check=lambda rows, _: require_two_tasks(*columns_of(rows, "task", "run").values()),
)
