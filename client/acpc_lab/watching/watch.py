"""Watches a server's checkpoints: a sweep that plans again at every interval."""

from __future__ import annotations

import itertools
import logging
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import KW_ONLY, dataclass, field, replace
from pathlib import Path
from typing import Any

from acpc_client import AcpcClient, Outcome
from acpc_client.errors import AcpcError, FailedPrecondition

from acpc_lab.campaigns import Campaign, Entry, Link, Options, TaskState
from acpc_lab.evidence import at_epoch
from acpc_lab.sweeps import (
    Cell,
    CellTask,
    Planner,
    SweepFileError,
    SweepFolder,
    SweepPlan,
    SweepProgress,
    SweepResults,
    SweepSpec,
)
from acpc_lab.watching.arrivals import Arrival, Arrivals

_log = logging.getLogger("acpc_lab")


@dataclass(frozen=True)
class ScoredCheckpoint:
    """A checkpoint all of whose cells have ended: what listeners get.

    Attributes:
        results: Its cells with their scores, per-anchor values included.
        outcome: The gate's verdict over all cells; UNSPECIFIED: one has no score.
    """

    arrival: Arrival
    results: SweepResults
    outcome: Outcome

    @property
    def verdict(self) -> str | None:
        """The outcome as text; None: there is none; ``reference``: nothing was judged."""
        if self.outcome is Outcome.UNSPECIFIED:
            return None
        judged = any(not item.is_reference for item in self.results)
        return self.outcome.name.lower() if judged else "reference"

    def to_dict(self) -> dict[str, Any]:
        """Returns plain values for JSON; scores are documents of the kind ``sweep_cell``."""
        return {
            "checkpoint": self.arrival.ref.name,
            "weights": self.arrival.ref.weights,
            "epoch": self.arrival.epoch,
            "digest": self.arrival.digest,
            "verdict": self.verdict,
            "confidence": self.results.confidence,
            "scores": [item.result().to_dict() for item in self.results],
        }


Listener = Callable[[ScoredCheckpoint], object]


@dataclass(eq=False)
class Watch:
    """Scores each checkpoint that appears at a server, once, by the cells of a sweep file.

    Its own folder is as a sweep's, and a later run goes on from there: a job's request id follows
    from the sweep's name, the cell, and the content of the checkpoint's files.

    Attributes:
        folder: Where to keep the plan, the state and the scores.
        prefix: The checkpoint or the folder below the server's root to watch; empty: all.
        gate: Which verdict counts, ``"point"`` or ``"confident"``.
        listeners: Called in the thread of ``run`` with each checkpoint that has come to its end,
            in turn; at least once each, also after a crash. What they raise is reported.
        on_trouble: Called with what goes wrong on the way, in words.
        unplanned: Checkpoints that cannot be scored yet, for reasons that were reported.

    Raises ArgumentError: ``prefix`` is a path of this machine.
    """

    spec: SweepSpec
    folder: Path
    prefix: str = ""
    _: KW_ONLY
    gate: str = "point"
    listeners: Sequence[Listener] = ()
    on_trouble: Callable[[str], object] = _log.warning
    unplanned: list[Arrival] = field(default_factory=list, init=False)

    def __post_init__(self) -> None:
        self._arrivals = Arrivals(self.spec, self.prefix, self.on_trouble)
        self._disk = SweepFolder(self.folder)
        self._cells: dict[Arrival, list[Cell]] = {}
        self._open: dict[Arrival, None] = {}
        self._tried: set[Arrival] = set()

    def run(
        self,
        client: AcpcClient,
        *,
        once: bool = False,
        interval: float = 2.0,
        concurrency: int | None = None,
        patience: float | None = None,
        stop: threading.Event | None = None,
        on_update: Callable[[SweepProgress], None] = lambda _: None,
    ) -> None:
        """Watches until it is stopped.

        Without ``once``, a full disk is waited for.

        Args:
            client: The server.
            once: End as soon as everything that is there now has been scored.
            interval: Seconds between two looks at the server's checkpoints. One is scored when it
                is found again as it was.
            concurrency: Jobs in flight at most; None: the file's.
            patience: Seconds the server may be away at a stretch; None: without end, with ``once``
                the client's.
            stop: Ends the run when set, from any thread.
            on_update: Called whenever a cell has moved.

        Raises FailedPrecondition: Another process watches with this folder, or, with ``once``,
        something cannot be written; RunEnded: The server was away for too long, or ``stop`` was
        set; jobs go on.
        """
        if patience is None and not once:
            patience = float("inf")
        link = Link(client, patience=patience, stop=stop)
        how = Options(concurrency or self.spec.concurrency, self.spec.retries)
        while True:
            try:
                with self._disk.writing():
                    kept = self._disk.entries(), self._disk.write_entries
                    campaign = Campaign(client, link, (), how, on_update, *kept)
                    self._restore(campaign)
                    self._run(link, campaign, once, interval)
                return
            except OSError as error:
                trouble = f"cannot write {self.folder}: {error.strerror}"
                if once:
                    raise FailedPrecondition(
                        f"{trouble}; jobs go on at the server: make room, and run it again"
                    ) from error
                self._arrivals.tell(
                    f"{trouble}; jobs go on at the server, and the watch when there is room"
                )
            link.sleep(10 * link.poll)
            link.check()

    def _restore(self, campaign: Campaign[CellTask]) -> None:
        """Reads the plan, and goes on with what had not come to its end."""
        self._cells, self._open, self._tried = {}, {}, set()
        if (known := self._disk.read_plan()) is None:
            return
        for cell in known.cells:
            self._cells.setdefault(Arrival(cell.checkpoint, cell.content), []).append(cell)
        if known != self._plan(known.cells):
            self._disk.write_plan(self._plan(known.cells))
        for arrival in self._cells:
            if not all(state.done for state in self._states(arrival, campaign)):
                self._take(arrival, campaign)

    def _plan(self, cells: Iterable[Cell]) -> SweepPlan:
        return SweepPlan(self.spec.name, self.spec.description, self.spec.document, tuple(cells))

    def _states(self, arrival: Arrival, campaign: Campaign[CellTask]) -> list[TaskState]:
        return [campaign.entries.get(cell.id, Entry()).state for cell in self._cells[arrival]]

    def _take(self, arrival: Arrival, campaign: Campaign[CellTask]) -> None:
        self._open[arrival] = None
        self._tried.add(arrival)
        cells = self._cells[arrival]
        campaign.add(CellTask(cell, self.spec.name, self._disk) for cell in cells)

    def _run(self, link: Link, campaign: Campaign[CellTask], once: bool, interval: float) -> None:
        look_at = 0.0
        while True:
            if time.monotonic() >= look_at:
                self._look(link, campaign)
                look_at = time.monotonic() + interval
            left = campaign.turn()
            self._report(campaign)
            campaign.write()
            if once and not left and not self._arrivals.moving:
                return
            link.sleep(min(link.poll, interval))
            link.check()

    def _look(self, link: Link, campaign: Campaign[CellTask]) -> None:
        """Plans what has arrived, and takes what has no score and was not tried in this run."""
        arrived = self._arrivals.look(link, campaign.client)
        planner = Planner(
            self.spec,
            self._arrivals.listed,
            lambda name: link.ask(lambda: campaign.client.anchors.get(name)),
        )
        self.unplanned, known = [], len(self._cells)
        self._tried &= {*arrived, *self._open}  # what was away may be tried again
        for arrival in arrived:
            if arrival not in self._cells and not self._make_cells(arrival, planner):
                continue
            scored = all(state is TaskState.SUCCEEDED for state in self._states(arrival, campaign))
            if not scored and arrival not in self._tried:
                self._take(arrival, campaign)
        if len(self._cells) > known:
            self._disk.write_plan(self._plan(itertools.chain(*self._cells.values())))

    def _make_cells(self, arrival: Arrival, planner: Planner) -> bool:
        """Puts the cells of a checkpoint into the plan; where that cannot be, says why."""
        try:
            found = planner.cells_of(arrival.ref)
        except SweepFileError as error:
            self.unplanned.append(arrival)
            self._arrivals.tell(f"{arrival} waits: {error.message}")
            return False
        sure = at_epoch(self.spec.evidence, arrival.epoch, self.spec.error_halflife)
        self._cells[arrival] = []
        for cell in found:  # whose labels do not tell run and epoch: the name does
            known = {} if cell.labels.keys() & {"epoch", "step"} else arrival.labels
            labels = {**known, **cell.labels}
            made = replace(cell, content=arrival.digest, evidence=sure, labels=labels)
            self._cells[arrival].append(made)
        return True

    def _report(self, campaign: Campaign[CellTask]) -> None:
        """Tells the listeners of the checkpoints that have come to their end.

        Before that is written, so that each is told of at least once. The next run tries again what
        has no score, if it is still there.
        """
        now = {task.id: task.entry for task in campaign.tasks}
        for arrival in tuple(self._open):
            cells = self._cells[arrival]
            if not all(now[cell.id].state.done for cell in cells):
                continue
            results = SweepResults.of(self._plan(cells), self._disk, now)
            scored = ScoredCheckpoint(arrival, results, results.outcome(self.gate))
            for listener in self.listeners:
                try:
                    listener(scored)
                except Exception as error:  # noqa: BLE001 - the watch goes on
                    code = error.code if isinstance(error, AcpcError) else type(error).__name__
                    self.on_trouble(f"{arrival.ref.name}: {code}: {error}")
            del self._open[arrival]
