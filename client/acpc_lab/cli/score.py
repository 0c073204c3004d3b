"""``acpc score``, ``acpc check-fit`` and ``acpc limit``."""

import hashlib
import uuid
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Annotated, Any, ClassVar

import typer
from acpc.contract import (
    ScoreRequest,
    curve_of,
    examples_of,
    measured,
    parse_grid,
    severities_up_to,
    to_json,
)
from acpc_client import (
    AcpcClient,
    DatasetAnchors,
    EvidenceOptions,
    FitOutcome,
    Identity,
    Perturbation,
    Result,
    ScoreJob,
    ScoreProtocol,
    Thresholds,
    UntilDecided,
    save_result,
)
from acpc_client.errors import AlreadyExists, ArgumentError, ServerAway, extended

from acpc_lab.cli import options, render
from acpc_lab.cli.command import Exit, Keys, ProtocolOption, given, keys_of, read_protocol, sets
from acpc_lab.cli.connection import Server
from acpc_lab.cli.follow import ScoreOptions, counted, finish, follow
from acpc_lab.cli.options import DRAW, Followed, Population, checkpoint_of, interruptible
from acpc_lab.evidence import LimitPoint, SeverityLimit

_PROTOCOL = (
    "reading", "draws", "seed", "horizon", "quantile", "margin", "neighbourhood", "partner_past",
    "weights", "extra_horizons", "extra_quantiles",
)  # fmt: skip
_FIT_ANCHORS = 64
_FIT_CODES = {FitOutcome.FITS: Exit.OK, FitOutcome.DOES_NOT_FIT: Exit.SCREEN_FAILED}

_KEYS = {
    **keys_of(ScoreProtocol, _PROTOCOL, "protocol"),
    **keys_of(Thresholds, ("ir", "sr"), "thresholds"),
    **keys_of(EvidenceOptions, ("confidence", "resamples", "seed"), "evidence"),
    **keys_of(DatasetAnchors, DRAW, "anchors"),
    **keys_of(ScoreRequest, ("numeric_mode",)),
}


class OnAnchors(options.AnchorCount):
    """A checkpoint, and the anchors that it is measured on.

    Attributes:
        dataset: HDF5 file below the server's dataset root.
        task: Task preset, or task file at the server.
        anchor_set: Anchor set, in place of --dataset and --task: its digest or a beginning of it,
            the request id of its upload, or latest.
    """

    checkpoint: options.CheckpointName
    dataset: str | None = None
    task: str | None = None
    anchor_set: Annotated[str | None, typer.Option(metavar="DIGEST")] = None

    def source(self, **drawn: Any) -> DatasetAnchors | str:  # noqa: ANN401 - of DatasetAnchors
        """The anchors, drawn so.

        Raises ArgumentError: Both a dataset and a set, or neither.
        """
        drawn |= self.drawn()
        if self.anchor_set is not None and not drawn and (self.dataset, self.task) == (None, None):
            return self.anchor_set
        if self.anchor_set is None and self.dataset is not None and self.task is not None:
            return DatasetAnchors(self.dataset, self.task, **drawn)
        if self.anchor_set is not None:
            wrong = "give it alone, without how anchors are drawn: a set has its anchors already"
        elif self.dataset is not None:
            wrong = "give --task too: acpc list tasks shows presets, acpc init writes a task file"
        elif self.task is not None:
            wrong = "give --dataset too: acpc list datasets shows what the server has"
        else:
            wrong = (
                "give --dataset and --task (acpc list datasets, acpc list tasks), or --anchor-set "
                "alone (acpc list anchor-sets)"
            )
        raise ArgumentError("--dataset" if self.anchor_set is None else "--anchor-set", wrong)


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

    def asked(self) -> dict[str, Any]:
        """What is asked, as arguments of the client without the shift.

        Raises ArgumentError: A wrong protocol, both a dataset and a set, or neither.
        """
        read = read_protocol(self.protocol, self.keys)
        limits = read.pop("thresholds", {})
        sure = read.pop("evidence", {}) | given(population=self.population)
        return {
            "checkpoint": checkpoint_of(self.checkpoint),
            "reference": checkpoint_of(self.reference) if self.reference else None,
            "anchors": self.source(**read.pop("anchors", {})),
            "protocol": ScoreProtocol(**read.pop("protocol", {})),
            "thresholds": limits if isinstance(limits, Thresholds) else Thresholds(**limits),
            "evidence": EvidenceOptions(**sure),
            "until_decided": UntilDecided(self.until_decided) if self.until_decided else None,
            **read,
        }


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
            --dataset tworoom.h5 --task tworoom --shift blur:15 \
            --gate confident || exit 1

    **How many anchors?** 100 decide a perfect checkpoint (relative IR 0.1, SR 1), 200 most good
    ones (0.15, 0.99) and nearly all that clearly fail; near a threshold no number may do. With
    `--population trajectories` it takes several times as many episodes.

    Attributes:
        request_id: The same id gives the same job, however often it is sent.
        no_wait: Print the job's name and leave.
    """

    shift: options.Shift
    request_id: str | None = None
    no_wait: bool = False

    def __call__(self) -> None:
        if self.no_wait and self.junit is not None:
            raise ArgumentError("--junit", "it needs a verdict; leave out --no-wait")
        shifts = options.read_grid([self.shift])
        if len(shifts) > 1 and self.out is not None:
            raise ArgumentError("--out", "holds one score; name one shift")
        asked = self.asked()
        with self.connect() as client:
            jobs = self._submit(client, shifts, asked)
            if self.no_wait:
                for job in jobs:
                    render.result(job.submitted) if self.json else render.line(job.name)
                return
            ended = []
            for job, shift in zip(jobs, shifts, strict=True):
                said = f"{job.name}: submitted" + (f", {shift}" if shifts[1:] else "")
                ended.append(follow(client, job.name, self.timeout, self.out, said))
        finish(ended, self, [ScoreRequest(shift=shift, **asked) for shift in shifts])

    def _submit(
        self, client: AcpcClient, shifts: Sequence[Perturbation], asked: dict[str, Any]
    ) -> list[ScoreJob]:
        """The jobs; where their submission ends without an answer, says how to find them again."""
        name = self.request_id or str(uuid.uuid4())
        names = [f"{name}-{place}" for place in range(len(shifts))] if shifts[1:] else [name]
        again = f"it may have the job: give the same command with --request-id {name}"
        try:
            with interruptible([f"interrupted before the server answered; {again}"]):
                return [
                    client.score_checkpoint(shift=shift, request_id=request_id, **asked)
                    for shift, request_id in zip(shifts, names, strict=True)
                ]
        except ServerAway as away:
            if away.sent:
                raise extended(away, again) from None
            raise


class CheckFit(OnAnchors, Followed, Server):
    r"""Does this checkpoint predict these data at all?

    Compares the error of its predictions on clean frames with that of standing still, and with that
    under another anchor's actions. Then undoes the usual mistakes one by one: actions one row off,
    of the other sign or under another normaliser, frames upside down, mirrored, or with red and
    blue swapped. What would predict better is named. A job of 64 anchors, without a visual change.

    **Examples**

        acpc check-fit lewm-tworooms --dataset tworoom.h5 --task tworoom

    Exits with 3 where it surely does not fit, 5 where that is undecided or nothing moves.
    """

    def __call__(self) -> None:
        anchors = self.source()
        if isinstance(anchors, DatasetAnchors) and self.anchors is None:
            anchors = replace(anchors, count=_FIT_ANCHORS)
        with self.connect() as client:
            asked = (checkpoint_of(self.checkpoint), anchors, Identity())
            job = client.score_checkpoint(*asked, protocol=ScoreProtocol(draws=1))
            ended = follow(client, job.name, self.timeout)
        fit = ended.result().checkpoint.fit
        if fit is None:
            render.problem("nothing moves in these data, or the server is too old to say")
            raise typer.Exit(Exit.UNDECIDED)
        if self.json:
            render.line(fit.to_json(indent=2))
        else:
            render.prose(f"{self.checkpoint} {fit}")
            skills = [*fit.step_skill, fit.skill]
            render.table({
                "step": [*range(1, len(skills)), "all"],
                "skill": [f"{skill:.3f}" for skill in skills],
                "interval": [*fit.step_intervals, fit.interval],
            })  # fmt: skip
        raise typer.Exit(_FIT_CODES.get(fit.outcome, Exit.UNDECIDED))


class Limit(Asked, Followed, Server):
    r"""Up to which severity does this checkpoint pass?

    Scores a grid of severities of one visual change, and prints the largest below the first at
    which the screen does not pass, with an interval at the confidence asked for. Every severity is
    a job as `acpc score` makes one. The same command goes on with the jobs of an interrupted one.

    **Examples**

        acpc limit lewm-tworooms --reference lewm-tworooms-plain \
            --dataset tworoom.h5 --task tworoom --shift gaussian_noise
        acpc limit lewm-tworooms --reference lewm-tworooms-plain \
            --anchor-set latest --shift blur:3,5,9,15,31

    Attributes:
        shift: The visual change and the strongest of it to score, as gaussian_noise:0.2; without a
            number, its strong example; or the grid itself, as gaussian_noise:0.02,0.05,0.1 or
            gaussian_noise:0.02..0.2/10.
        steps: Even steps up to the strongest; each is scored.
        request_id: A name for the grid; another one scores everything again.
    """

    shift: Annotated[str, typer.Option(metavar="KIND[:STRONGEST]")]
    steps: Annotated[int, typer.Option(min=1, max=256)] = 10
    request_id: str | None = None
    out: options.ScoreOut = None

    def __call__(self) -> None:
        severities, asked = self._severities(), self.asked()
        if self.reference is None:
            raise ArgumentError("--reference", "name one: without it no severity passes")
        left = "interrupted: the jobs go on at the server; the same command goes on with them"
        with (
            interruptible([left]),
            self.connect() as client,
            counted("scoring the first severity") as show,
        ):
            jobs = [self._submitted(client, **asked | {"shift": shift}) for shift in severities]
            scored = []
            for shift, job in zip(severities, jobs, strict=True):
                scored.append((shift, job.result(self.timeout), job.name))
                point = LimitPoint.of(*scored[-1])
                remark = f"{point.shift}: S {point.score:.3g}"
                show("severities", len(scored), len(severities), remark)
        result = Result("limit", SeverityLimit.of(scored))
        if self.out is not None:
            save_result(result, self.out)
        render.answer(result)
        raise typer.Exit(Exit.OK if result.answer.passes else Exit.SCREEN_FAILED)

    def _severities(self) -> Sequence[Perturbation]:
        """The grid itself, or even steps up to the strongest change."""
        grid = parse_grid(self.shift) if ":" in self.shift else examples_of(self.shift)[2:]
        if len(grid) == 1:
            return severities_up_to(grid[0], self.steps)
        curves = {curve_of(shift) for shift in grid}
        if len(curves) != 1 or None in curves:
            wanted = "wanted changes that differ by their severity alone, all of which change"
            raise ArgumentError("shift", f"found {', '.join(map(str, grid))}, {wanted}")
        return list(dict.fromkeys(grid))

    def _submitted(self, client: AcpcClient, **asked: Any) -> ScoreJob:  # noqa: ANN401 - as ScoreRequest
        """The job of one severity, which the same question finds again."""
        request = ScoreRequest(request_id=self.request_id or "limit", **asked)
        digest = hashlib.sha256(to_json(measured(request)).encode()).hexdigest()[:24]
        attempt = 0
        while True:
            attempt += 1
            with suppress(AlreadyExists):  # of a checkpoint that has been overwritten since
                return client.score_checkpoint(**asked, request_id=f"limit-{digest}-{attempt}")
