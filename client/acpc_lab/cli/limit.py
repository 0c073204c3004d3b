"""``acpc limit``."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Annotated

import typer
from acpc.contract import examples_of, parse_grid, severities_up_to
from acpc_client import LimitPoint, SeverityLimit, save_result

from acpc_lab.cli import render
from acpc_lab.cli.command import given
from acpc_lab.cli.options import Exit, Followed, ScoreOut, Server, as_usage, interruptible
from acpc_lab.cli.progress import counted
from acpc_lab.cli.score import Asked

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
            grid = parse_grid(self.shift) if ":" in self.shift else examples_of(self.shift)[2:]
            severities = grid if len(grid) > 1 else severities_up_to(grid[0], self.steps)
        anchors, how = self.asked()
        checkpoint, reference = self.refs(needed="without it no severity passes")
        with interruptible(_LEFT), self.connect() as client, _followed(len(severities)) as follow:
            found = client.find_limit(
                checkpoint,
                anchors,
                severities,
                on_point=follow,
                timeout=self.timeout,
                reference=reference,
                **given(request_id=self.request_id),
                **how,
            )
        if self.out is not None:
            save_result(found, self.out)
        self.answer(found, lambda: _show(found))
        raise typer.Exit(Exit.OK if found.estimate is None or found.passes else Exit.SCREEN_FAILED)


@contextmanager
def _followed(count: int) -> Iterator[Callable[[LimitPoint], None]]:
    """Shows how many severities were scored, and what the last one gave."""
    with counted("scoring the first severity") as show:
        points: list[LimitPoint] = []

        def note(point: LimitPoint) -> None:
            points.append(point)
            show("severities", len(points), count, f"{point.shift}: S {point.score:.3g}")

        yield note


def _show(found: SeverityLimit) -> None:
    render.prose(found.headline())
    render.tabular(found)
    render.notes(found.notes, "note")
