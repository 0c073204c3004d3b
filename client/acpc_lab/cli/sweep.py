"""``acpc sweep``."""

import json
from pathlib import Path
from typing import Annotated

import typer
from acpc.contract import percent
from acpc_client import AcpcClient, Outcome, save_result
from acpc_client.errors import FailedPrecondition

from acpc_lab.cli import render
from acpc_lab.cli.command import Command, Exit, group
from acpc_lab.cli.follow import shown
from acpc_lab.cli.gates import REFERENCE, Case, JunitOption, reason, settle
from acpc_lab.cli.options import (
    Concurrency,
    CorrectionOption,
    Followed,
    Gate,
    Printed,
    Server,
    interruptible,
    out_option,
)
from acpc_lab.cli.table import WIDE, Column, Format
from acpc_lab.evidence import Correction
from acpc_lab.sweeps import COLUMNS as RESULT_COLUMNS
from acpc_lab.sweeps import CellResult, ServerAway, Sweep, SweepResults
from acpc_lab.tables import TABLE_FORMATS

app = group("sweep", "Scores checkpoints x shifts x severities x seeds, from one file.")
Out = Annotated[
    Path | None,
    out_option("Also write this: .csv with one row per cell, or .json with all.", TABLE_FORMATS),
]


class _File(Server):
    """A sweep file, and the server of the sweep.

    Attributes:
        file: The sweep file.
    """

    file: Annotated[Path, typer.Argument(metavar="SWEEP.YAML", exists=True)]

    def asking(self, sweep: Sweep) -> AcpcClient:
        render.notes(sweep.spec.warnings)
        return self.client()


@app.command("run", cls=Command)
class Run(Followed, _File):
    r"""Runs a sweep: submits its cells, follows them, keeps their scores beside the file.

    Run it again after any interruption, of the network, of this machine or of the server: cells
    that are done are not repeated, and jobs under way are found again, also without the folder
    beside the file. A cell that fails does not stop the others. `acpc init sweep.yaml` writes a
    file to begin with.

    **Examples**

        acpc sweep run sweep.yaml
        acpc sweep run sweep.yaml --submit-only        # close the lid; later:
        acpc sweep run sweep.yaml --watch
        acpc sweep run gate.yaml --gate confident --out gate.csv || exit 1
        acpc sweep run gate.yaml --junit gate.xml      # for the CI system's list of tests

    The exit code is that of the worst cell. A checkpoint that is its own reference is there for
    comparison and does not count. With `--submit-only`: 0 all submitted, 4 some rejected.

    Attributes:
        watch: Follow what was submitted; submit nothing.
        submit_only: Submit every cell at once, and leave.
        rescan: Resolve names again: new checkpoints join the sweep.
        drop: Leave out submitted cells the file no longer has.
        no_gate: Exit with 0 although a cell fails the screen.
        gate: confident: exit with 3 for what surely fails, 5 for undecided [the file's].
    """

    watch: bool = False
    submit_only: bool = False
    rescan: bool = False
    drop: bool = False
    concurrency: Concurrency = None
    no_gate: bool = False
    gate: Gate | None = None
    correction: CorrectionOption = Correction.HOLM
    out: Out = None
    junit: JunitOption = None

    def __call__(self) -> None:
        if self.submit_only and (self.watch or self.junit is not None):
            other = "--watch" if self.watch else "--junit"
            raise typer.BadParameter(f"{other} and --submit-only exclude each other")
        sweep = Sweep.load(self.file)
        words = (
            "interrupted: submitted jobs go on at the server",
            f"  go on:      acpc sweep run {self.file}",
            f"  cancel all: acpc cancel {self.file}",
        )
        with (
            interruptible(words),
            self.asking(sweep) as client,
            shown(*CELLS, live=not self.json) as on_update,
        ):
            results = sweep.run(
                client,
                submit=not self.watch,
                follow=not self.submit_only,
                timeout=self.timeout,
                on_update=on_update,
                rescan=self.rescan,
                drop=self.drop,
                concurrency=self.concurrency,
            ).corrected(self.correction)
        if self.out is not None:
            _save(results, self.out)
        if self.submit_only:
            sent = sum(bool(item.operation) for item in results)
            render.line(f"{sent} of {len(results)} submitted")
            failures(results.failed)
            raise typer.Exit(Exit.JOB_ENDED_BADLY if results.failed else Exit.OK)
        self._finish(results, None if self.no_gate else self.gate or Gate(sweep.spec.gate))

    def _finish(self, results: SweepResults, gate: Gate | None) -> None:
        results_table(results, self.form)
        failures(results.failed)
        for sentence in results.inconsistencies:
            render.problem(sentence)
        render.notes((*results.rounding_notes, *results.reference_notes))
        code = settle("acpc sweep", _cases(results, gate), self.junit)
        outcomes = results.gated(gate or Gate.POINT)
        missing, failed = (outcomes.count(x) for x in (Outcome.UNSPECIFIED, Outcome.FAILED))
        if missing or results.inconsistencies:
            render.note(f"{missing} cells have no score")
            raise typer.Exit(Exit.JOB_ENDED_BADLY)
        if gate and all(item.is_reference for item in results):
            render.note("every checkpoint is its own reference, so nothing was judged")
            raise typer.Exit(Exit.UNDECIDED)
        if failed:
            surely = "surely " if gate is Gate.CONFIDENT else ""
            render.note(f"{failed} of {len(results)} cells {surely}fail the screen")
        elif undecided := outcomes.count(Outcome.UNDECIDED):
            unjudged = any(x.sure is Outcome.INCONCLUSIVE for x in results if not x.is_reference)
            more = (
                "name a reference, without which none passes" if unjudged else "score more anchors"
            )
            render.note(f"{undecided} of {len(results)} cells are undecided: {more}")
        raise typer.Exit(code)


@app.command("show", cls=Command)
class Show(Printed, _File):
    """Shows what was measured so far; of a sweep that has not begun, the cells it would have.

    Asks the server once about the jobs under way. `-o csv` and `--out` have every number.

    **Examples**

        acpc sweep show noise.yaml --plan       # which cells the file means; submits nothing
        acpc sweep show noise.yaml              # where it is
        acpc sweep show noise.sweep --out noise.csv

    Attributes:
        plan: List the cells that the file means at this server.
        offline: Only what this machine knows; ask no server.
        anchors: In CSV: a row per cell and anchor, not per cell.
    """

    plan: bool = False
    offline: bool = False
    anchors: bool = False
    correction: CorrectionOption = Correction.HOLM
    out: Out = None

    def __call__(self) -> None:
        if self.anchors and self.form is not Format.CSV and self.out is None:
            raise typer.BadParameter("is for -o csv and --out", param_hint="--anchors")
        if self.file.is_dir():
            results = SweepResults.open(self.file)
        else:
            sweep = Sweep.load(self.file)
            if self.plan or not (self.offline or sweep.folder.exists()):
                self._plan(sweep)
                return
            results = self._now(sweep)
        results = results.corrected(self.correction)
        if self.out is not None:
            count = _save(results, self.out, self.anchors)
            render.line(f"{self.out}: {count} rows")
        elif self.form is Format.CSV:
            rows = results.anchor_rows() if self.anchors else results.rows()
            render.line(rows.to_csv().rstrip("\n"))
        else:
            results_table(results, self.form)
            if not self.json:
                failures(results.failed)
                render.prose(results.headline())

    def _plan(self, sweep: Sweep) -> None:
        with self.asking(sweep) as client:
            plan = sweep.preview(client)
        if self.json:
            render.line(json.dumps(plan.to_document()["cells"], indent=1))
            return
        render.listing(plan.cells, _PLANNED, self.form)
        render.note(f"{len(plan.cells)} cells")

    def _now(self, sweep: Sweep) -> SweepResults:
        results = sweep.results()
        if not self.offline and not all(item.state.done for item in results):
            try:
                with self.asking(sweep) as client:
                    return sweep.run(client, submit=False, follow=False)
            except ServerAway as error:
                render.note(f"as of the last contact: {error.message}")
            except FailedPrecondition as error:
                render.note(f"as of its journal: {error.message}")
        return results


def _cases(results: SweepResults, gate: Gate | None) -> list[Case]:
    """A case per cell, as the gate over all of them counts it; without a gate nothing fails."""
    cases = []
    for item, outcome in zip(results, results.gated(gate or Gate.POINT), strict=True):
        if item.score is None:
            message = f"{item.state.value}: {item.error or 'it has no score'}"
        else:
            message = REFERENCE if item.is_reference else reason(item.score, gate)
        allowed = gate is None and item.score is not None
        cases.append(Case(item.cell.title, Outcome.PASSED if allowed else outcome, message))
    return cases


def _save(results: SweepResults, out: Path, anchors: bool = False) -> int:
    """Writes one row per cell or anchor, or the whole result as JSON."""
    rows = results.anchor_rows() if anchors else results.rows()
    if out.suffix == ".json" and not anchors:
        save_result(results.result(), out)
    else:
        rows.save(out)
    return len(rows)


_MAX_ROWS = 60


def results_table(results: SweepResults, form: Format = Format.TABLE) -> None:
    """The cells on stdout, and what is sure of all; as a table at most one screen of them."""
    if form is Format.JSON:
        render.line(results.result().to_json(indent=1))
        return
    known = any(item.evidence is not None for item in results)
    if known:
        from acpc_lab.report import claims, failing, from_sweep  # noqa: PLC0415  slow to import

        data = from_sweep(results)
        for sentence in [*claims(data), *failing(data)]:
            render.prose(sentence)
    most = _MAX_ROWS if form is Format.TABLE else len(results)
    render.listing(results.cells[:most], (*COLUMNS, *(_SURE if known else ())), form)
    if len(results) > most:
        render.prose(f"and {len(results) - most} more: -o wide")
    for score in [item.score for item in results if item.score][:1]:
        render.prose(score.meaning())
    if results.limits:
        render.columns(results.limits[:most], *_LIMITS)


def failures(items: tuple[CellResult, ...]) -> None:
    """Why cells have no score, on stderr."""
    for item in items[:_MAX_ROWS]:
        why = f" ({item.error})" if item.error else ""
        job = f" {item.operation}" if item.operation else ""
        render.problem(f"{item.cell.title}: {item.state.value}{job}{why}")


def _judged(item: CellResult, outcome: Outcome | None) -> str:
    """An outcome, where there is one: a checkpoint is never judged against itself."""
    if item.score is None or outcome is None:
        return "-"
    return "reference" if item.is_reference else outcome.name


_LIMITS = (
    ("checkpoint", "checkpoint"),
    ("holds up to", lambda limit: f"{limit.unit} {limit.brief}"),
    ("interval", "interval"),
    ("breaks by", lambda limit: limit.broken_by or "-"),
    ("strongest", "strongest"),
)
_PLANNED = (
    Column("cell", "title"),
    Column("reference", lambda cell: cell.reference.name if cell.reference else "none", rank=1),
    Column("labels", lambda x: " ".join(f"{k}={v}" for k, v in x.labels.items()), rank=2),
)
_SHOWN = ("shift", "seed", "state", "ir_relative", "sr", "skill")
COLUMNS = (
    Column("checkpoint", "name"),
    *(
        Column(column.title or column.name, column.text, column.spec, column.rank)
        for column in RESULT_COLUMNS
        if column.name in _SHOWN
    ),
    Column("verdict", lambda x: _judged(x, x.score and x.score.verdict.outcome)),
)
_SURE = (
    Column("IR interval", lambda item: str(item.interval("ir_relative") or "-"), rank=4),
    Column("SR interval", lambda item: str(item.interval("sr") or "-"), rank=5),
    Column(
        "for sure",
        lambda x: _judged(x, x.among.outcome if x.among else x.sure),
        rank=1,
    ),
    Column("draws not seen", lambda x: (found := x.value("unseen")) and percent(found), rank=WIDE),
    Column("judged alone", lambda x: _judged(x, x.sure), rank=WIDE),
)


def in_words(item: CellResult) -> str:
    """A score in a few words; empty without one."""
    if item.score is None:
        return ""
    ir, sr, _, verdict = (column.cell(item) for column in COLUMNS[-4:])
    return f"relative IR {ir}, SR {sr}, {verdict}"


CELLS = (
    "cells",
    "asking the server for its checkpoints",
    lambda task: in_words(CellResult(cell=task.cell, score=task.score)),
)
"""How a run over cells is shown."""
