"""Runs the cells of a plan: submits, polls, tries again, and keeps what comes back."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from acpc_client.errors import (
    Aborted,
    AcpcError,
    AlreadyExists,
    Cancelled,
    DataLoss,
    Internal,
    NotFound,
    Unknown,
)
from acpc_client.results import JobState, Operation, Progress, Score
from acpc_client.sweeps.cells import Cell
from acpc_client.sweeps.journal import CellState, Entry, Journal
from acpc_client.sweeps.link import Link, RunEnded, passing
from acpc_client.sweeps.progress import CellStatus, Meter, SweepProgress
from acpc_client.sync_client import AcpcClient

Callback = Callable[[SweepProgress], None]
_RUNNING = {JobState.RUNNING: CellState.RUNNING}
_ENDS = {JobState.CANCELLED: CellState.CANCELLED}
_WORTH_ANOTHER_JOB = (Aborted, Cancelled, DataLoss, Internal, Unknown)
# Jobs are done about in the order of their submission: these are asked for at every turn,
_OLDEST = 8
# and as many of the others, in turn.
_OTHERS = 4
_FIRST_BACKOFF_S = 1.0
_LONGEST_BACKOFF_S = 60.0


@dataclass
class _Track:
    """A cell while it runs."""

    index: int
    cell: Cell
    entry: Entry
    failures: int = 0
    stumbles: int = 0
    not_before: float = 0.0
    waiting: bool = False
    progress: Progress | None = None
    problem: AcpcError | None = None
    score: Score | None = None

    @property
    def state(self) -> CellState:
        return CellState.WAITING if self.waiting else self.entry.state

    def status(self) -> CellStatus:
        return CellStatus(
            self.cell, self.state, self.entry.attempt, self.entry.operation,
            self.progress, self.problem, self.score,
        )  # fmt: skip


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


@dataclass
class Runner:
    """One run over a plan.

    Attributes:
        client: The server's.
        link: Waits for the server.
        sweep: Name of the sweep.
        cells: What to run.
        journal: Open for writing.
        options: How.
        on_update: Told whenever a cell or the server's presence has changed.
    """

    client: AcpcClient
    link: Link
    sweep: str
    cells: Sequence[Cell]
    journal: Journal
    options: Options
    on_update: Callback
    away: AcpcError | None = None
    _tracks: list[_Track] = field(default_factory=list)
    _statuses: list[CellStatus] = field(default_factory=list)
    _turn: int = 0
    _busy_until: float = 0.0

    def __post_init__(self) -> None:
        entries = self.journal.entries()
        for index, cell in enumerate(self.cells):
            entry = self._begin(cell, entries.get(cell.id, Entry()))
            self._tracks.append(_Track(index, cell, entry))
        self._statuses = [track.status() for track in self._tracks]
        self._meter = Meter([status.share for status in self._statuses])

    def _begin(self, cell: Cell, entry: Entry) -> Entry:
        state = entry.state
        if state is CellState.SUCCEEDED and not self.journal.result_path(cell).exists():
            # The server may still have it.
            state = CellState.QUEUED if entry.operation else CellState.PENDING
        elif state in (CellState.FAILED, CellState.CANCELLED) and self.options.submit:
            # Whoever runs a sweep again gives its failures another go.
            state = CellState.PENDING
        return dataclasses.replace(entry, state=state)

    def run(self) -> None:
        """Runs until every cell is done, or as far as the options go.

        Raises:
            AcpcError: The server stayed away, or the time is over; what was measured is kept.
        """
        self._tell(*self._statuses)
        while True:
            if self.options.submit:
                self._submit()
            if self.options.follow:
                self._poll()
            if not self._left():
                return
            self.link.check()
            self.link.sleep(self.options.poll)

    def poll_once(self) -> None:
        """Looks once at every job in flight."""
        for track in [item for item in self._tracks if item.state.in_flight]:
            self._look(track)

    def _left(self) -> bool:
        """Whether there is anything to wait for."""
        states = {track.state for track in self._tracks}
        unsent = self.options.submit and bool(states & {CellState.PENDING, CellState.WAITING})
        return unsent or (self.options.follow and any(state.in_flight for state in states))

    def _submit(self) -> None:
        limit = self.options.concurrency
        for track in self._tracks:
            full = limit is not None and self._flying() >= limit
            if full or self._busy_until > time.monotonic():
                return
            ready = track.state in (CellState.PENDING, CellState.WAITING)
            if ready and track.not_before <= time.monotonic():
                self._send(track)

    def _flying(self) -> int:
        return sum(track.state.in_flight for track in self._tracks)

    def _send(self, track: _Track) -> None:
        cell, attempt = track.cell, track.entry.attempt + 1
        try:
            job = self.link.ask(
                lambda: self.client.score_checkpoint(
                    cell.checkpoint,
                    cell.anchors,
                    cell.shift,
                    reference=cell.reference,
                    protocol=cell.protocol,
                    thresholds=cell.thresholds,
                    numeric_mode=cell.numeric_mode,
                    request_id=cell.request_id(self.sweep, attempt),
                ),
                give_way=True,
            )
        except RunEnded:
            raise
        except AcpcError as error:
            if passing(error):
                self._busy_until = time.monotonic() + (error.retry_after or 0.0)
                self._wait(track, error, 0.0)
            elif isinstance(error, _WORTH_ANOTHER_JOB):
                self._try_again(track, error)
            else:
                self._fail(track, _explained(error))
            self._report(track)
            return
        self.journal.append("submitted", cell, attempt=attempt, operation=job.name)
        track.entry = Entry(CellState.QUEUED, attempt, job.name)
        track.waiting = False
        self._take(track, job.submitted)

    def _poll(self) -> None:
        flying = [track for track in self._tracks if track.state.in_flight]
        others = flying[_OLDEST:]
        turn = self._turn * _OTHERS % max(1, len(others))
        self._turn += 1
        for track in flying[:_OLDEST] + others[turn : turn + _OTHERS]:
            self._look(track)

    def _look(self, track: _Track) -> None:
        name = track.entry.operation
        try:
            operation = self.link.ask(lambda: self.client.operations.get(name))
        except NotFound:
            # Deleted, or expired: submitted again under the same id.
            attempt = track.entry.attempt - 1
            track.entry = dataclasses.replace(
                track.entry, state=CellState.PENDING, attempt=attempt, operation=""
            )
            track.progress = None
            self._report(track)
        except RunEnded:
            raise
        except AcpcError as error:
            # Its job may well go on, so that another one would double it: ask again.
            track.stumbles += 1
            track.problem = error
            if track.stumbles > self.options.retries:
                self._fail(track, error)
            self._report(track)
        else:
            track.stumbles = 0
            self._take(track, operation)

    def _take(self, track: _Track, operation: Operation) -> None:
        """Notes where a job is."""
        if not operation.done:
            state = _RUNNING.get(operation.state, CellState.QUEUED)
            track.entry = dataclasses.replace(track.entry, state=state)
            track.progress = operation.progress
            self._report(track)
            return
        try:
            score = operation.result()
        except AcpcError as error:
            self._end(track, _ENDS.get(operation.state, CellState.FAILED), error)
            return
        self.journal.save(track.cell, score)
        self.journal.append(
            "ended", track.cell, attempt=track.entry.attempt, state=CellState.SUCCEEDED.value
        )
        track.entry = dataclasses.replace(track.entry, state=CellState.SUCCEEDED)
        track.problem = None
        track.score = _brief(score)
        self._report(track)

    def _end(self, track: _Track, state: CellState, error: AcpcError) -> None:
        """A job ended without a score."""
        self._note_end(track, state, error)
        asked = track.entry.cancel_asked
        again = passing(error) or isinstance(error, _WORTH_ANOTHER_JOB)
        if again and not asked and self.options.submit:
            self._try_again(track, error)
        self._report(track)

    def _try_again(self, track: _Track, error: AcpcError) -> None:
        if track.failures >= self.options.retries:
            self._fail(track, error)
            return
        track.failures += 1
        backoff = _FIRST_BACKOFF_S * 2.0 ** (track.failures - 1)
        self._wait(track, error, min(_LONGEST_BACKOFF_S, max(backoff, error.retry_after or 0.0)))

    def _wait(self, track: _Track, error: AcpcError, seconds: float) -> None:
        track.waiting, track.problem = True, error
        track.not_before = time.monotonic() + seconds

    def _fail(self, track: _Track, error: AcpcError) -> None:
        if track.entry.state is not CellState.FAILED:
            self._note_end(track, CellState.FAILED, error)
        track.waiting = False

    def _note_end(self, track: _Track, state: CellState, error: AcpcError) -> None:
        self.journal.append(
            "ended", track.cell, attempt=track.entry.attempt, state=state.value,
            code=error.code, message=error.message,
        )  # fmt: skip
        track.entry = dataclasses.replace(
            track.entry, state=state, code=error.code, message=error.message
        )
        track.problem = error

    def set_away(self, error: AcpcError | None) -> None:
        """Notes that the server is away, or that it is back."""
        self.away = error
        self._tell()

    def _report(self, track: _Track) -> None:
        status = track.status()
        if status != self._statuses[track.index]:
            self._statuses[track.index] = status
            self._tell(status)

    def _tell(self, *changed: CellStatus) -> None:
        measured = self._meter.read([status.share for status in self._statuses])
        self.on_update(SweepProgress(tuple(self._statuses), changed, *measured, self.away))


def _brief(score: Score) -> Score:
    """A score without its per-anchor values."""
    reference = score.reference
    return dataclasses.replace(
        score,
        checkpoint=dataclasses.replace(score.checkpoint, anchor_values=None),
        reference=None if reference is None else dataclasses.replace(reference, anchor_values=None),
    )


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
