"""``acpc sweep``."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer
from acpc_client import AcpcClient, save_result
from acpc_client.errors import FailedPrecondition

from acpc_lab.cli import render, sweep_tables
from acpc_lab.cli.command import Command, Options, group
from acpc_lab.cli.gates import JunitOption, cases_of, publish
from acpc_lab.cli.options import (
    Concurrency,
    Exit,
    FamilyWiseOption,
    FileServer,
    Gate,
    OutputOptions,
    Patience,
    Quiet,
    interruptible,
    output_option,
    reported,
    require_folder,
)
from acpc_lab.cli.progress import shown
from acpc_lab.cli.table import Format
from acpc_lab.evidence import FamilyWise
from acpc_lab.sweeps import RunOptions, ServerAway, Sweep, SweepResults, example
from acpc_lab.tables import TABLE_FORMATS, write_whole

app = group("sweep", "Scores checkpoints x shifts x severities x seeds, from one file.")
Output = Annotated[
    Path | None,
    output_option(
        "Also write this: .csv with one row per cell, or .json with all of it.",
        TABLE_FORMATS,
    ),
]


@dataclass(frozen=True, kw_only=True)
class _File(FileServer):
    """A sweep file, and the server of the sweep."""

    file: Annotated[
        Path,
        typer.Argument(metavar="SWEEP.YAML", exists=True, dir_okay=False, help="The sweep file."),
    ]
    patience: Patience = None

    @contextmanager
    def connect(self, sweep: Sweep) -> Iterator[AcpcClient]:
        """A client."""
        spec = sweep.spec
        render.notes(spec.warnings)
        with self.client(spec.target, spec.access, patience=self.patience) as client:
            yield client


@app.command("init", cls=Command)
@dataclass(frozen=True, kw_only=True)
class Init(Options):
    """Writes a sweep file with every key in it, explained."""

    file: Annotated[Path, typer.Argument(metavar="SWEEP.YAML", help="The file to write.")] = Path(
        "sweep.yaml"
    )

    def run(self) -> None:
        """Writes it."""
        file = self.file
        if file.exists():
            raise typer.BadParameter(f"{file} is there already; name another file")
        require_folder(file)
        with reported():
            write_whole(file, example(file).encode())
        render.line(f"{file}: written; change it, then run: acpc sweep check {file}")


@app.command("check", cls=Command)
@dataclass(frozen=True, kw_only=True)
class Check(OutputOptions, _File):
    """Resolves a sweep file against the server and lists its cells; submits nothing."""

    def run(self) -> None:
        """Lists the cells."""
        with reported():
            sweep = Sweep.load(self.file)
            with self.connect(sweep) as client:
                plan = sweep.preview(client)
        if self.json:
            render.line(json.dumps(plan.to_document()["cells"], indent=1))
            return
        render.listing(plan.cells, sweep_tables.PLANNED, self.form)
        render.note(f"{len(plan.cells)} cells")


@app.command("run", cls=Command)
@dataclass(frozen=True, kw_only=True)
class Run(OutputOptions, _File):
    r"""Runs a sweep: submits its cells, follows them, keeps their scores beside the file.

    Run it again after any interruption, of the network, of this machine or of the server: cells
    that are done are not repeated, and jobs under way are found again, also without the folder
    beside the file. A cell that fails does not stop the others.

    **Examples**

        acpc sweep run sweep.yaml
        acpc sweep run sweep.yaml --submit-only        # close the lid; later:
        acpc sweep run sweep.yaml --watch
        acpc sweep run gate.yaml --gate confident --output gate.csv || exit 1
        acpc sweep run gate.yaml --junit gate.xml      # for the CI system's list of tests

    **Exit codes**: 0 every cell passed, or was inconclusive without a reference (a checkpoint that
    is its own reference is there for comparison and does not count); 3 a cell failed the screen
    (0 with `--no-gate`); 5 nothing was judged, or, with `--gate confident`, none surely fails and
    one is undecided or has no reference;
    4 a cell has no score, or its inputs changed at the server meanwhile; 1 the server rejected a
    call, was away for too long, or the time was over; 2 wrong usage or a wrong sweep file;
    130 interrupted, and the jobs go on. With `--submit-only`: 0 all submitted, 4 some rejected.
    """

    watch: Annotated[
        bool, typer.Option("--watch", help="Follow what was submitted; submit nothing.")
    ] = False
    submit_only: Annotated[
        bool, typer.Option("--submit-only", help="Submit every cell at once, and leave.")
    ] = False
    rescan: Annotated[
        bool, typer.Option("--rescan", help="Resolve names again: new checkpoints join the sweep.")
    ] = False
    drop: Annotated[
        bool, typer.Option("--drop", help="Leave out submitted cells the file no longer has.")
    ] = False
    concurrency: Concurrency = None
    timeout: Annotated[
        float | None, typer.Option(min=0.001, metavar="SECONDS", help="For the whole run [none].")
    ] = None
    no_gate: Annotated[
        bool, typer.Option("--no-gate", help="Exit with 0 although a cell fails the screen.")
    ] = False
    gate: Annotated[
        Gate | None,
        typer.Option(
            help="confident: exit with 3 for what surely fails, 5 for undecided [the file's]."
        ),
    ] = None
    family_wise: FamilyWiseOption = FamilyWise.HOLM
    output: Output = None
    junit: JunitOption = None
    quiet: Quiet = False

    def run(self) -> None:
        """Runs, watches or submits; prints the results, and gates."""
        if self.submit_only and (self.watch or self.junit is not None):
            other = "--watch" if self.watch else "--junit"
            raise typer.BadParameter(f"{other} and --submit-only exclude each other")
        with reported():
            sweep = Sweep.load(self.file)
            with interruptible(
                "interrupted: submitted jobs go on at the server",
                f"  go on:      acpc sweep run {self.file}",
                f"  cancel all: acpc sweep cancel {self.file}",
            ):
                results = self._followed(sweep).corrected(self.family_wise)
            if self.output is not None:
                _save(results, self.output)
        if self.submit_only:
            sent = sum(bool(item.operation) for item in results)
            render.line(f"{sent} of {len(results)} submitted")
            sweep_tables.failures(results.failed)
            raise typer.Exit(Exit.JOB_ENDED_BADLY if results.failed else Exit.OK)
        self._finish(results, None if self.no_gate else self.gate or Gate(sweep.spec.gate))

    def _followed(self, sweep: Sweep) -> SweepResults:
        """Runs, watches or submits, and shows how it goes."""
        live = not self.json
        with self.connect(sweep) as client, shown(sweep_tables.VIEW, live=live) as on_update:
            options: RunOptions = {"timeout": self.timeout, "on_update": on_update}
            if self.watch:
                return sweep.watch(client, **options)
            options |= {"rescan": self.rescan, "drop": self.drop}
            if self.submit_only:
                return sweep.submit(client, **options)
            return sweep.run(client, **options | {"concurrency": self.concurrency})

    def _finish(self, results: SweepResults, gate: Gate | None) -> None:
        sweep_tables.results_table(results, self.form)
        sweep_tables.failures(results.failed)
        render.notes(results.inconsistencies, "error")
        render.notes((*results.rounding_notes, *results.reference_notes))
        with reported():
            publish("acpc sweep", cases_of(results, gate), self.junit, str(self.file))
        if results.failed or results.unfinished or results.inconsistencies:
            render.note(f"{len(results.failed) + len(results.unfinished)} cells have no score")
            raise typer.Exit(Exit.JOB_ENDED_BADLY)
        if gate and all(item.is_reference for item in results):
            render.note("every checkpoint is its own reference, so nothing was judged")
            raise typer.Exit(Exit.UNDECIDED)
        if gate is Gate.CONFIDENT:
            raise typer.Exit(sweep_tables.confident_exit(results))
        if results.rejected:
            render.note(f"{len(results.rejected)} of {len(results)} cells fail the screen")
            raise typer.Exit(Exit.SCREEN_FAILED if gate else Exit.OK)


@app.command("status", cls=Command)
@dataclass(frozen=True, kw_only=True)
class Status(OutputOptions, _File):
    """Shows where a sweep is; asks the server once about the jobs under way."""

    offline: Annotated[
        bool, typer.Option("--offline", help="Only what this machine knows; ask no server.")
    ] = False
    family_wise: FamilyWiseOption = FamilyWise.HOLM

    def run(self) -> None:
        """Shows it."""
        with reported():
            sweep = Sweep.load(self.file)
            results = sweep.results()
            if not self.offline and results.unfinished:
                try:
                    with self.connect(sweep) as client:
                        results = sweep.refresh(client)
                except ServerAway as error:
                    render.note(f"as of the last contact: {error.message}")
                except FailedPrecondition as error:
                    render.note(f"as of its journal: {error.message}")
        results = results.corrected(self.family_wise)
        sweep_tables.results_table(results, self.form)
        if self.form in (Format.NAME, Format.JSON):
            return
        sweep_tables.failures(results.failed)
        render.line(results.headline())


@app.command("results", cls=Command)
@dataclass(frozen=True, kw_only=True)
class Export(OutputOptions):
    """Exports what was measured; prints CSV without `--output`. Asks no server."""

    place: Annotated[
        Path, typer.Argument(metavar="SWEEP", exists=True, help="The sweep file, or its folder.")
    ]
    output: Output = None
    anchors: Annotated[
        bool, typer.Option("--anchors", help="One row per cell and anchor instead of per cell.")
    ] = False
    family_wise: FamilyWiseOption = FamilyWise.HOLM

    def run(self) -> None:
        """Writes or prints it."""
        if self.json and (self.anchors or self.output is not None):
            raise typer.BadParameter(
                "prints the whole result; give neither --anchors nor --output", param_hint="--json"
            )
        with reported():
            results = SweepResults.open(self.place).corrected(self.family_wise)
            if self.json:
                sweep_tables.results_table(results, Format.JSON)
                return
            rows = results.anchor_rows() if self.anchors else results.rows()
            if self.output is None:
                render.line(rows.to_csv().rstrip("\n"))
                return
            if self.anchors:
                rows.save(self.output)
            else:
                _save(results, self.output)
        render.line(f"{self.output}: {len(rows)} rows")


def _save(results: SweepResults, output: Path) -> None:
    """Writes one row per cell, or the whole result as JSON."""
    if output.suffix == ".json":
        save_result(results.result(), output)
    else:
        results.rows().save(output)


@app.command("cancel", cls=Command)
@dataclass(frozen=True, kw_only=True)
class Cancel(_File):
    """Asks for every job under way to be cancelled; `run` takes the sweep up again."""

    def run(self) -> None:
        """Asks for it."""
        with reported():
            sweep = Sweep.load(self.file)
            with self.connect(sweep) as client:
                asked = sweep.cancel(client)
        render.line(f"{asked} cancellations requested")
