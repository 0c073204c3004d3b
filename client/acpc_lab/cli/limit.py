"""``acpc limit``."""

import hashlib
from collections.abc import Sequence
from contextlib import suppress
from typing import Annotated, Any

import typer
from acpc.contract import curve_of, examples_of, parse_grid, severities_up_to, to_json
from acpc_client import (
    AcpcClient,
    Perturbation,
    Result,
    ScoreJob,
    ScoreRequest,
    save_result,
)
from acpc_client.errors import AlreadyExists, ArgumentError

from acpc_lab.cli import render
from acpc_lab.cli.options import Exit, Followed, ScoreOut, Server, as_usage, interruptible
from acpc_lab.cli.progress import counted
from acpc_lab.cli.score import Asked
from acpc_lab.evidence import LimitPoint, SeverityLimit

_LEFT = "interrupted: the jobs go on at the server; the same command goes on with them"


class Limit(Asked, Followed, Server):
    r"""Up to which severity does this checkpoint pass?

    Scores a grid of severities of one visual change, and prints the largest below the first at
    which the screen does not pass, with an interval at the confidence asked for. Every severity is
    a job as `acpc score` makes one. The same command goes on with the jobs of an interrupted one.

    **Examples**

        acpc limit lewm-tworooms --reference lewm-tworooms-plain \
            --dataset tworoom.h5 --task tworoom --shift gaussian_noise
        acpc limit lewm-tworooms --reference lewm-tworooms-plain --anchor-set latest \
            --shift blur:3,5,9,15,31

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
    out: ScoreOut = None

    def run(self) -> None:
        """Scores the grid, and says up to which severity the screen passes."""
        with as_usage("--shift"):
            severities = self._severities()
        anchors, how = self.asked()
        checkpoint, reference = self.refs(needed="without it no severity passes")
        how |= {"checkpoint": checkpoint, "anchors": anchors, "reference": reference}
        with (
            interruptible(_LEFT),
            self.connect() as client,
            counted("scoring the first severity") as show,
        ):
            jobs = [self._submitted(client, shift=shift, **how) for shift in severities]
            scored = []
            for shift, job in zip(severities, jobs, strict=True):
                scored.append((shift, job.result(self.timeout), job.name))
                point = LimitPoint.of(*scored[-1])
                last = f"{point.shift}: S {point.score:.3g}"
                show("severities", len(scored), len(severities), last)
            found = SeverityLimit.of(scored)
        result = Result("limit", found)
        if self.out is not None:
            save_result(result, self.out)
        self.answer(result, lambda: _show(found))
        raise typer.Exit(Exit.OK if found.passes else Exit.SCREEN_FAILED)

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
        digest = hashlib.sha256(to_json(request).encode()).hexdigest()[:24]
        attempt = 0
        while True:
            attempt += 1
            with suppress(AlreadyExists):  # of a checkpoint that has been overwritten since
                return client.score_checkpoint(**asked, request_id=f"limit-{digest}-{attempt}")


def _show(found: SeverityLimit) -> None:
    render.prose(found.headline())
    render.tabular(found)
    render.notes(found.notes, "note")
