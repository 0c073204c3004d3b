"""``acpc check-fit``."""

from dataclasses import replace

import typer
from acpc_client import (
    DatasetAnchors,
    Fit,
    FitOutcome,
    Identity,
    ScoreProtocol,
)

from acpc_lab.cli import render
from acpc_lab.cli.follow import follow
from acpc_lab.cli.options import Exit, Followed, Server, checkpoint_of
from acpc_lab.cli.score import OnAnchors

_ANCHORS = 64
_CODES = {FitOutcome.FITS: Exit.OK, FitOutcome.DOES_NOT_FIT: Exit.SCREEN_FAILED}


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

    def run(self) -> None:
        """Scores the checkpoint under no change, and prints how well it predicts."""
        anchors = self.source()
        if isinstance(anchors, DatasetAnchors) and self.anchors is None:
            anchors = replace(anchors, count=_ANCHORS)
        with self.connect() as client:
            job = client.score_checkpoint(
                checkpoint_of(self.checkpoint),
                anchors,
                Identity(),
                protocol=ScoreProtocol(draws=1),
            )
            ended = follow(client, job.name, timeout=self.timeout, out=None)
        if ended.error is not None:
            render.error(ended.error)
            raise typer.Exit(Exit.JOB_ENDED_BADLY)
        fit = ended.result().checkpoint.fit
        if fit is None:
            render.problem("nothing moves in these data, or the server is too old to say")
            raise typer.Exit(Exit.UNDECIDED)
        self.answer(fit, lambda: _show(self.checkpoint, fit))
        raise typer.Exit(_CODES.get(fit.outcome, Exit.UNDECIDED))


def _show(name: str, fit: Fit) -> None:
    render.prose(f"{name} {fit}")
    steps = zip(fit.step_skill, fit.step_intervals, strict=True)
    rows = [[str(step), f"{skill:.3f}", str(held)] for step, (skill, held) in enumerate(steps, 1)]
    whole = ["all", f"{fit.skill:.3f}", str(fit.interval)]
    render.table(("step", "skill", "interval"), [*rows, whole])
