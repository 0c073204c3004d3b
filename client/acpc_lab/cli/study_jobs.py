"""The ``acpc study`` commands that measure checkpoints at a server, or take rows from a file."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any

import typer
from acpc_client import (
    DEFAULT_TARGET,
    CemBudget,
    DriftStudy,
    GeometryStudy,
    PlannerStudy,
    SensitivityStudy,
)
from acpc_client.errors import FailedPrecondition

from acpc_lab.cli import render
from acpc_lab.cli.options import Json, Target, Timeout, TlsCa, read_grid
from acpc_lab.cli.study_output import Out, Parquet, with_columns
from acpc_lab.cli.study_run import Anchors, AnchorSeed, Checkpoints, Command, FromRows, protocol
from acpc_lab.studies import (
    STUDIES,
    Arrays,
    AskStudy,
    Cell,
    CheckpointRows,
    DriftParameters,
    GeometryParameters,
    PlannerParameters,
    Rows,
    SensitivityParameters,
    embedded,
    require_one_per_run,
)
from acpc_lab.studies import cells as cell_rows

Shifts = Annotated[
    list[str],
    typer.Option(
        "--shift", metavar="KIND:SEVERITY", help="Instead of the paper's; KIND:A,B is a grid."
    ),
]
Draws = Annotated[int | None, protocol("Draws per shift.", 1)]
Seed = Annotated[int | None, protocol("Seed of the draws [0].", 0)]
Horizon = Annotated[int | None, protocol("Predicted steps H.", 1)]
Alpha = Annotated[float, protocol("Penalty of the ridge on standardised features.")]

_FILE = """

The file of `--checkpoints` is a CSV with a row per checkpoint. Jobs are noted in the folder of
`--out`: when the command is interrupted, the same command goes on."""


def _help(question: str, examples: Sequence[str]) -> str:
    lines = "\n".join(f"    {example}" for example in examples)
    text = f"{question}{_FILE}\n\n**Examples**\n\n{lines}\n"
    return with_columns(text, CheckpointRows)


def add(app: typer.Typer, commands: Mapping[Callable[..., None], Sequence[str]]) -> None:
    """Adds commands that are called as their studies are, with their examples."""
    for command, examples in commands.items():
        name = command.__name__
        app.command(name, help=_help(STUDIES[name].question, examples))(command)


def _study_rows(name: str) -> Callable[[Sequence[tuple[Cell, Any]]], tuple[Rows, Arrays]]:
    kind = STUDIES[name].rows

    def gather(answers: Sequence[tuple[Cell, Any]]) -> tuple[Rows, Arrays]:
        return cell_rows.study_rows(kind, answers), cell_rows.study_arrays(answers)

    return gather


def drift(
    *,
    checkpoints: Checkpoints = None,
    rows: FromRows = None,
    shift: Shifts = [],  # noqa: B006 - typer reads the default, nothing changes it
    draws: Draws = None,
    seed: Seed = None,
    horizon: Horizon = None,
    groups: Annotated[int | None, protocol("Groups of trajectories [16].", 2)] = None,
    alpha: Alpha = 1.0,
    anchors: Anchors = None,
    anchor_seed: AnchorSeed = None,
    out: Out = None,
    parquet: Parquet = False,
    target: Target = DEFAULT_TARGET,
    timeout: Timeout = None,
    tls_ca: TlsCa = None,
    as_json: Json = False,
) -> None:
    """Error-drift study."""
    command = Command(
        checkpoints, rows, anchors, anchor_seed, out, parquet, as_json, target, timeout, tls_ca
    )
    study = DriftStudy(read_grid(shift), draws, seed, horizon, groups)
    command.run(
        STUDIES["drift"],
        DriftParameters(alpha),
        AskStudy(study),
        _study_rows("drift"),
        require_one_per_run,
    )


def planner(
    *,
    checkpoints: Checkpoints = None,
    rows: FromRows = None,
    shift: Shifts = [],  # noqa: B006
    draws: Draws = None,
    seed: Seed = None,
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
    anchors: Anchors = None,
    anchor_seed: AnchorSeed = None,
    out: Out = None,
    parquet: Parquet = False,
    target: Target = DEFAULT_TARGET,
    timeout: Timeout = None,
    tls_ca: TlsCa = None,
    as_json: Json = False,
) -> None:
    """Planner study."""
    command = Command(
        checkpoints, rows, anchors, anchor_seed, out, parquet, as_json, target, timeout, tls_ca
    )
    study = PlannerStudy(
        read_grid(shift),
        draws,
        seed,
        CemBudget(candidates, elites, iterations, horizon),
        sampling_seed,
        history=history,
        goal_offset=goal_offset,
    )
    command.run(
        STUDIES["planner"], PlannerParameters(alpha), AskStudy(study), _study_rows("planner")
    )


def geometry(
    *,
    checkpoints: Checkpoints = None,
    rows: FromRows = None,
    shift: Shifts = [],  # noqa: B006
    draws: Draws = None,
    seed: Seed = None,
    horizon: Horizon = None,
    highlighted: Annotated[int, typer.Option(min=1, help="Histories in colour.")] = 16,
    perplexity: Annotated[float, typer.Option(help="Of t-SNE.")] = 30.0,
    tsne_seed: Annotated[int, typer.Option(min=0, help="Of t-SNE.")] = 0,
    anchors: Anchors = None,
    anchor_seed: AnchorSeed = None,
    out: Out = None,
    parquet: Parquet = False,
    target: Target = DEFAULT_TARGET,
    timeout: Timeout = None,
    tls_ca: TlsCa = None,
    as_json: Json = False,
) -> None:
    """Local geometry."""
    command = Command(
        checkpoints, rows, anchors, anchor_seed, out, parquet, as_json, target, timeout, tls_ca
    )
    parameters = GeometryParameters(highlighted, perplexity, tsne_seed)
    measured = _study_rows("geometry")

    def gather(answers: Sequence[tuple[Cell, Any]]) -> tuple[Rows, Arrays]:
        found, arrays = measured(answers)
        render.note("computing the t-SNE coordinates of the picture")
        try:
            return found, embedded(arrays, parameters)
        except FailedPrecondition as missing:
            render.note(f"no t-SNE: {missing.message}")
            return found, arrays

    study = GeometryStudy(read_grid(shift), draws, seed, horizon)
    command.run(STUDIES["geometry"], parameters, AskStudy(study), gather)


def sensitivity(
    *,
    checkpoints: Checkpoints = None,
    rows: FromRows = None,
    probes: Annotated[int | None, protocol("Probes per anchor and method [8].", 1)] = None,
    seed: Seed = None,
    horizon: Horizon = None,
    step: Annotated[
        float | None, protocol("Size of the finite differences, in [0, 1] pixels [0.001].")
    ] = None,
    anchors: Anchors = None,
    anchor_seed: AnchorSeed = None,
    out: Out = None,
    parquet: Parquet = False,
    target: Target = DEFAULT_TARGET,
    timeout: Timeout = None,
    tls_ca: TlsCa = None,
    as_json: Json = False,
) -> None:
    """Local sensitivity."""
    command = Command(
        checkpoints, rows, anchors, anchor_seed, out, parquet, as_json, target, timeout, tls_ca
    )
    command.run(
        STUDIES["sensitivity"],
        SensitivityParameters(),
        AskStudy(SensitivityStudy(probes, seed, horizon, step)),
        _study_rows("sensitivity"),
    )


_EXAMPLES: dict[Callable[..., None], Sequence[str]] = {
    drift: (
        "acpc study drift --checkpoints unaugmented.csv --out drift/",
        "acpc study drift --rows drift/rows.csv --alpha 10",
    ),
    planner: ("acpc study planner --checkpoints checkpoints.csv --anchors 100 --out planner/",),
    geometry: (
        "acpc study geometry --checkpoints pair.csv --out geometry/",
        "acpc study geometry --checkpoints pair.csv --shift blur:5,15 --out blurred/",
    ),
    sensitivity: ("acpc study sensitivity --checkpoints pair.csv --out sensitivity/",),
}


def add_to(app: typer.Typer) -> None:
    """Adds the commands."""
    add(app, _EXAMPLES)
