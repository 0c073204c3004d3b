"""``acpc score``."""

import uuid
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any

import typer
from acpc_client import (
    AcpcClient,
    CheckpointRef,
    DatasetAnchors,
    EvidenceOptions,
    Operation,
    Outcome,
    Perturbation,
    ScoreJob,
    ScoreProtocol,
    Thresholds,
    UntilDecided,
    load_thresholds,
)

from acpc_lab.cli import render
from acpc_lab.cli.command import PROTOCOL, given, sets
from acpc_lab.cli.follow import ScoreOptions, exit_of, finish, follow, submitting
from acpc_lab.cli.gates import by_gate, case_of, publish, reason
from acpc_lab.cli.options import (
    AnchorDraw,
    Digest,
    Exit,
    Gate,
    Mode,
    Options,
    Server,
    Shift,
    WeightsOption,
    as_usage,
    read_grid,
)

_PROTOCOL = (
    "reading", "draws", "seed", "horizon", "quantile", "margin", "neighbourhood", "partner_past",
    "weights", "extra_horizons", "extra_quantiles",
)  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class AnchorChoice(AnchorDraw):
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
            metavar="DIGEST",
            help="Anchor set, in place of --dataset and --task: its digest or a beginning of it, "
            "the request id of its upload, or latest.",
        ),
    ] = None

    def source(self) -> DatasetAnchors | str:
        """The dataset, or the digest of the set.

        Raises typer.BadParameter: Both a dataset and a set are named, or neither.
        """
        drawn = self.drawn()
        if self.anchor_set is not None and not drawn and (self.dataset, self.task) == (None, None):
            return self.anchor_set
        if self.anchor_set is None and self.dataset is not None and self.task is not None:
            return DatasetAnchors(self.dataset, self.task, **drawn)
        raise typer.BadParameter(
            "give --dataset and --task, or --anchor-set alone: a set has its anchors already",
            param_hint="--dataset",
        )


@dataclass(frozen=True, kw_only=True)
class MeasureChoice(Options):
    """How IR and SR are measured, and what passes."""

    reading: Annotated[Any, sets(ScoreProtocol, "reading", "--protocol")] = None
    draws: Annotated[int | None, sets(ScoreProtocol, "draws")] = None
    seed: Annotated[int | None, sets(ScoreProtocol, "seed")] = None
    horizon: Annotated[int | None, sets(ScoreProtocol, "horizon")] = None
    quantile: Annotated[float | None, sets(ScoreProtocol, "quantile")] = None
    margin: Annotated[float | None, sets(ScoreProtocol, "margin")] = None
    neighbourhood: Annotated[float | None, sets(ScoreProtocol, "neighbourhood")] = None
    partner_past: Annotated[Any, sets(ScoreProtocol, "partner_past")] = None
    weights: Annotated[Any, sets(ScoreProtocol, "weights")] = None
    extra_horizons: Annotated[Any, sets(ScoreProtocol, "extra_horizons")] = None
    extra_quantiles: Annotated[Any, sets(ScoreProtocol, "extra_quantiles")] = None
    t_ir: Annotated[float | None, sets(Thresholds, "ir", "--t-ir")] = None
    t_sr: Annotated[float | None, sets(Thresholds, "sr", "--t-sr")] = None
    thresholds_file: Annotated[
        Path | None,
        typer.Option(
            "--thresholds",
            metavar="FILE",
            exists=True,
            dir_okay=False,
            help="Thresholds that `acpc study thresholds --output` wrote, in place of --t-ir and "
            "--t-sr; its digest is in the receipt.",
            rich_help_panel=PROTOCOL,
        ),
    ] = None
    confidence: Annotated[float | None, sets(EvidenceOptions, "confidence")] = None
    resamples: Annotated[int | None, sets(EvidenceOptions, "resamples")] = None
    evidence_seed: Annotated[int | None, sets(EvidenceOptions, "seed", "--evidence-seed")] = None
    population: Annotated[Any, sets(EvidenceOptions, "population")] = None
    until_decided: Annotated[
        int | None, sets(UntilDecided, "batch", "--until-decided", panel=None)
    ] = None
    numeric_mode: Mode = None

    def asked(self) -> dict[str, Any]:
        """Returns the options as arguments of the client; the rest is the paper's, at 95 %.

        Raises typer.BadParameter: A file and numbers of thresholds, or no thresholds in the file.
        """
        sure = {"confidence": self.confidence, "resamples": self.resamples}
        batch = self.until_decided
        return {
            "protocol": ScoreProtocol(**given(**{x: getattr(self, x) for x in _PROTOCOL})),
            "thresholds": self._thresholds(),
            "evidence": EvidenceOptions(
                **given(**sure, seed=self.evidence_seed, population=self.population)
            ),
            "until_decided": None if batch is None else UntilDecided(batch),
            **given(numeric_mode=self.numeric_mode),
        }

    def _thresholds(self) -> Thresholds:
        """The thresholds; what was not given is the paper's.

        Raises typer.BadParameter: A file and numbers, or no thresholds in the file.
        """
        by_hand = given(ir=self.t_ir, sr=self.t_sr)
        if self.thresholds_file is None:
            return Thresholds(**by_hand)
        if by_hand:
            raise typer.BadParameter(
                "has both thresholds; leave out --t-ir and --t-sr, or leave out the file",
                param_hint="--thresholds",
            )
        with as_usage("--thresholds"):
            chosen = load_thresholds(self.thresholds_file)
        render.notes(chosen.warnings, f"warning: {self.thresholds_file}")
        return chosen.thresholds


@dataclass(frozen=True, kw_only=True)
class Judged(Options):
    """The checkpoint that is scored, and the one it is compared with."""

    checkpoint: Annotated[str, typer.Argument(help="Checkpoint at the server: its folder.")]
    weights_file: WeightsOption = ""
    digest: Digest = ""
    reference: Annotated[
        str | None,
        typer.Option(help="Unaugmented checkpoint of the same task; without it none can pass."),
    ] = None
    reference_weights_file: WeightsOption = ""
    reference_digest: Digest = ""

    def refs(self, needed: str = "") -> tuple[CheckpointRef, CheckpointRef | None]:
        """Both; ``needed`` says why there must be a reference, empty: there need not be one.

        Raises typer.BadParameter: No reference where one is needed, or a part without its name.
        """
        scored = CheckpointRef(self.checkpoint, self.weights_file, self.digest)
        parts = (self.reference_weights_file, self.reference_digest)
        if self.reference is not None:
            return scored, CheckpointRef(self.reference, *parts)
        if needed or any(parts):
            wrong = f"name one: {needed}" if needed else "name the reference, too"
            raise typer.BadParameter(wrong, param_hint="--reference")
        return scored, None


@dataclass(frozen=True, kw_only=True)
class Score(Judged, AnchorChoice, MeasureChoice, ScoreOptions, Server):
    r"""Is this checkpoint fit to ship under a visual shift?

    Submits a scoring job, shows its progress, and prints the score and the verdict. A grid of
    shifts, or `--shift everyday`, is a job each, with one table and what is sure of all together.
    Interrupting the wait does not stop the job.

    **Examples**

        acpc score lewm-tworooms --reference lewm-tworooms-plain \
            --dataset tworoom.h5 --task tworoom --shift gaussian_noise:0.08
        acpc score lewm-tworooms --anchor-set latest --shift blur:15 --no-wait
        acpc score lewm-tworooms --reference lewm-tworooms-plain \
            --dataset tworoom.h5 --task tworoom --shift everyday

    A training pipeline can gate on the exit code. With `--gate confident` it stops only for what is
    sure, and can tell "fails" from "too few anchors to say":

        acpc score "$CHECKPOINT" --reference baseline --output score.json \
            --dataset tworoom.h5 --task tworoom --shift blur:15 --gate confident || exit 1

    **How many anchors decide?** Without `--anchors` and `--protocol` it measures until it is
    decided, 400 at most. Of the dataset's windows 100 decide a perfect checkpoint (relative IR 0.1,
    SR 1), 200 most good ones (0.15, 0.99) and nearly all that fail clearly; near a threshold none
    may. Of new trajectories it takes several times as many episodes.

    `--junit FILE` writes the verdict where GitLab, Jenkins and others look for it; in GitHub
    Actions a failure is also an annotation of the run.

    **Exit codes**: 0 passed, or inconclusive without a reference; 3 the screen failed (without a
    reference: SR is below its threshold), or the checkpoint does not predict these data; 5
    undecided, with `--gate confident` alone: the anchors are too few to say, or there is no
    reference to judge by; 4 the job failed or was cancelled; 1 error, also a server that was away
    for too long while the job goes on, and one too old for `--gate confident`; 2 usage; 130
    interrupted.
    """

    shift: Shift
    request_id: Annotated[
        str | None, typer.Option(help="The same id gives the same job, however often it is sent.")
    ] = None
    no_wait: Annotated[bool, typer.Option("--no-wait", help="Print the job's name and leave.")] = (
        False
    )

    def run(self) -> None:
        """Submits a job for each shift, follows them, and judges."""
        if self.no_wait and self.junit is not None:
            raise typer.BadParameter(
                "it needs a verdict; leave out --no-wait", param_hint="--junit"
            )
        shifts, anchors = read_grid([self.shift]), self.source()
        if len(shifts) > 1 and self.output is not None:
            raise typer.BadParameter("holds one score; name one shift", param_hint="--output")
        with self.connect() as client:
            jobs = self._submit(client, shifts, anchors)
            if self.no_wait:
                for job in jobs:
                    render.result(job.submitted) if self.json else render.line(job.name)
                return
            ended = []
            for job, shift in zip(jobs, shifts, strict=True):
                render.note(f"{job.name}: submitted" + (f", {shift}" if len(shifts) > 1 else ""))
                ended.append(follow(client, job.name, timeout=self.timeout, output=self.output))
            if len(ended) == 1:
                name = f"{self.checkpoint} under {shifts[0]}"
                finish(ended[0], self, name)
            self._finish_all(client, shifts, ended)

    def _submit(
        self, client: AcpcClient, shifts: Sequence[Perturbation], anchors: DatasetAnchors | str
    ) -> list[ScoreJob]:
        checkpoint, reference = self.refs()
        asked = self.asked()
        with submitting(self.request_id or str(uuid.uuid4())) as named:
            names = [f"{named}-{place}" for place in range(len(shifts))]
            return [
                client.score_checkpoint(
                    checkpoint, anchors, shift, reference=reference, request_id=name, **asked
                )
                for shift, name in zip(shifts, names if len(shifts) > 1 else [named], strict=True)
            ]

    def _finish_all(
        self, client: AcpcClient, shifts: Sequence[Perturbation], ended: Sequence[Operation]
    ) -> None:
        """Prints the scores under several shifts in one table, and exits accordingly.

        Raises typer.Exit: Always; a confident gate goes by verdicts corrected for their number.
        """
        from acpc_lab.report import claims, failing, from_operations  # noqa: PLC0415  slow

        for job in ended:
            if job.error is not None:
                render.error(job.error)
                render.note(f"  {job.name} {job.state.name.lower()}")
            if self.json:
                render.result(job, whole=self.anchor_values)
        if any(job.error is not None for job in ended):
            raise typer.Exit(Exit.JOB_ENDED_BADLY)
        data = from_operations(client, ended)
        named = zip(data.cells, map(str, shifts), strict=True)
        data = data.with_(cells=tuple(replace(one, shift=shift) for one, shift in named))
        found: list[Outcome] = []
        cases, rows = [], []
        for one in data.cells:
            if one.score is None:
                continue
            sure = one.among.outcome if one.among else None
            by_numbers = one.score.gated(self.gate)
            confident = self.gate is Gate.CONFIDENT and sure is not None
            outcome = by_gate(sure if confident and sure else by_numbers, self.gate)
            found.append(outcome)
            name = f"{one.name} under {one.shift}"
            cases.append(case_of(name, outcome, reason(one.score, self.gate)))
            verdict, sr = one.score.verdict, one.score.checkpoint.sr
            numbers = (render.near(verdict, "ir_relative", verdict.ir_relative),
                       render.near(verdict, "sr", sr))  # fmt: skip
            rows.append([one.shift, *numbers, verdict.outcome.name, sure.name if sure else "-"])
        if not self.json:
            for sentence in [*claims(data), *failing(data)]:
                render.prose(sentence)
            render.line(render.asked(ended[0], shifts=len(shifts)))
            render.table(("shift", "relative IR", "SR", "by the numbers", "for sure"), rows)
        publish("acpc score", cases, self.junit)
        raise typer.Exit(exit_of(found))
