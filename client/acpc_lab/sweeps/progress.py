"""What a running sweep tells about itself."""

from __future__ import annotations

import time
from collections import Counter
from dataclasses import dataclass

from acpc_client import Progress, Score
from acpc_client.errors import AcpcError

from acpc_lab.sweeps.cells import Cell
from acpc_lab.sweeps.journal import CellState


@dataclass(frozen=True)
class CellStatus:
    """One cell at one moment.

    Attributes:
        cell: Which.
        state: Where it is in its life.
        attempt: Number of the last attempt that has a job, from 1; 0: none.
        operation: Its job; empty: none.
        progress: How far its job is; None: not known.
        problem: Why it failed, or why it waits.
        score: Its score without the per-anchor values, when it was measured in this run.
    """

    cell: Cell
    state: CellState
    attempt: int
    operation: str
    progress: Progress | None = None
    problem: AcpcError | None = None
    score: Score | None = None

    @property
    def share(self) -> float:
        """How much of the work is done, from 0 to 1."""
        if self.state.done:
            return 1.0
        if self.progress is None or not self.progress.total:
            return 0.0
        # In steps of 2^-20: sums and differences of such shares are exact.
        share = min(1.0, self.progress.completed / self.progress.total)
        return round(share * 2**20) / 2**20


@dataclass(frozen=True)
class SweepProgress:
    """A sweep at one moment.

    Attributes:
        cells: Every cell, in the order of the plan.
        changed: Those that have changed since the last report.
        elapsed: Seconds since this run began.
        rate: Cells done per second in this run, parts of cells included; None: not known yet.
        seconds_left: Estimate; None: not known.
        away: Why the server does not answer; None: it does.
    """

    cells: tuple[CellStatus, ...]
    changed: tuple[CellStatus, ...]
    elapsed: float
    rate: float | None
    seconds_left: float | None
    away: AcpcError | None

    @property
    def counts(self) -> dict[CellState, int]:
        """Cells by state; states without a cell are left out."""
        counted = Counter(item.state for item in self.cells)
        return {state: counted[state] for state in CellState if counted[state]}

    @property
    def done(self) -> int:
        """Cells that are done."""
        return sum(item.state.done for item in self.cells)


class Meter:
    """Rate and time left of a run.

    Args:
        cells: How many there are.
        done: Sum of their done shares when the run begins.
    """

    def __init__(self, cells: int, done: float) -> None:
        self._begun = time.monotonic()
        self._cells = cells
        self._first = done

    def read(self, done: float) -> tuple[float, float | None, float | None]:
        """Seconds since the beginning, cells per second, seconds left."""
        elapsed = time.monotonic() - self._begun
        gained = done - self._first
        if gained <= 0 or elapsed <= 0:
            return elapsed, None, None
        rate = gained / elapsed
        return elapsed, rate, max(0.0, self._cells - done) / rate
