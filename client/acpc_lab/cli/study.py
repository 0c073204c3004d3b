"""``acpc study``: the paper's studies, from rows or from checkpoints at a server."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal

import typer
from acpc_client import (
    CemBudget,
    DriftStudy,
    GeometryStudy,
    PlannerStudy,
    ScoreProtocol,
    SensitivityStudy,
)
from acpc_client.errors import ArgumentError, FailedPrecondition

from acpc_lab import studies
from acpc_lab.cli import render
from acpc_lab.cli.options import (
    PROTOCOL,
    Exit,
    Json,
    command,
    protocol,
    read_grid,
    read_numbers,
    read_shift,
    reported,
    said,
)
from acpc_lab.cli.study_run import (
    Answers,
    Output,
    Plan,
    RowsFile,
    file_source,
    measured_study,
    with_columns,
)
from acpc_lab.studies import bundle
from acpc_lab.studies import verify as verify_bundle
from acpc_lab.tables import Arrays, Rows, read_rows, to_csv

app = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode="markdown",
    help="The paper's studies on your own checkpoints: a table, figures, and a folder that can be "
    "verified and plotted again without a GPU.",
)
Folder = Annotated[
    Path, typer.Argument(metavar="FOLDER", exists=True, file_okay=False, help="A study's folder.")
]
Points = Annotated[float, typer.Option(min=0, help="Points of clean success that may be lost.")]
Horizon = Annotated[int | None, protocol("Predicted steps H.", 1)]
Draws = Annotated[int | None, protocol("Draws per shift.", 1)]
Seed = Annotated[int | None, protocol("Seed of the draws [0].", 0)]
Alpha = Annotated[float, protocol("Penalty of the ridge on standardised features.")]
OneShift = Annotated[str, typer.Option("--shift", metavar="KIND:SEVERITY", help="The shift.")]
Reading = Annotated[
    Literal["paper", "released"],
    typer.Option(
        "--protocol",
        help="Reading of the protocol: the paper's letter, or the authors' released code.",
        rich_help_panel=PROTOCOL,
    ),
]
Others = Annotated[str, typer.Option(metavar="A,B", help="Others to try.")]


@dataclass(frozen=True, kw_only=True)
class Shifts:
    """The shifts of a study and their draws."""

    shift: Annotated[
        list[str],
        typer.Option(
            "--shift", metavar="KIND:SEVERITY", help="Instead of the paper's; KIND:A,B is a grid."
        ),
    ] = field(default_factory=list)
    draws: Draws = None
    seed: Seed = None

    def said(self) -> dict[str, Any]:
        """What was given, as the studies name it."""
        return said(shifts=read_grid(self.shift), draws=self.draws, seed=self.seed)


_THRESHOLDS = r"""Do thresholds chosen on some tasks find the recovered checkpoints of others?

Tries the 6 x 4 grid of the paper on every nonempty proper subset of the tasks and tests each
choice on the other tasks. A row is a checkpoint of a training sweep under one visual shift. With a
column `family` it does so in each model family by itself.

**Examples**

    acpc study thresholds sweep.csv --out thresholds/
    acpc study thresholds sweep.csv --t-ir 0.2,0.3,0.5 --json
"""


@command(app, help=with_columns(_THRESHOLDS, studies.SweepRows))
def thresholds(
    *,
    rows: RowsFile,
    t_ir: Annotated[
        str, typer.Option("--t-ir", metavar="A,B,...", help="Thresholds of relative IR to try.")
    ] = "0.05,0.075,0.10,0.15,0.20,0.30",
    t_sr: Annotated[
        str, typer.Option("--t-sr", metavar="A,B,...", help="Thresholds of SR to try.")
    ] = "0.80,0.85,0.90,0.95",
    recovery: Annotated[
        float, typer.Option(help="Share of the possible improvement that counts as recovered.")
    ] = 0.8,
    clean_loss: Points = 5.0,
    clean_gain: Annotated[
        float,
        typer.Option(help="Points by which clean success rises where recovery is more than that."),
    ] = 5.0,
    reading: Reading = "paper",
    ties: Annotated[
        Literal["runs", "checkpoints"] | None,
        typer.Option(help="What early and late acceptances count; as --protocol says."),
    ] = None,
    no_onset: Annotated[
        str | None,
        typer.Option(
            metavar="past|LEVELS",
            help="What a missing onset counts: one step past the grid, or a distance in levels; as "
            "--protocol says.",
        ),
    ] = None,
    output: Output,
) -> None:
    """Threshold selection."""
    with reported():
        output.check()
        grids = read_numbers(t_ir, float, "--t-ir"), read_numbers(t_sr, float, "--t-sr")
        parameters = studies.ThresholdParameters(
            *grids,
            recovery=recovery,
            clean_loss=clean_loss,
            clean_gain=clean_gain,
            reading=reading,
            ties=ties or "",
            no_onset=_number_or_word(no_onset),
        )
        evidence = studies.Evidence.of(
            studies.STUDIES["thresholds"], read_rows(rows, studies.SweepRows), parameters
        )
        source, inputs = file_source(rows)
        output.finish(evidence, [source], inputs)


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


@measured_study(
    app,
    "acpc study drift --checkpoints unaugmented.csv --out drift/",
    "acpc study drift --rows drift/rows.csv --alpha 10",
)
def drift(
    *,
    sampled: Shifts,
    horizon: Horizon = None,
    groups: Annotated[int | None, protocol("Groups of trajectories [16].", 2)] = None,
    alpha: Alpha = 1.0,
) -> Plan:
    """Error-drift study."""
    study = DriftStudy(**sampled.said(), **said(horizon=horizon, groups=groups))
    return Plan(
        studies.DriftParameters(alpha), studies.AskStudy(study), check=studies.require_one_per_run
    )


@measured_study(
    app, "acpc study planner --checkpoints checkpoints.csv --anchors 100 --out planner/"
)
def planner(
    *,
    sampled: Shifts,
    sampling_seed: Annotated[int | None, protocol("Seed of CEM's samples [0].", 0)] = None,
    candidates: Annotated[int, protocol("Candidates per iteration.", 2)] = 64,
    elites: Annotated[int, protocol("Elites.", 1)] = 8,
    iterations: Annotated[int, protocol("Iterations.", 1)] = 8,
    horizon: Annotated[int, protocol("Predicted steps H.", 1)] = 5,
    history: Annotated[int | None, protocol("Newest frames the planner sees [1].", 1)] = None,
    goal_offset: Annotated[
        int | None, protocol("The goal lies so many kept frames ahead [horizon].", 1)
    ] = None,
    alpha: Alpha = 1.0,
) -> Plan:
    """Planner study."""
    study = PlannerStudy(
        **sampled.said(),
        **said(sampling_seed=sampling_seed, history=history, goal_offset=goal_offset),
        budget=CemBudget(candidates, elites, iterations, horizon),
    )
    return Plan(studies.PlannerParameters(alpha), studies.AskStudy(study))


@measured_study(
    app,
    "acpc study geometry --checkpoints pair.csv --out geometry/",
    "acpc study geometry --checkpoints pair.csv --shift blur:5,15 --out blurred/",
)
def geometry(
    *,
    sampled: Shifts,
    horizon: Horizon = None,
    highlighted: Annotated[int, typer.Option(min=1, help="Histories in colour.")] = 16,
    perplexity: Annotated[float, typer.Option(help="Of t-SNE.")] = 30.0,
    tsne_seed: Annotated[int, typer.Option(min=0, help="Of t-SNE.")] = 0,
) -> Plan:
    """Local geometry."""
    parameters = studies.GeometryParameters(highlighted, perplexity, tsne_seed)

    def gather(answers: Answers) -> tuple[Rows, Arrays]:
        rows, arrays = (
            studies.study_rows(studies.STUDIES["geometry"].rows, answers),
            studies.study_arrays(answers),
        )
        render.note("computing the t-SNE coordinates of the picture")
        try:
            return rows, studies.embedded(arrays, parameters)
        except FailedPrecondition as missing:
            render.note(f"no t-SNE: {missing.message}")
            return rows, arrays

    study = GeometryStudy(**sampled.said(), **said(horizon=horizon))
    return Plan(parameters, studies.AskStudy(study), gather)


@measured_study(app, "acpc study sensitivity --checkpoints pair.csv --out sensitivity/")
def sensitivity(
    *,
    probes: Annotated[int | None, protocol("Probes per anchor and method [8].", 1)] = None,
    seed: Seed = None,
    horizon: Horizon = None,
    step: Annotated[
        float | None, protocol("Size of the finite differences, in [0, 1] pixels [0.001].")
    ] = None,
) -> Plan:
    """Local sensitivity."""
    return Plan(
        studies.SensitivityParameters(),
        studies.AskStudy(
            SensitivityStudy(**said(probes=probes, seed=seed, horizon=horizon, step=step))
        ),
    )


@measured_study(
    app, "acpc study horizons --checkpoints pairs.csv --more-horizons 1,4 --out horizons/"
)
def horizons(
    *,
    shift: OneShift = "gaussian_noise:0.08",
    horizon: Annotated[int, protocol("The protocol's own horizon.", 1)] = 8,
    quantile: Annotated[float, protocol("The protocol's own quantile.")] = 0.90,
    more_horizons: Others = "1,2,4",
    more_quantiles: Others = "0.8,0.95",
    draws: Draws = None,
    seed: Seed = None,
) -> Plan:
    """Horizon and quantile sensitivity."""
    asked = ScoreProtocol(
        **said(draws=draws, seed=seed),
        horizon=horizon,
        quantile=quantile,
        extra_horizons=read_numbers(more_horizons, int, "--more-horizons"),
        extra_quantiles=read_numbers(more_quantiles, float, "--more-quantiles"),
    )
    return Plan(
        studies.HorizonParameters(horizon, quantile),
        studies.AskScore(read_shift(shift), asked),
        lambda answers: (studies.horizon_rows(answers), {}),
    )


@measured_study(
    app,
    "acpc study collapse --checkpoints weights.csv --out collapse/",
    "acpc study paper collapse > rows.csv && acpc study collapse --rows rows.csv",
)
def collapse(
    *,
    shift: OneShift = "gaussian_noise:0.005",
    distance_share: Annotated[
        float, typer.Option(help="Collapsed: less latent distance than this share of the largest.")
    ] = 0.01,
    draws: Draws = None,
    seed: Seed = None,
    horizon: Horizon = None,
) -> Plan:
    """Collapse control."""
    return Plan(
        studies.CollapseParameters(distance_share),
        studies.AskScore(
            read_shift(shift), ScoreProtocol(**said(draws=draws, seed=seed, horizon=horizon))
        ),
        lambda answers: (studies.collapse_rows(answers), {}),
    )


@command(app)
def verify(*, folder: Folder, as_json: Json = False) -> None:
    """Is a study what its folder says?

    Compares the SHA-256 of every file with the manifest, computes the summary again from the rows
    and compares every number. Exits with 0 when all is as it should be and with 1 otherwise, naming
    the first difference.

    **Example**

        acpc study verify drift/
    """
    with reported():
        found = verify_bundle(folder)
    if as_json:
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
