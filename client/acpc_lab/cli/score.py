"""``acpc score``."""

from __future__ import annotations

from typing import Annotated

import typer
from acpc_client import DEFAULT_TARGET, DatasetAnchors, ScoreProtocol, Thresholds

from acpc_lab.cli import render
from acpc_lab.cli.follow import follow
from acpc_lab.cli.options import (
    Json,
    ScoreOutput,
    Shift,
    Target,
    Timeout,
    TlsCa,
    connect,
    read_shift,
)

_PROTOCOL = "Protocol (defaults: the paper's)"


def score(
    *,
    checkpoint: Annotated[str, typer.Argument(help="Checkpoint at the server.")],
    shift: Shift,
    dataset: Annotated[
        str | None, typer.Option(help="HDF5 file below the server's dataset root.")
    ] = None,
    task: Annotated[
        str | None, typer.Option(help="Task preset, or task file at the server.")
    ] = None,
    anchor_set: Annotated[
        str | None,
        typer.Option(
            metavar="DIGEST", help="Anchor set, in place of --dataset and --task; see acpc anchors."
        ),
    ] = None,
    reference: Annotated[
        str | None,
        typer.Option(help="Unaugmented checkpoint of the same task; without it none can pass."),
    ] = None,
    anchors: Annotated[
        int | None, typer.Option(min=1, help="Anchors n [100].", rich_help_panel=_PROTOCOL)
    ] = None,
    anchor_seed: Annotated[
        int | None,
        typer.Option(min=0, help="Seed of the anchors [9101].", rich_help_panel=_PROTOCOL),
    ] = None,
    draws: Annotated[
        int | None, typer.Option(min=1, help="Draws M per anchor [5].", rich_help_panel=_PROTOCOL)
    ] = None,
    seed: Annotated[
        int | None, typer.Option(min=0, help="Seed of the draws [0].", rich_help_panel=_PROTOCOL)
    ] = None,
    horizon: Annotated[
        int | None, typer.Option(min=1, help="Predicted steps H [8].", rich_help_panel=_PROTOCOL)
    ] = None,
    quantile: Annotated[
        float | None, typer.Option(help="Quantile of IR [0.90].", rich_help_panel=_PROTOCOL)
    ] = None,
    margin: Annotated[
        float | None, typer.Option(help="Margin of SR [0.10].", rich_help_panel=_PROTOCOL)
    ] = None,
    t_ir: Annotated[
        float | None,
        typer.Option(help="Largest relative IR that passes [0.30].", rich_help_panel=_PROTOCOL),
    ] = None,
    t_sr: Annotated[
        float | None,
        typer.Option(help="Smallest SR that passes [0.95].", rich_help_panel=_PROTOCOL),
    ] = None,
    request_id: Annotated[
        str | None, typer.Option(help="The same id gives the same job, however often it is sent.")
    ] = None,
    no_wait: Annotated[
        bool, typer.Option("--no-wait", help="Print the job's name and leave.")
    ] = False,
    output: ScoreOutput = None,
    target: Target = DEFAULT_TARGET,
    timeout: Timeout = None,
    tls_ca: TlsCa = None,
    as_json: Json = False,
) -> None:
    r"""Is this checkpoint fit to ship under a visual shift?

    Submits a scoring job, shows its progress, and prints the score and the verdict.
    Interrupting the wait does not stop the job.

    **Examples**

        acpc score lewm-tworooms --reference lewm-tworooms-plain \
            --dataset tworoom.h5 --task tworoom --shift gaussian_noise:0.08
        acpc score lewm-tworooms --no-wait \
            --dataset tworoom.h5 --task tworoom --shift blur:15
        acpc score lewm-tworooms --anchor-set "$DIGEST" --shift blur:15

    A training pipeline can gate on the exit code:

        acpc score "$CHECKPOINT" --reference baseline --output score.json \
            --dataset tworoom.h5 --task tworoom --shift blur:15 || exit 1

    **Exit codes**: 0 passed, or inconclusive without a reference; 3 the screen failed (without a
    reference: SR is below its threshold); 4 the job failed or was cancelled; 1 error; 2 usage;
    130 interrupted.
    """
    perturbation = read_shift(shift)
    source = _source(dataset, task, anchor_set, anchors, anchor_seed)
    with connect(target, timeout, tls_ca) as client:
        job = client.score_checkpoint(
            checkpoint,
            source,
            perturbation,
            reference=reference,
            protocol=ScoreProtocol(
                draws=draws, seed=seed, horizon=horizon, quantile=quantile, margin=margin
            ),
            thresholds=Thresholds(ir=t_ir, sr=t_sr),
            request_id=request_id,
        )
        if no_wait:
            render.line(job.submitted.to_json(indent=2) if as_json else job.name)
            return
        follow(client, job.name, timeout=timeout, as_json=as_json, output=output)


def _source(
    dataset: str | None,
    task: str | None,
    anchor_set: str | None,
    count: int | None,
    seed: int | None,
) -> DatasetAnchors | str:
    """Where the anchors come from.

    Raises:
        typer.BadParameter: Both a dataset and a set are named, or neither.
    """
    if anchor_set is not None and (dataset, task, count, seed) == (None,) * 4:
        return anchor_set
    if anchor_set is None and dataset is not None and task is not None:
        return DatasetAnchors(dataset, task, count=count, seed=seed)
    raise typer.BadParameter(
        "give --dataset and --task, or --anchor-set alone: a set has its anchors already",
        param_hint="--dataset",
    )
