"""``acpc sweep``, and ``acpc watch``, a sweep whose checkpoints arrive."""

import json
import sys
from pathlib import Path
from typing import Annotated

import typer
from acpc_client import AcpcClient, Outcome, save_result
from acpc_client.errors import ArgumentError, FailedPrecondition

from acpc_lab.cli import options, render
from acpc_lab.cli.cells import CELLS, MAX_ROWS, in_words, results_table
from acpc_lab.cli.command import Command, Exit, group
from acpc_lab.cli.connection import Server
from acpc_lab.cli.follow import REFERENCE, Case, conclude, reason, settle, shown
from acpc_lab.cli.options import CorrectionOption, Followed, Gate, Junit, Printed, interruptible
from acpc_lab.cli.render import Format
from acpc_lab.evidence import Correction
from acpc_lab.sweeps import CellResult, ServerAway, Sweep, SweepResults, load_spec
from acpc_lab.tables import TABLE_FORMATS, Quantity
from acpc_lab.watching import Arrival, ScoredCheckpoint
from acpc_lab.watching import Watch as Watching

app = group("sweep", "Scores checkpoints x shifts x severities x seeds, from one file.")
Out = Annotated[
    Path | None,
    options.out_option(
        "Also write this: .csv with one row per cell, or .json with all.", TABLE_FORMATS
    ),
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
        acpc sweep run gate.yaml --junit gate.xml      # for the CI system

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
    concurrency: options.Concurrency = None
    no_gate: bool = False
    gate: Gate | None = None
    correction: CorrectionOption = Correction.HOLM
    out: Out = None
    junit: Junit = None

    def __call__(self) -> None:
        if self.submit_only and (self.watch or self.junit is not None):
            other = "--watch" if self.watch else "--junit"
            raise ArgumentError(other, "and --submit-only exclude each other")
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
        _print(results)
        failures(results.failed)
        for sentence in results.inconsistencies:
            render.problem(sentence)
        render.notes((*results.rounding_notes, *results.reference_notes))
        gate = None if self.no_gate else self.gate or sweep.spec.gate
        named = [(item.cell.title, item) for item in results]
        if gate and all(item.is_reference and item.score for item in results):
            settle("acpc sweep", [Case(x, Outcome.PASSED, REFERENCE) for x, _ in named], self.junit)
            render.note("every checkpoint is its own reference, so nothing was judged")
            raise typer.Exit(Exit.UNDECIDED)
        conclude("acpc sweep", named, gate, self.junit, spoilt=bool(results.inconsistencies))


@app.command("show", cls=Command)
class Show(Printed, _File):
    """Shows what was measured so far; of a sweep that has not begun, the cells it would have.

    Asks the server once about the jobs under way. `-o csv` and `--out` have every number.

    **Examples**

        acpc sweep show noise.yaml --plan    # the cells it means; submits nothing
        acpc sweep show noise.yaml           # where it is
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
            raise ArgumentError("--anchors", "is for -o csv and --out")
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
            render.note(f"{self.out}: {count} rows")
        if self.form is Format.CSV:
            rows = results.anchor_rows() if self.anchors else results.rows()
            render.line(rows.to_csv().rstrip("\n"))
        else:
            _print(results)
            if not self.json:
                failures(results.failed)
                render.prose(results.headline())

    def _plan(self, sweep: Sweep) -> None:
        with self.asking(sweep) as client:
            cells = sweep.preview(client).cells
        render.listing(cells, _PLANNED, lambda cell: {"id": cell.id, **cell.to_document()})
        render.note(f"{len(cells)} cells")

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


def _print(results: SweepResults) -> None:
    if render.FORM.get() is Format.JSON:
        render.line(results.result().to_json(indent=1))
    else:
        results_table(results, correction=results.correction)


def _save(results: SweepResults, out: Path, anchors: bool = False) -> int:
    """Writes one row per cell or anchor, or the whole result as JSON."""
    rows = results.anchor_rows() if anchors else results.rows()
    if out.suffix == ".json" and not anchors:
        save_result(results.result(), out)
    else:
        rows.save(out)
    return len(rows)


def failures(items: tuple[CellResult, ...]) -> None:
    """Why cells have no score, on stderr."""
    for item in items[:MAX_ROWS]:
        why = f" ({item.error})" if item.error else ""
        job = f" {item.operation}" if item.operation else ""
        render.problem(f"{item.cell.title}: {item.state.value}{job}{why}")


_PLANNED = (
    Quantity("cell", "title"),
    Quantity("reference", lambda cell: cell.reference.name if cell.reference else "none"),
    Quantity("labels", lambda x: " ".join(f"{k}={v}" for k, v in x.labels.items()), wide=True),
)


class Watch(Followed, Server):
    r"""Scores each new checkpoint that appears at the server, once, by the cells of a sweep file.

    The sweep file is one of `acpc sweep run`; its `checkpoints` are patterns of the names to score.
    A checkpoint that the server lists is scored when it is whole, and has not changed from one look
    to the next. What is left out is named on stderr, with the reason. Those that come together are
    scored by epoch. One that is overwritten with other content is scored again.

    What is known lies in `NAME.watch` beside the sweep file, which `acpc report` and
    `acpc sweep show` read. Stop the watch in any way and start it again: it goes on where it
    was, and no checkpoint is scored twice. A server that is away is waited for.

    **Examples**

        acpc watch --sweep gate.yaml
        acpc watch runs/7 --sweep gate.yaml
        acpc watch runs --sweep gate.yaml --once

    The exit code is that of the worst checkpoint of this run, and 5 where nothing was new. Without
    `--once` a watch goes on until it is stopped. `--junit` is written when it ends.

    Attributes:
        prefix: The checkpoint, or the folder below the server's --checkpoint-root [all of it].
        sweep: The sweep file.
        once: Score what is there now, and leave: for cron and pipelines.
        interval: From one look to the next.
        gate: Which verdict counts [the file's].
    """

    sweep: Annotated[Path, typer.Option(metavar="SWEEP.YAML", exists=True, dir_okay=False)]
    prefix: Annotated[str, typer.Argument()] = ""
    once: bool = False
    interval: Annotated[float, typer.Option(min=0.1, metavar="SECONDS")] = 2.0
    concurrency: options.Concurrency = None
    gate: Gate | None = None
    junit: Junit = None

    def __call__(self) -> None:
        spec = load_spec(self.sweep)
        gate = self.gate or spec.gate
        render.notes(spec.warnings)
        cases: list[Case] = []
        verdicts: list[str | None] = []

        def tell(scored: ScoredCheckpoint) -> None:
            known = [reason(item.score, gate) for item in scored.results if item.score]
            message = "; ".join(known) or "no score"
            cases.append(Case(_named(scored.arrival), scored.outcome, message))
            verdicts.append(scored.verdict)
            self._tell(scored)

        watching = Watching(
            spec,
            self.sweep.with_name(f"{spec.name}.watch"),
            self.prefix,
            gate=gate,
            listeners=[tell],
            on_trouble=render.note,
        )
        words = "interrupted: jobs go on at the server, and the same command goes on here"
        try:
            with interruptible([words]), self.client() as client, shown(*CELLS) as on_update:
                watching.run(
                    client,
                    once=self.once,
                    interval=self.interval,
                    concurrency=self.concurrency,
                    patience=self.connection().get("patience"),
                    on_update=on_update,
                )
            if {*verdicts} <= {"reference"} and not watching.unplanned:
                nothing = (
                    "nothing was judged: no checkpoint here is new and meant by the sweep file"
                )
                render.note(f"undecided: {nothing}")
                cases.append(Case(self.prefix or "checkpoints", Outcome.UNDECIDED, nothing))
        finally:
            for arrival in watching.unplanned:
                render.problem(f"{_named(arrival)} was not scored")
                cases.append(Case(_named(arrival), Outcome.UNSPECIFIED, "was not scored"))
            code = settle("acpc watch", cases, self.junit)
        raise typer.Exit(code)

    def _tell(self, scored: ScoredCheckpoint) -> None:
        """Prints a checkpoint that has come to its end, a line or a document."""
        if self.json:
            render.line(json.dumps(scored.to_dict()))
        else:
            cells = []
            for item in scored.results:
                bad = f"{item.state.value} ({item.code}: {item.message})"
                cells.append(f"{item.cell.shift} {in_words(item) or bad}")
            epoch = scored.arrival.epoch
            number = "" if epoch is None else f" epoch {epoch}"
            verdict = scored.verdict or "no score"
            render.line(f"{_named(scored.arrival)}{number}: {verdict}: {'; '.join(cells)}")
        sys.stdout.flush()  # whoever reads a pipe is not kept waiting
        for sentence in scored.results.inconsistencies:
            render.problem(sentence)
        render.notes(scored.results.reference_notes)


def _named(arrival: Arrival) -> str:
    return f"{arrival.ref.name} {arrival.ref.weights}"
