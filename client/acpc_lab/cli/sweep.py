"""``acpc sweep``."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, cast

import typer
from acpc_client import AcpcClient, save_result
from acpc_client.errors import FailedPrecondition

from acpc_lab.cli import render, sweep_tables
from acpc_lab.cli.commands import Group, command
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
from acpc_lab.sweeps import ServerAway, SubmitOptions, Sweep, SweepResults, WatchOptions, example
from acpc_lab.tables import TABLE_FORMATS, write_whole

app = typer.Typer(
    cls=Group,
    no_args_is_help=True,
    help="Scores checkpoints x shifts x severities x seeds, from one file.",
)

File = Annotated[
    Path, typer.Argument(metavar="SWEEP.YAML", exists=True, dir_okay=False, help="The sweep file.")
]
Place = Annotated[
    Path, typer.Argument(metavar="SWEEP", exists=True, help="The sweep file, or its folder.")
]
Output = Annotated[
    Path | None,
    output_option(
        "Also write this: .csv with one row per cell, or .json with all of it.",
        TABLE_FORMATS,
    ),
]


@dataclass(frozen=True, kw_only=True)
class SweepServer(FileServer):
    """The server of a sweep."""

    patience: Patience = None

    @contextmanager
    def connect(self, sweep: Sweep) -> Iterator[AcpcClient]:
        """A client."""
        spec = sweep.spec
        render.notes(spec.warnings)
        with self.client(spec.target, spec.access, patience=self.patience) as client:
            yield client


@dataclass(frozen=True, kw_only=True)
class RunMode:
    """What a run does, and its time limits."""

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
    quiet: Quiet = False

    def run(self, sweep: Sweep, server: SweepServer, *, live: bool) -> SweepResults:
        """Runs, watches or submits, and shows how it goes."""
        with server.connect(sweep) as client, shown(sweep_tables.VIEW, live=live) as on_update:
            options: SubmitOptions = {"timeout": self.timeout, "on_update": on_update}
            if self.watch:
                return sweep.watch(client, **cast(WatchOptions, options))
            options |= {"rescan": self.rescan, "drop": self.drop}
            if self.submit_only:
                return sweep.submit(client, **options)
            return sweep.run(client, **options, concurrency=self.concurrency)


@command(app)
def init(
    file: Annotated[Path, typer.Argument(metavar="SWEEP.YAML", help="The file to write.")] = Path(
        "sweep.yaml"
    ),
) -> None:
    """Writes a sweep file with every key in it, explained."""
    if file.exists():
        raise typer.BadParameter(f"{file} is there already; name another file")
    require_folder(file)
    with reported():
        write_whole(file, example(file).encode())
    render.line(f"{file}: written; change it, then run: acpc sweep check {file}")


@command(app)
def check(*, file: File, server: SweepServer, form: OutputOptions) -> None:
    """Resolves a sweep file against the server and lists its cells; submits nothing."""
    with reported():
        sweep = Sweep.load(file)
        with server.connect(sweep) as client:
            plan = sweep.preview(client)
    if form.json:
        render.line(json.dumps(plan.to_document()["cells"], indent=1))
        return
    render.listing(plan.cells, sweep_tables.PLANNED, form.format)
    render.note(f"{len(plan.cells)} cells")


@command(app)
def run(
    *,
    file: File,
    running: RunMode,
    no_gate: Annotated[
        bool, typer.Option("--no-gate", help="Exit with 0 although a cell fails the screen.")
    ] = False,
    gate: Annotated[
        Gate | None,
        typer.Option(
            help="confident: exit with 3 for what surely fails, 5 for undecided [the file's]."
        ),
    ] = None,
    family_wise: FamilyWiseOption = FamilyWise.HOLM,
    output: Output = None,
    junit: JunitOption = None,
    server: SweepServer,
    form: OutputOptions,
) -> None:
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
    if running.submit_only and (running.watch or junit is not None):
        other = "--watch" if running.watch else "--junit"
        raise typer.BadParameter(f"{other} and --submit-only exclude each other")
    with reported():
        sweep = Sweep.load(file)
        with interruptible(
            "interrupted: submitted jobs go on at the server",
            f"  go on:      acpc sweep run {file}",
            f"  cancel all: acpc sweep cancel {file}",
        ):
            results = running.run(sweep, server, live=not form.json).corrected(family_wise)
        if output is not None:
            _save(results, output)
    if running.submit_only:
        render.line(f"{sum(bool(item.operation) for item in results)} of {len(results)} submitted")
        sweep_tables.failures(results.failed)
        raise typer.Exit(Exit.JOB_ENDED_BADLY if results.failed else Exit.OK)
    chosen = None if no_gate else gate or Gate(sweep.spec.gate)
    _finish(results, chosen, form, junit=junit, file=file)


def _finish(
    results: SweepResults, gate: Gate | None, form: OutputOptions, *, junit: Path | None, file: Path
) -> None:
    sweep_tables.results_table(results, form.format)
    sweep_tables.failures(results.failed)
    render.notes(results.inconsistencies, "error")
    render.notes(results.rounding_notes)
    with reported():
        publish("acpc sweep", cases_of(results, gate), junit, str(file))
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


@command(app)
def status(
    *,
    file: File,
    offline: Annotated[
        bool, typer.Option("--offline", help="Only what this machine knows; ask no server.")
    ] = False,
    family_wise: FamilyWiseOption = FamilyWise.HOLM,
    server: SweepServer,
    form: OutputOptions,
) -> None:
    """Shows where a sweep is; asks the server once about the jobs under way."""
    with reported():
        sweep = Sweep.load(file)
        results = sweep.results()
        if not offline and results.unfinished:
            try:
                with server.connect(sweep) as client:
                    results = sweep.refresh(client)
            except ServerAway as error:
                render.note(f"as of the last contact: {error.message}")
            except FailedPrecondition as error:
                render.note(f"as of its journal: {error.message}")
    results = results.corrected(family_wise)
    sweep_tables.results_table(results, form.format)
    if form.format in (Format.NAME, Format.JSON):
        return
    sweep_tables.failures(results.failed)
    render.line(results.headline())


@command(app, "results")
def export(
    *,
    place: Place,
    output: Output = None,
    anchors: Annotated[
        bool, typer.Option("--anchors", help="One row per cell and anchor instead of per cell.")
    ] = False,
    family_wise: FamilyWiseOption = FamilyWise.HOLM,
    form: OutputOptions,
) -> None:
    """Exports what was measured; prints CSV without `--output`. Asks no server."""
    if form.json and (anchors or output is not None):
        raise typer.BadParameter(
            "prints the whole result; give neither --anchors nor --output", param_hint="--json"
        )
    with reported():
        results = SweepResults.open(place).corrected(family_wise)
        if form.json:
            sweep_tables.results_table(results, Format.JSON)
            return
        rows = results.anchor_rows() if anchors else results.rows()
        if output is None:
            render.line(rows.to_csv().rstrip("\n"))
            return
        if anchors:
            rows.save(output)
        else:
            _save(results, output)
    render.line(f"{output}: {len(rows)} rows")


def _save(results: SweepResults, output: Path) -> None:
    """Writes one row per cell, or the whole result as JSON."""
    if output.suffix == ".json":
        save_result(results.result(), output)
    else:
        results.rows().save(output)


@command(app)
def cancel(*, file: File, server: SweepServer) -> None:
    """Asks for every job under way to be cancelled; `run` takes the sweep up again."""
    with reported():
        sweep = Sweep.load(file)
        with server.connect(sweep) as client:
            asked = sweep.cancel(client)
    render.line(f"{asked} cancellations requested")
