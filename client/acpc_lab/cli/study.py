"""``acpc study``: the paper's studies, from rows or from checkpoints at a server."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

import typer
from acpc_client import (
    CemBudget,
    CemReturn,
    CostReduction,
    DestroyedActions,
    DriftStudy,
    GeometryStudy,
    PlannerStudy,
    Reading,
    ScoreProtocol,
    SensitivityStudy,
)
from acpc_client.errors import FailedPrecondition

from acpc_lab import studies
from acpc_lab.cli import render, study_files
from acpc_lab.cli.commands import PROTOCOL
from acpc_lab.cli.options import (
    protocol,
    read_grid,
    read_numbers,
    read_shift,
    said,
)
from acpc_lab.cli.parameters import choice
from acpc_lab.cli.study_run import (
    Answers,
    Plan,
    measured_study,
)
from acpc_lab.tables import Arrays, Rows

app = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode="markdown",
    help="The paper's studies on your own checkpoints: a table, figures, and a folder that can be "
    "verified and plotted again without a GPU.",
)
app.add_typer(study_files.app)
Horizon = Annotated[int | None, protocol("Predicted steps H.", 1)]
Draws = Annotated[int | None, protocol("Draws per shift.", 1)]
Seed = Annotated[int | None, protocol("Seed of the draws [0].", 0)]
Alpha = Annotated[float, protocol("Penalty of the ridge on standardised features.")]
OneShift = Annotated[str, typer.Option("--shift", metavar="KIND:SEVERITY", help="The shift.")]
DriftReading = Annotated[Any, choice(DriftStudy, "reading", Reading, "--protocol")]
PlannerReading = Annotated[Any, choice(PlannerStudy, "reading", Reading, "--protocol")]
Destroyed = Annotated[Any, choice(DriftStudy, "destroyed", DestroyedActions)]
Cost = Annotated[Any, choice(PlannerStudy, "cost_reduction", CostReduction, "--cost")]
Returned = Annotated[Any, choice(PlannerStudy, "returns", CemReturn)]
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
    reading: DriftReading = None,
    destroyed: Destroyed = None,
    alpha: Alpha = 1.0,
) -> Plan:
    """Error-drift study."""
    study = DriftStudy(
        **sampled.said(),
        **said(horizon=horizon, groups=groups, reading=reading, destroyed=destroyed),
    )
    return Plan(
        studies.DriftParameters(alpha), studies.AskStudy(study), check=studies.require_one_per_run
    )


@measured_study(
    app,
    "acpc study planner --checkpoints checkpoints.csv --anchors 100 --out planner/",
    "acpc study planner --rows planner/rows.csv --protocol released",
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
    cost: Cost = None,
    returns: Returned = None,
    reading: PlannerReading = None,
    pool: Annotated[
        Literal["last", "first"] | None,
        protocol("Pool of the clean run that gives the features; as --protocol says."),
    ] = None,
    distance: Annotated[
        Literal["acpc", "displacement"] | None,
        protocol("Feature at the planner's horizon: ACPC_H or r_j; as --protocol says."),
    ] = None,
    alpha: Alpha = 1.0,
) -> Plan:
    """Planner study."""
    study = PlannerStudy(
        **sampled.said(),
        **said(sampling_seed=sampling_seed, history=history, goal_offset=goal_offset),
        **said(cost_reduction=cost, returns=returns, reading=reading),
        budget=CemBudget(candidates, elites, iterations, horizon),
    )
    named = str(reading or Reading.PAPER)
    parameters = studies.PlannerParameters(alpha, named, pool or "", distance or "")
    return Plan(parameters, studies.AskStudy(study))


@measured_study(
    app,
    "acpc study geometry --checkpoints pair.csv --out geometry/",
    "acpc study geometry --checkpoints pair.csv --shift blur:5,15 --out blurred/",
)
def geometry(
    *,
    sampled: Shifts,
    horizon: Horizon = None,
    motion: Annotated[
        bool,
        typer.Option(
            "--motion",
            help="Keep the scale s_i of each anchor's clean motion, too, and the embeddings of its "
            "observed frames.",
            rich_help_panel=PROTOCOL,
        ),
    ] = False,
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

    study = GeometryStudy(**sampled.said(), **said(horizon=horizon), motion=motion)
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
    directions: Annotated[
        str | None,
        typer.Option(metavar="GROUP", help="Of the anchor set, instead of random probes."),
    ] = None,
) -> Plan:
    """Local sensitivity."""
    study = SensitivityStudy(
        **said(probes=probes, seed=seed, horizon=horizon, step=step, directions=directions)
    )
    return Plan(studies.SensitivityParameters(), studies.AskStudy(study))


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
