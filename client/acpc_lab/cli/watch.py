"""``acpc watch``."""

import json
import sys
from pathlib import Path
from typing import Annotated

import typer
from acpc_client import Outcome

from acpc_lab.cli import render
from acpc_lab.cli.cells import CELLS, in_words
from acpc_lab.cli.connection import Server
from acpc_lab.cli.follow import Case, reason, settle, shown
from acpc_lab.cli.options import Concurrency, Followed, Gate, Junit, interruptible
from acpc_lab.sweeps import load_spec
from acpc_lab.watching import Arrival, ScoredCheckpoint
from acpc_lab.watching import Watch as Watching


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
    concurrency: Concurrency = None
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
