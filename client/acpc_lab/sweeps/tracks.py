"""A cell while it runs: its attempts, its failures, and what the journal is told of them."""

from __future__ import annotations

import dataclasses
import time
from dataclasses import dataclass

from acpc_client import Progress, Score
from acpc_client.errors import Aborted, AcpcError, Cancelled, DataLoss, Internal, Unknown

from acpc_lab.sweeps.cells import Cell
from acpc_lab.sweeps.journal import CellState, Entry, Journal
from acpc_lab.sweeps.link import passing
from acpc_lab.sweeps.progress import CellStatus

# Ends of a job that another job may not meet; CANCELLED when this sweep did not ask for it.
_WORTH_ANOTHER_JOB = (Aborted, Cancelled, DataLoss, Internal, Unknown)
_FIRST_BACKOFF_S = 1.0
_LONGEST_BACKOFF_S = 60.0


@dataclass
class Track:
    """One cell of a run.

    Attributes:
        index: Its place in the plan.
        cell: What is asked.
        entry: What the journal knows.
        journal: Open for writing.
        retries: Failures it may have in this run.
    """

    index: int
    cell: Cell
    entry: Entry
    journal: Journal
    retries: int
    progress: Progress | None = None
    problem: AcpcError | None = None
    score: Score | None = None
    _failures: int = 0
    _stumbles: int = 0
    _waiting: bool = False
    _not_before: float = 0.0

    @property
    def state(self) -> CellState:
        """Where the cell is in its life."""
        return CellState.WAITING if self._waiting else self.entry.state

    @property
    def ready(self) -> bool:
        """Whether it is to be submitted now."""
        unsent = self.state in (CellState.PENDING, CellState.WAITING)
        return unsent and self._not_before <= time.monotonic()

    @property
    def status(self) -> CellStatus:
        """The cell for others to see."""
        return CellStatus(
            self.cell, self.state, self.entry.attempt, self.entry.operation,
            self.progress, self.problem, self.score,
        )  # fmt: skip

    def resume(self, *, submit: bool) -> None:
        """Decides where a run goes on with what the journal knows."""
        state = self.entry.state
        if state is CellState.SUCCEEDED and not self.journal.result_path(self.cell).exists():
            # The server may still have it.
            state = CellState.QUEUED if self.entry.operation else CellState.PENDING
        elif state in (CellState.FAILED, CellState.CANCELLED) and submit:
            # Whoever runs a sweep again gives its failures another go.
            state = CellState.PENDING
        self._enter(state)

    def submitted(self, attempt: int, operation: str) -> None:
        """It has a job."""
        self.journal.append("submitted", self.cell, attempt=attempt, operation=operation)
        self.entry = Entry(CellState.QUEUED, attempt, operation)
        self._waiting = False

    def moved(self, state: CellState, progress: Progress) -> None:
        """Its job goes on."""
        self._stumbles = 0
        self.progress = progress
        self._enter(state)

    def succeeded(self, score: Score) -> None:
        """It has a score. The file comes first: an event without its file would be a lie."""
        self.journal.save(self.cell, score)
        self._note(CellState.SUCCEEDED)
        self.score, self.problem = _brief(score), None

    def ended(self, state: CellState, error: AcpcError, *, submit: bool) -> None:
        """Its job ended without a score; another one may do better."""
        self._note(state, error)
        another = passing(error) or isinstance(error, _WORTH_ANOTHER_JOB)
        if another and submit and not self.entry.cancel_asked:
            self._again(error)

    def refused(self, error: AcpcError) -> None:
        """It could not be submitted."""
        if isinstance(error, _WORTH_ANOTHER_JOB):
            self._again(error)
        else:
            self._note(CellState.FAILED, error)
            self._waiting = False

    def postponed(self, error: AcpcError) -> None:
        """The server has no room for it now."""
        self._waiting, self.problem = True, error

    def forgotten(self) -> None:
        """The server no longer has its job: it goes there again under the same request id."""
        attempt = self.entry.attempt - 1
        self.entry = Entry(CellState.PENDING, attempt)
        self.progress = None

    def stumbled(self, error: AcpcError) -> None:
        """Its job could not be looked at. It may well go on, so there is no other one yet."""
        self._stumbles += 1
        self.problem = error
        if self._stumbles > self.retries:
            self._note(CellState.FAILED, error)

    def _again(self, error: AcpcError) -> None:
        self._failures += 1
        if self._failures > self.retries:
            self._note(CellState.FAILED, error)
            self._waiting = False
            return
        backoff = min(_LONGEST_BACKOFF_S, _FIRST_BACKOFF_S * 2.0 ** (self._failures - 1))
        self._not_before = time.monotonic() + max(backoff, error.retry_after or 0.0)
        self._waiting, self.problem = True, error

    def _note(self, state: CellState, error: AcpcError | None = None) -> None:
        """Tells the journal of an end."""
        told = {} if error is None else {"code": error.code, "message": error.message}
        self.journal.append(
            "ended", self.cell, attempt=self.entry.attempt, state=state.value, **told
        )
        self._enter(state)
        self.problem = error

    def _enter(self, state: CellState) -> None:
        self.entry = dataclasses.replace(self.entry, state=state)


def _brief(score: Score) -> Score:
    """A score without its per-anchor values."""
    reference = score.reference
    return dataclasses.replace(
        score,
        checkpoint=dataclasses.replace(score.checkpoint, anchor_values=None),
        reference=None if reference is None else dataclasses.replace(reference, anchor_values=None),
    )
