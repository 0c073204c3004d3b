"""How a sweep looks on a terminal: live while it runs, as lines in a log, as a table at the end."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from acpc_client import Score
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from acpc_lab.cli import render
from acpc_lab.sweeps import CellResult, CellState, CellStatus, SweepProgress, SweepResults

_COLUMNS = ("checkpoint", "shift", "seed", "state", "IR relative", "SR", "verdict")
_MOVING_ROWS = 12
_ENDED_ROWS = 6
_RESULT_ROWS = 60


@contextmanager
def shown(*, live: bool) -> Iterator[Callable[[SweepProgress], None]]:
    """A listener that draws a sweep on stderr, in place on a terminal, otherwise line by line."""
    console = Console(stderr=True, highlight=False)
    if not (live and console.is_terminal):
        yield _Lines()
        return
    view = _Table()
    with Live(view, console=console, refresh_per_second=4, transient=True):
        yield view.update


class _Lines:
    """One line whenever a cell changes its state, or the server its presence."""

    def __init__(self) -> None:
        self._states: dict[str, CellState] = {}
        self._away = False

    def __call__(self, now: SweepProgress) -> None:
        if self._away != (now.away is not None):
            self._away = now.away is not None
            gone = f"the server is away, waiting: {now.away.message}" if now.away else ""
            render.note(gone or "the server is back")
        first = not self._states and bool(now.cells)
        for status in now.changed:
            before = self._states.get(status.cell.id)
            self._states[status.cell.id] = status.state
            if before is not status.state and not (first and _settled(status)):
                render.note(f"[{now.done}/{len(now.cells)}] {status.cell.title}: {_line(status)}")
        if first:
            render.note(_headline(now))


def _settled(status: CellStatus) -> bool:
    """Whether a cell was like this before the run began, as far as a reader cares."""
    return status.state in (CellState.PENDING, CellState.SUCCEEDED)


def _line(status: CellStatus) -> str:
    if status.score is not None:
        ir, sr, verdict = _numbers(status.score)
        return f"relative IR {ir}, SR {sr}, {verdict}"
    problem = status.problem
    told = problem is not None and not status.state.in_flight
    why = f" ({problem.code}: {problem.message})" if problem and told else ""
    job = f" as {status.operation}" if status.state.in_flight else ""
    return f"{status.state.value}{job}{why}"


class _Table:
    """The cells that move and the last ones that ended, drawn in place."""

    def __init__(self) -> None:
        self._now: SweepProgress | None = None
        self._ended: deque[CellStatus] = deque(maxlen=_ENDED_ROWS)

    def update(self, now: SweepProgress) -> None:
        if self._now is not None:  # what had ended before this run is no news
            self._ended.extend(item for item in now.changed if item.state.done)
        if now.cells or self._now is None:
            self._now = now

    def __rich__(self) -> RenderableType:
        now = self._now
        if now is None:
            return Text("asking the server for its checkpoints")
        parts: list[RenderableType] = [Text(_headline(now))]
        if now.cells:
            parts.append(ProgressBar(len(now.cells), sum(item.share for item in now.cells)))
        if now.away is not None:
            parts.append(Text(f"the server is away: {now.away.message}", style="yellow"))
        moving = [s for s in now.cells if s.state.in_flight or s.state is CellState.WAITING]
        table = _empty_table()
        for status in [*self._ended, *moving[:_MOVING_ROWS]]:
            table.add_row(*_cells(status))
        if table.row_count:
            parts.append(table)
        if len(moving) > _MOVING_ROWS:
            parts.append(Text(f"and {len(moving) - _MOVING_ROWS} more at the server"))
        return Group(*parts)


def _cells(status: CellStatus) -> tuple[str, ...]:
    state = status.state.value
    if status.state.in_flight and status.progress is not None and status.progress.total:
        state = f"{state} {status.progress.completed}/{status.progress.total}"
    if status.state in (CellState.WAITING, CellState.FAILED) and status.problem is not None:
        state = f"{state} ({status.problem.code})"
    numbers = ("", "", "") if status.score is None else _numbers(status.score)
    cell = status.cell
    return (cell.checkpoint.name, str(cell.shift), str(cell.seed), state, *numbers)


def _headline(now: SweepProgress) -> str:
    if not now.cells:
        return "asking the server for its checkpoints"
    counts = ", ".join(f"{count} {state.value}" for state, count in now.counts.items())
    rate = f"; {now.rate * 60:.3g} cells a minute" if now.rate else ""
    left = f"; about {_duration(now.seconds_left)} left" if now.seconds_left else ""
    return f"{now.done}/{len(now.cells)} cells done: {counts}{rate}{left}"


def _duration(seconds: float) -> str:
    minutes = round(seconds / 60)
    if minutes >= 60:
        return f"{minutes // 60} h {minutes % 60} min"
    return f"{minutes} min" if minutes else f"{round(seconds)} s"


def _numbers(score: Score) -> tuple[str, str, str]:
    verdict = score.verdict
    ir = "-" if verdict.ir_relative is None else f"{verdict.ir_relative:.3f}"
    return ir, f"{score.checkpoint.sr:.3f}", verdict.outcome.name


def _empty_table() -> Table:
    table = Table()
    for column in _COLUMNS:
        right = column in ("seed", "IR relative", "SR")
        long = column in ("checkpoint", "shift")
        table.add_column(
            column, justify="right" if right else "left", no_wrap=not long, overflow="fold"
        )
    return table


def results_table(results: SweepResults) -> None:
    """The cells on stdout, at most one screen of them."""
    table = _empty_table()
    for item in results.cells[:_RESULT_ROWS]:
        numbers = ("", "", "") if item.score is None else _numbers(item.score)
        cell = item.cell
        table.add_row(
            cell.checkpoint.name, str(cell.shift), str(cell.seed), item.state.value, *numbers
        )
    Console(highlight=False, markup=False).print(table)
    if len(results) > _RESULT_ROWS:
        render.line(f"and {len(results) - _RESULT_ROWS} more; acpc sweep results has all of them")


def failures(items: tuple[CellResult, ...]) -> None:
    """Why cells have no score, on stderr."""
    for item in items[:_RESULT_ROWS]:
        why = f" ({item.code}: {item.message})" if item.code else ""
        job = f" {item.operation}" if item.operation else ""
        render.note(f"error: {item.cell.title}: {item.state.value}{job}{why}")
