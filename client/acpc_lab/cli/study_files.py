"""Commands of ``acpc study`` that need no server: studies of a file, studies in a folder."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import typer
from acpc_client import Result, save_result
from acpc_client.errors import ArgumentError

from acpc_lab import studies
from acpc_lab.cli import render
from acpc_lab.cli.commands import command
from acpc_lab.cli.options import Answered, Exit, output_option, read_numbers, reported
from acpc_lab.cli.study_run import Output, Reading, RowsFile, file_source, with_columns
from acpc_lab.studies import bundle
from acpc_lab.studies import verify as verify_bundle
from acpc_lab.tables import read_rows, to_csv

app = typer.Typer()
Folder = Annotated[
    Path, typer.Argument(metavar="FOLDER", exists=True, file_okay=False, help="A study's folder.")
]
Points = Annotated[float, typer.Option(min=0, help="Points of clean success that may be lost.")]

_THRESHOLDS = r"""Do thresholds chosen on some tasks find the recovered checkpoints of others?

Tries the 6 x 4 grid of the paper on every nonempty proper subset of the tasks and tests each
choice on the other tasks. A row is a checkpoint of a training sweep under one visual shift. With a
column `family` it does so in each model family by itself. With `--output` it also writes the pair
that does best on all tasks, for checkpoints that come later: `acpc score --thresholds`.

**Examples**

    acpc study thresholds sweep.csv --out thresholds/
    acpc study thresholds sweep.csv --t-ir 0.2,0.3,0.5 --json
    acpc study thresholds sweep.csv --output thresholds.json
"""


@dataclass(frozen=True, kw_only=True)
class Calibrated:
    """Where thresholds for later checkpoints go, and which."""

    file: Annotated[
        Path | None,
        output_option(
            "Also write the thresholds that do best on all tasks, for acpc score --thresholds.",
            (".json",),
            "--output",
        ),
    ] = None
    family: Annotated[
        str, typer.Option(help="Whose thresholds to write, where the rows have several families.")
    ] = ""

    def write(self, evidence: studies.Evidence, source: Mapping[str, Any]) -> None:
        """Writes them, and says what to know of them.

        Raises:
            ArgumentError: The rows have several families, or no such one.
        """
        if self.file is None:
            return
        chosen = studies.calibrated(evidence.rows, evidence.parameters, self.family)
        save_result(Result("thresholds", chosen, evidence.result([source]).request), self.file)
        pair = f"relative IR at most {chosen.ir:g}, SR at least {chosen.sr:g}"
        render.note(f"wrote {self.file}: {pair}")
        for sentence in chosen.warnings:
            render.note(f"warning: {sentence}")


@dataclass(frozen=True, kw_only=True)
class Search:
    """The grid of thresholds, and what they are judged by."""

    t_ir: Annotated[
        str, typer.Option("--t-ir", metavar="A,B,...", help="Thresholds of relative IR to try.")
    ] = "0.05,0.075,0.10,0.15,0.20,0.30"
    t_sr: Annotated[
        str, typer.Option("--t-sr", metavar="A,B,...", help="Thresholds of SR to try.")
    ] = "0.80,0.85,0.90,0.95"
    recovery: Annotated[
        float, typer.Option(help="Share of the possible improvement that counts as recovered.")
    ] = 0.8
    clean_loss: Points = 5.0
    clean_gain: Annotated[
        float,
        typer.Option(help="Points by which clean success rises where recovery is more than that."),
    ] = 5.0
    reading: Reading = "paper"
    ties: Annotated[
        Literal["runs", "checkpoints"] | None,
        typer.Option(help="What early and late acceptances count; as --protocol says."),
    ] = None
    no_onset: Annotated[
        str | None,
        typer.Option(
            metavar="past|LEVELS",
            help="What a missing onset counts: one step past the grid, or a distance in levels; as "
            "--protocol says.",
        ),
    ] = None

    def parameters(self) -> studies.ThresholdParameters:
        """What was said, as the study takes it."""
        return studies.ThresholdParameters(
            read_numbers(self.t_ir, float, "--t-ir"),
            read_numbers(self.t_sr, float, "--t-sr"),
            recovery=self.recovery,
            clean_loss=self.clean_loss,
            clean_gain=self.clean_gain,
            reading=self.reading,
            ties=self.ties or "",
            no_onset=_number_or_word(self.no_onset),
        )


@command(app, help=with_columns(_THRESHOLDS, studies.SweepRows))
def thresholds(*, rows: RowsFile, search: Search, calibrated: Calibrated, output: Output) -> None:
    """Threshold selection."""
    with reported():
        output.check()
        evidence = studies.Evidence.of(
            studies.STUDIES["thresholds"], read_rows(rows, studies.SweepRows), search.parameters()
        )
        source, inputs = file_source(rows)
        output.finish(evidence, [source], inputs)
        calibrated.write(evidence, source)


def _number_or_word(text: str | None) -> str | float | None:
    try:
        return text if text is None else float(text)
    except ValueError:
        return text


_SHIFTS = r"""Does the change of the screen score agree with the change in behaviour?

A row compares an augmented checkpoint with its unaugmented reference under a shift such as blur.
Thresholds stand in the columns `t_ir` and `t_sr`, come from a threshold study (for each task, the
pair chosen on all other tasks), or are the same for all.

**Examples**

    acpc study paper shifts > pairs.csv
    acpc study shifts pairs.csv
    acpc study shifts pairs.csv --thresholds-from thresholds/ --out shifts/
"""


@command(app, help=with_columns(_SHIFTS, studies.ShiftRows))
def shifts(
    *,
    rows: RowsFile,
    t_ir: Annotated[float, typer.Option(help="Threshold of relative IR.")] = 0.30,
    t_sr: Annotated[float, typer.Option(help="Threshold of SR.")] = 0.95,
    thresholds_from: Annotated[
        Path | None, typer.Option(exists=True, file_okay=False, help="Folder of a threshold study.")
    ] = None,
    gain: Annotated[float, typer.Option(min=0, help="Points that count as better.")] = 5.0,
    clean_loss: Points = 5.0,
    boundary: Annotated[
        float, typer.Option(min=0, help="Points by which a boundary case may miss the gain.")
    ] = 1.0,
    output: Output,
) -> None:
    """Cross-shift comparison."""
    with reported():
        output.check()
        read = read_rows(rows, studies.ShiftRows)
        source, inputs = file_source(rows)
        sources = [source]
        if thresholds_from is not None:
            chosen = bundle.read(thresholds_from)
            read = studies.chosen_elsewhere(read, chosen.evidence())
            sources.append({"kind": "study", "name": thresholds_from.name, "digest": chosen.digest})
        parameters = studies.ShiftParameters(t_ir, t_sr, gain, clean_loss, boundary)
        output.finish(
            studies.Evidence.of(studies.STUDIES["shifts"], read, parameters), sources, inputs
        )


@command(app)
def verify(*, folder: Folder, form: Answered) -> None:
    """Is a study what its folder says?

    Compares the SHA-256 of every file with the manifest, computes the summary again from the rows
    and compares every number. Exits with 0 when all is as it should be and with 1 otherwise, naming
    the first difference.

    **Example**

        acpc study verify drift/
    """
    with reported():
        found = verify_bundle(folder)
    if form.json:
        render.line(json.dumps(found.to_dict(), indent=2, allow_nan=False))
    elif found.difference is None:
        render.line(
            f"OK: {found.study} study {found.digest}: {found.files} files and {found.values} values"
        )
    if found.difference is not None:
        render.note(f"first difference: {found.difference}")
        raise typer.Exit(Exit.ERROR)


@command(app)
def plot(folder: Folder) -> None:
    """Draws the figures of a study again, from its rows. Needs no server and no GPU.

    **Example**

        acpc study plot drift/
    """
    with reported():
        held = bundle.read(folder)
        drawn = bundle.draw(held, held.evidence())
    for name in drawn.figures:
        render.line(str(folder / name))


@command(app)
def paper(
    study: Annotated[str, typer.Argument(metavar="STUDY", help="shifts or collapse.")],
) -> None:
    """Prints the rows that the paper prints, as CSV: an example of the input, and its check.

    **Example**

        acpc study paper shifts > pairs.csv && acpc study shifts pairs.csv
    """
    with reported():
        if study not in studies.PAPER_ROWS:
            wanted = ", ".join(studies.PAPER_ROWS)
            raise ArgumentError("STUDY", f"found {study!r}, wanted one of {wanted}")
        render.line(to_csv(studies.PAPER_ROWS[study]()).rstrip("\n"))
