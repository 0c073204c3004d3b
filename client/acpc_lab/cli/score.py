"""``acpc score``."""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from typing import Annotated

import typer
from acpc_client import DatasetAnchors, ScoreProtocol, Thresholds

from acpc_lab.cli import render
from acpc_lab.cli.follow import follow, submitting
from acpc_lab.cli.options import Json, ScoreOutput, Server, Shift, protocol, read_shift, said


@dataclass(frozen=True, kw_only=True)
class Source:
    """Where the anchors of a score come from."""

    dataset: Annotated[
        str | None, typer.Option(help="HDF5 file below the server's dataset root.")
    ] = None
    task: Annotated[str | None, typer.Option(help="Task preset, or task file at the server.")] = (
        None
    )
    anchor_set: Annotated[
        str | None,
        typer.Option(
            metavar="DIGEST", help="Anchor set, in place of --dataset and --task; see acpc anchors."
        ),
    ] = None
    anchors: Annotated[int | None, protocol("Anchors n [100].", 1)] = None
    anchor_seed: Annotated[int | None, protocol("Seed of the anchors [9101].", 0)] = None

    def read(self) -> DatasetAnchors | str:
        """The dataset, or the digest of the set.

        Raises:
            typer.BadParameter: Both a dataset and a set are named, or neither.
        """
        others = (self.dataset, self.task, self.anchors, self.anchor_seed)
        if self.anchor_set is not None and others == (None,) * 4:
            return self.anchor_set
        if self.anchor_set is None and self.dataset is not None and self.task is not None:
            drawn = said(count=self.anchors, seed=self.anchor_seed)
            return DatasetAnchors(self.dataset, self.task, **drawn)
        raise typer.BadParameter(
            "give --dataset and --task, or --anchor-set alone: a set has its anchors already",
            param_hint="--dataset",
        )


@dataclass(frozen=True, kw_only=True)
class Measures:
    """How IR and SR are measured, and what passes."""

    draws: Annotated[int | None, protocol("Draws M per anchor [5].", 1)] = None
    seed: Annotated[int | None, protocol("Seed of the draws [0].", 0)] = None
    horizon: Annotated[int | None, protocol("Predicted steps H [8].", 1)] = None
    quantile: Annotated[float | None, protocol("Quantile of IR [0.90].")] = None
    margin: Annotated[float | None, protocol("Margin of SR [0.10].")] = None
    t_ir: Annotated[float | None, protocol("Largest relative IR that passes [0.30].")] = None
    t_sr: Annotated[float | None, protocol("Smallest SR that passes [0.95].")] = None

    def protocol(self) -> ScoreProtocol:
        """The protocol; what was not said is the paper's."""
        names = ("draws", "seed", "horizon", "quantile", "margin")
        return ScoreProtocol(**said(**{name: getattr(self, name) for name in names}))

    def thresholds(self) -> Thresholds:
        """The thresholds; what was not said is the paper's."""
        return Thresholds(**said(ir=self.t_ir, sr=self.t_sr))


def score(
    *,
    checkpoint: Annotated[str, typer.Argument(help="Checkpoint at the server.")],
    shift: Shift,
    source: Source,
    reference: Annotated[
        str | None,
        typer.Option(help="Unaugmented checkpoint of the same task; without it none can pass."),
    ] = None,
    measures: Measures,
    request_id: Annotated[
        str | None, typer.Option(help="The same id gives the same job, however often it is sent.")
    ] = None,
    no_wait: Annotated[
        bool, typer.Option("--no-wait", help="Print the job's name and leave.")
    ] = False,
    output: ScoreOutput = None,
    server: Server,
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
    reference: SR is below its threshold); 4 the job failed or was cancelled; 1 error, also
    a server that was away for too long while the job goes on; 2 usage;
    130 interrupted.
    """
    perturbation, anchors, given = read_shift(shift), source.read(), measures
    with server.connect() as client:
        with submitting(request_id or str(uuid.uuid4())) as named:
            job = client.score_checkpoint(
                checkpoint,
                anchors,
                perturbation,
                reference=reference,
                protocol=given.protocol(),
                thresholds=given.thresholds(),
                request_id=named,
            )
        if no_wait:
            render.line(job.submitted.to_json(indent=2) if as_json else job.name)
            return
        render.note(f"{job.name}: submitted")
        follow(client, job.name, timeout=server.timeout, as_json=as_json, output=output)
