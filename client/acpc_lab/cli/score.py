"""``acpc score``."""

import uuid
from collections.abc import Sequence
from dataclasses import replace
from typing import Annotated, Any, ClassVar

import typer
from acpc.contract import ScoreRequest
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
)

from acpc_lab.cli import render
from acpc_lab.cli.command import Keys, sets
from acpc_lab.cli.follow import ScoreOptions, exit_of, finish, follow, submitting
from acpc_lab.cli.gates import by_gate, case_of, publish, reason
from acpc_lab.cli.options import (
    DRAW,
    AnchorCount,
    CheckpointName,
    Exit,
    Gate,
    Population,
    Server,
    Shift,
    checkpoint_of,
    read_grid,
)
from acpc_lab.cli.protocol import ProtocolOption, keys_of, read_protocol

_PROTOCOL = (
    "reading", "draws", "seed", "horizon", "quantile", "margin", "neighbourhood", "partner_past",
    "weights", "extra_horizons", "extra_quantiles",
)  # fmt: skip
_KEYS = {
    **keys_of(ScoreProtocol, _PROTOCOL, "protocol"),
    **keys_of(Thresholds, ("ir", "sr"), "thresholds"),
    **keys_of(EvidenceOptions, ("confidence", "resamples", "seed"), "evidence"),
    **keys_of(DatasetAnchors, DRAW, "anchors"),
    **keys_of(ScoreRequest, ("numeric_mode",)),
}


class OnAnchors(AnchorCount):
    """A checkpoint, and the anchors that it is measured on.

    Attributes:
        dataset: HDF5 file below the server's dataset root.
        task: Task preset, or task file at the server.
        anchor_set: Anchor set, in place of --dataset and --task: its digest or a beginning of it,
            the request id of its upload, or latest.
    """

    checkpoint: CheckpointName
    dataset: str | None = None
    task: str | None = None
    anchor_set: Annotated[str | None, typer.Option(metavar="DIGEST")] = None

    def source(self, **drawn: Any) -> DatasetAnchors | str:  # noqa: ANN401 - of DatasetAnchors
        """The anchors, drawn so.

        Raises typer.BadParameter: Both a dataset and a set, or neither.
        """
        drawn |= self.drawn()
        if self.anchor_set is not None and not drawn and (self.dataset, self.task) == (None, None):
            return self.anchor_set
        if self.anchor_set is None and self.dataset is not None and self.task is not None:
            return DatasetAnchors(self.dataset, self.task, **drawn)
        raise typer.BadParameter(
            "give --dataset and --task, or --anchor-set alone: a set has its anchors already",
            param_hint="--dataset",
        )


class Asked(OnAnchors):
    """What is scored, on which anchors, and how.

    Attributes:
        reference: Unaugmented checkpoint of the same task; without it none can pass.
    """

    keys: ClassVar[Keys] = _KEYS

    reference: Annotated[str | None, typer.Option(metavar="CHECKPOINT")] = None
    protocol: ProtocolOption = None
    population: Population = None
    until_decided: Annotated[
        int | None,
        sets(
            UntilDecided,
            "batch",
            "--until-decided",
            help="Stop as soon as the verdict is sure, looking first after so many anchors.",
        ),
    ] = None

    def refs(self, needed: str = "") -> tuple[CheckpointRef, CheckpointRef | None]:
        """Both checkpoints; ``needed`` says why there must be a reference.

        Raises typer.BadParameter: No reference where one is needed.
        """
        if needed and self.reference is None:
            raise typer.BadParameter(f"name one: {needed}", param_hint="--reference")
        named = checkpoint_of(self.reference) if self.reference else None
        return checkpoint_of(self.checkpoint), named

    def asked(self) -> tuple[DatasetAnchors | str, dict[str, Any]]:
        """The anchors, and what else is asked as arguments of the client.

        Raises typer.BadParameter: A wrong protocol, both a dataset and a set, or neither.
        """
        read = read_protocol(self.protocol, self.keys)
        anchors = self.source(**read.pop("anchors", {}))
        limits = read.pop("thresholds", {})
        sure = read.pop("evidence", {}) | (
            {"population": self.population} if self.population else {}
        )
        how = {
            "protocol": ScoreProtocol(**read.pop("protocol", {})),
            "thresholds": limits if isinstance(limits, Thresholds) else Thresholds(**limits),
            "evidence": EvidenceOptions(**sure),
            "until_decided": UntilDecided(self.until_decided) if self.until_decided else None,
            **read,
        }
        return anchors, how


class Score(Asked, ScoreOptions, Server):
    r"""Is this checkpoint fit to ship under a visual shift?

    Submits a scoring job, shows its progress, and prints the verdict and the numbers. A grid of
    shifts, or `--shift everyday`, is a job each, with one table and what is sure of all together.
    Interrupting the wait does not stop the job.

    **Examples**

        acpc score lewm-tworooms --reference lewm-tworooms-plain \
            --dataset tworoom.h5 --task tworoom --shift gaussian_noise:0.08
        acpc score lewm-tworooms --anchor-set latest --shift blur:15 --no-wait
        acpc score lewm-tworooms --reference lewm-tworooms-plain \
            --dataset tworoom.h5 --task tworoom --shift everyday
        acpc score lewm-tworooms --anchor-set latest --shift blur:15 \
            --protocol '{protocol: {draws: 9}, thresholds: thresholds.json}'

    A training pipeline can stop on the exit code. With `--gate confident` it stops only for what is
    sure, and exits with 5 where there are too few anchors to say:

        acpc score "$CHECKPOINT" --reference baseline --out score.json \
            --dataset tworoom.h5 --task tworoom --shift blur:15 --gate confident || exit 1

    **How many anchors?** Without `--anchors` and a protocol it measures until it is decided, 400 at
    most. 100 decide a perfect checkpoint (relative IR 0.1, SR 1), 200 most good ones (0.15, 0.99)
    and nearly all that clearly fail; near a threshold no number may do. With
    `--population trajectories` it takes several times as many episodes.

    Attributes:
        request_id: The same id gives the same job, however often it is sent.
        no_wait: Print the job's name and leave.
    """

    shift: Shift
    request_id: str | None = None
    no_wait: bool = False

    def run(self) -> None:
        """Submits a job for each shift, follows them, and judges."""
        if self.no_wait and self.junit is not None:
            raise typer.BadParameter(
                "it needs a verdict; leave out --no-wait", param_hint="--junit"
            )
        shifts = read_grid([self.shift])
        if len(shifts) > 1 and self.out is not None:
            raise typer.BadParameter("holds one score; name one shift", param_hint="--out")
        anchors, how = self.asked()
        with self.connect() as client:
            jobs = self._submit(client, shifts, anchors, how)
            if self.no_wait:
                for job in jobs:
                    render.result(job.submitted) if self.json else render.line(job.name)
                return
            ended = []
            for job, shift in zip(jobs, shifts, strict=True):
                render.note(f"{job.name}: submitted" + (f", {shift}" if len(shifts) > 1 else ""))
                ended.append(follow(client, job.name, timeout=self.timeout, out=self.out))
            if len(ended) == 1:
                finish(ended[0], self, f"{self.checkpoint} under {shifts[0]}")
            self._finish_all(client, shifts, ended)

    def _submit(
        self,
        client: AcpcClient,
        shifts: Sequence[Perturbation],
        anchors: DatasetAnchors | str,
        how: dict[str, Any],
    ) -> list[ScoreJob]:
        checkpoint, reference = self.refs()
        with submitting(self.request_id or str(uuid.uuid4())) as named:
            names = [f"{named}-{place}" for place in range(len(shifts))]
            return [
                client.score_checkpoint(
                    checkpoint, anchors, shift, reference=reference, request_id=name, **how
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
                render.result(job)
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
            render.prose(render.asked(ended[0], shifts=len(shifts)))
            render.table(("shift", "relative IR", "SR", "verdict", "sure, all together"), rows)
        publish("acpc score", cases, self.junit)
        raise typer.Exit(exit_of(found))
