"""The ``acpc study`` commands whose checkpoints are scored: horizons and collapse."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Annotated, Any

import typer
from acpc_client import DEFAULT_TARGET, ScoreProtocol

from acpc_lab.cli.options import Json, Target, Timeout, TlsCa, read_shift
from acpc_lab.cli.study_jobs import Draws, Horizon, Seed, add
from acpc_lab.cli.study_output import Out, Parquet
from acpc_lab.cli.study_run import Anchors, AnchorSeed, Checkpoints, Command, FromRows, protocol
from acpc_lab.studies import STUDIES, AskScore, CollapseParameters, HorizonParameters
from acpc_lab.studies import cells as cell_rows

OneShift = Annotated[str, typer.Option("--shift", metavar="KIND:SEVERITY", help="The shift.")]


def _numbers(text: str, kind: type, option: str) -> tuple[Any, ...]:
    try:
        return tuple(kind(item) for item in text.split(","))
    except ValueError as error:
        raise typer.BadParameter(
            f"found {text!r}, wanted numbers like 1,2", param_hint=option
        ) from error


def horizons(
    *,
    checkpoints: Checkpoints = None,
    rows: FromRows = None,
    shift: OneShift = "gaussian_noise:0.08",
    horizon: Annotated[int, protocol("The protocol's own horizon.", 1)] = 8,
    quantile: Annotated[float, protocol("The protocol's own quantile.")] = 0.90,
    more_horizons: Annotated[str, typer.Option(metavar="A,B", help="Others to try.")] = "1,2,4",
    more_quantiles: Annotated[str, typer.Option(metavar="A,B", help="Others to try.")] = "0.8,0.95",
    draws: Draws = None,
    seed: Seed = None,
    anchors: Anchors = None,
    anchor_seed: AnchorSeed = None,
    out: Out = None,
    parquet: Parquet = False,
    target: Target = DEFAULT_TARGET,
    timeout: Timeout = None,
    tls_ca: TlsCa = None,
    as_json: Json = False,
) -> None:
    """Horizon and quantile sensitivity."""
    command = Command(
        checkpoints, rows, anchors, anchor_seed, out, parquet, as_json, target, timeout, tls_ca
    )
    asked = ScoreProtocol(
        draws=draws,
        seed=seed,
        horizon=horizon,
        quantile=quantile,
        extra_horizons=_numbers(more_horizons, int, "--more-horizons"),
        extra_quantiles=_numbers(more_quantiles, float, "--more-quantiles"),
    )
    command.run(
        STUDIES["horizons"],
        HorizonParameters(horizon, quantile),
        AskScore(read_shift(shift), asked),
        lambda answers: (cell_rows.horizon_rows(answers), {}),
    )


def collapse(
    *,
    checkpoints: Checkpoints = None,
    rows: FromRows = None,
    shift: OneShift = "gaussian_noise:0.005",
    distance_share: Annotated[
        float, typer.Option(help="Collapsed: less latent distance than this share of the largest.")
    ] = 0.01,
    draws: Draws = None,
    seed: Seed = None,
    horizon: Horizon = None,
    anchors: Anchors = None,
    anchor_seed: AnchorSeed = None,
    out: Out = None,
    parquet: Parquet = False,
    target: Target = DEFAULT_TARGET,
    timeout: Timeout = None,
    tls_ca: TlsCa = None,
    as_json: Json = False,
) -> None:
    """Collapse control."""
    command = Command(
        checkpoints, rows, anchors, anchor_seed, out, parquet, as_json, target, timeout, tls_ca
    )
    command.run(
        STUDIES["collapse"],
        CollapseParameters(distance_share),
        AskScore(read_shift(shift), ScoreProtocol(draws=draws, seed=seed, horizon=horizon)),
        lambda answers: (cell_rows.collapse_rows(answers), {}),
    )


_EXAMPLES: dict[Callable[..., None], Sequence[str]] = {
    horizons: ("acpc study horizons --checkpoints pairs.csv --more-horizons 1,4 --out horizons/",),
    collapse: (
        "acpc study collapse --checkpoints weights.csv --out collapse/",
        "acpc study paper collapse > rows.csv && acpc study collapse --rows rows.csv",
    ),
}


def add_to(app: typer.Typer) -> None:
    """Adds the commands."""
    add(app, _EXAMPLES)
