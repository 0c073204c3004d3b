"""``--log-to``: scores go to experiment trackers, too."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from acpc_lab.campaigns import OnUpdate, TaskState
from acpc_lab.cli import render
from acpc_lab.cli.options import as_usage
from acpc_lab.sweeps import CellResult, CellTask, SweepProgress

if TYPE_CHECKING:
    from acpc_lab.exporters import Scored

LogTo = Annotated[
    list[str] | None,
    typer.Option(
        "--log-to",
        metavar="TRACKER",
        help="Also write scores, verdicts, intervals, figures and receipts to an experiment "
        "tracker: mlflow:URI, wandb:PROJECT or tensorboard:DIR; repeatable. Its errors are "
        "printed and change no exit code.",
    ),
]
Log = Callable[["Scored"], None]


@contextlib.contextmanager
def logged(log_to: Sequence[str] | None, group: str = "") -> Iterator[Log]:
    """Yields a function that gives a score to every tracker; waits for them at the end.

    Raises typer.BadParameter: An address names no tracker.
    """
    if not log_to:
        yield lambda scored: None
        return
    from acpc_lab.exporters import Tracker  # noqa: PLC0415  slow

    def report(words: str) -> None:
        render.note(f"error: --log-to {words}")

    with as_usage("--log-to"):
        trackers = [Tracker(address, group, report) for address in log_to]
    with contextlib.ExitStack() as stack:
        for tracker in trackers:
            stack.enter_context(tracker)

        def log(scored: Scored) -> None:
            for tracker in trackers:
                tracker(scored)

        yield log


def also_logged(on_update: OnUpdate[CellTask], log: Log) -> OnUpdate[CellTask]:
    """A listener of a sweep that hands on each cell as soon as it has its score."""

    def update(now: SweepProgress) -> None:
        on_update(now)
        for status in now.changed:
            cell = status.task.cell
            result = status.task.folder.load(cell) if status.state is TaskState.SUCCEEDED else None
            if result is not None:
                log(CellResult(**vars(status.entry), cell=cell, score=result.answer))

    return update
