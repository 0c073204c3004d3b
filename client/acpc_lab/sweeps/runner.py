"""Runs the cells of a plan: submits, looks at their jobs, and keeps what comes back."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from acpc_client import AcpcClient, JobState, Operation
from acpc_client.errors import AcpcError, AlreadyExists, NotFound

from acpc_lab.sweeps.cells import Cell
from acpc_lab.sweeps.journal import CellState, Entry, Journal
from acpc_lab.sweeps.link import Link, RunEnded, passing
from acpc_lab.sweeps.progress import CellStatus, Meter, SweepProgress
from acpc_lab.sweeps.tracks import Track

Callback = Callable[[SweepProgress], None]
# Jobs are done about in the order of their submission: these are looked at in every turn,
_OLDEST = 8
# and as many of the others, in turn.
_OTHERS = 4


@dataclass(frozen=True)
class Options:
    """How a plan is run.

    Attributes:
        concurrency: Jobs in flight at most; None: no bound.
        retries: Further attempts for a cell in this run.
        submit: Submit what has no job.
        follow: Wait for what has one.
        poll: Seconds between two turns.
    """

    concurrency: int | None
    retries: int
    submit: bool = True
    follow: bool = True
    poll: float = 0.5


class Runner:
    """One run over a plan.

    Args:
        client: The server's.
        link: Waits for the server.
        sweep: Name of the sweep.
        cells: What to run.
        journal: Open for writing.
        options: How.
        on_update: Told whenever a cell or the server's presence has changed.
    """

    def __init__(
        self,
        client: AcpcClient,
        link: Link,
        sweep: str,
        cells: Sequence[Cell],
        journal: Journal,
        options: Options,
        on_update: Callback,
    ) -> None:
        self._client = client
        self._link = link
        self._sweep = sweep
        self._options = options
        self._on_update = on_update
        self._away: AcpcError | None = None
        self._turn = 0
        self._busy_until = 0.0
        entries = journal.entries()
        self._tracks = [
            Track(index, cell, entries.get(cell.id, Entry()), journal, options.retries)
            for index, cell in enumerate(cells)
        ]
        for track in self._tracks:
            track.resume(submit=options.submit)
        self._statuses = [track.status for track in self._tracks]
        self._done = sum(status.share for status in self._statuses)
        self._meter = Meter(len(cells), self._done)

    def run(self) -> None:
        """Runs until every cell is done, or as far as the options go.

        Raises:
            RunEnded: The server stayed away, the time is over, or somebody asked to stop.
        """
        self._tell(*self._statuses)
        while True:
            if self._options.submit:
                self._submit()
            if self._options.follow:
                self._look_at(self._due())
            if not self._left():
                return
            self._link.sleep(self._options.poll)
            self._link.check()

    def look_once(self) -> None:
        """Looks once at every job in flight."""
        self._look_at([track for track in self._tracks if track.state.in_flight])

    def set_away(self, error: AcpcError | None) -> None:
        """Notes that the server is away, or that it is back."""
        self._away = error
        self._tell()

    def _left(self) -> bool:
        """Whether there is anything to wait for."""
        states = {track.state for track in self._tracks}
        unsent = self._options.submit and bool(states & {CellState.PENDING, CellState.WAITING})
        return unsent or (self._options.follow and any(state.in_flight for state in states))

    def _submit(self) -> None:
        flying = sum(track.state.in_flight for track in self._tracks)
        room = len(self._tracks) if self._options.concurrency is None else self._options.concurrency
        for track in self._tracks:
            if flying >= room or self._busy_until > time.monotonic():
                return
            if track.ready:
                self._send(track)
                self._report(track)
                flying += track.state.in_flight

    def _send(self, track: Track) -> None:
        cell, attempt = track.cell, track.entry.attempt + 1
        try:
            job = self._link.ask(
                lambda: self._client.score_checkpoint(
                    cell.checkpoint,
                    cell.anchors,
                    cell.shift,
                    reference=cell.reference,
                    protocol=cell.protocol,
                    thresholds=cell.thresholds,
                    numeric_mode=cell.numeric_mode,
                    request_id=cell.request_id(self._sweep, attempt),
                ),
                give_way=True,
            )
        except RunEnded:
            raise
        except AcpcError as error:
            if passing(error):
                self._busy_until = time.monotonic() + (error.retry_after or 0.0)
                track.postponed(error)
            else:
                track.refused(_explained(error))
            return
        track.submitted(attempt, job.name)
        self._take(track, job.submitted)

    def _due(self) -> list[Track]:
        """The jobs to look at in this turn."""
        flying = [track for track in self._tracks if track.state.in_flight]
        others = flying[_OLDEST:]
        start = self._turn * _OTHERS % max(1, len(others))
        self._turn += 1
        return flying[:_OLDEST] + others[start : start + _OTHERS]

    def _look_at(self, tracks: Sequence[Track]) -> None:
        for track in tracks:
            self._look(track)
            self._report(track)

    def _look(self, track: Track) -> None:
        name = track.entry.operation
        try:
            operation = self._link.ask(lambda: self._client.operations.get(name))
        except NotFound:
            track.forgotten()
        except RunEnded:
            raise
        except AcpcError as error:
            track.stumbled(error)
        else:
            self._take(track, operation)

    def _take(self, track: Track, operation: Operation) -> None:
        """Notes where a job is."""
        if not operation.done:
            running = operation.state is JobState.RUNNING
            track.moved(CellState.RUNNING if running else CellState.QUEUED, operation.progress)
            return
        try:
            score = operation.result()
        except AcpcError as error:
            cancelled = operation.state is JobState.CANCELLED
            state = CellState.CANCELLED if cancelled else CellState.FAILED
            track.ended(state, error, submit=self._options.submit)
        else:
            track.succeeded(score)

    def _report(self, track: Track) -> None:
        status = track.status
        before = self._statuses[track.index]
        if status != before:
            self._statuses[track.index] = status
            self._done += status.share - before.share
            self._tell(status)

    def _tell(self, *changed: CellStatus) -> None:
        measured = self._meter.read(self._done)
        self._on_update(SweepProgress(tuple(self._statuses), changed, *measured, self._away))


def _explained(error: AcpcError) -> AcpcError:
    if not isinstance(error, AlreadyExists):
        return error
    return AlreadyExists(
        "this cell was submitted before, under the same name of the sweep, and its checkpoint or "
        "dataset has changed since; give the sweep another name to measure the new one "
        f"({error.message})",
        reason=error.reason,
        request_id=error.request_id,
    )
