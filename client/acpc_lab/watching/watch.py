"""Watches a folder: a campaign whose cells arrive while it runs."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from pathlib import Path
from typing import Any

from acpc_client import AcpcClient, CheckpointRef, Operation, Outcome
from acpc_client.errors import (
    AcpcError,
    ArgumentError,
    FailedPrecondition,
    NotFound,
    extended,
)

from acpc_lab.campaigns import Campaign, Link, Options
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
    item_of,
)
from acpc_lab.watching.finding import CONFIG, Arrival, Finder, Stamp, WeightsFile, stamp_of

# Files that a line names.
_NAMED = 4
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


class _WatchedTask(CellTask):
    """A cell of a checkpoint in the folder, whose content may be gone."""

    is_gone: Callable[[], bool]

    def submit(self, client: AcpcClient, attempt: int) -> Operation:
        """Submits the scoring job of an attempt.

        Raises FailedPrecondition: The content is gone; AcpcError: As ``CellTask.submit``.
        """
        if self.is_gone():
            raise FailedPrecondition("its files were removed or replaced before it was scored")
        try:
            return super().submit(client, attempt)
        except NotFound as error:
            if self.cell.checkpoint.name not in error.message:
                raise
            words = "the watched folder must be what the server has below its --checkpoint-root"
            raise extended(error, f"{words}; say with --prefix what it is called there") from error


class Watch:
    """Scores each checkpoint that appears in a folder, once, by the cells of a sweep file.

    Its own folder is as a sweep's, and a later run goes on from there: a job's request id follows
    from the sweep's name, the cell, and the content of the checkpoint's files.

    Args:
        spec: The sweep file.
        folder: Where to keep the journal and the scores.
        finder: Looks for checkpoints.
        gate: Which verdict counts, ``"point"`` or ``"confident"``.
        listeners: Called in the thread of ``run`` with each checkpoint that has come to its end,
            in turn; at least once each, also after a crash. What they raise is reported.
        on_trouble: Called with what goes wrong on the way, in words.

    Attributes:
        unplanned: Checkpoints that cannot be scored yet, for reasons that were reported.
    """

    def __init__(
        self,
        spec: SweepSpec,
        folder: Path,
        finder: Finder,
        *,
        gate: str = "point",
        listeners: Sequence[Listener] = (),
        on_trouble: Callable[[str], object] = _log.warning,
    ) -> None:
        self.spec = spec
        self.folder = folder
        self.finder = finder
        self.gate = gate
        self.unplanned: list[Arrival] = []
        self._listeners = tuple(listeners)
        self._on_trouble = on_trouble
        self._disk = SweepFolder(folder)
        self._told: set[str | Path] = set()
        self._digests: dict[tuple[CheckpointRef, Stamp], str] = {}
        self._cells: dict[Arrival, list[Cell]] = {}
        self._open: dict[Arrival, None] = {}
        self._gone: set[Arrival] = set()

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

        Without ``once``, a full disk and a folder that is away are waited for.

        Args:
            client: The server.
            once: End as soon as everything that is there now has been scored.
            interval: Seconds between two looks at the folder.
            concurrency: Jobs in flight at most; None: the file's.
            patience: Seconds the server may be away at a stretch; None: without end, with ``once``
                the client's.
            stop: Ends the run when set, from any thread.
            on_update: Called whenever a cell has moved.

        Raises ArgumentError: The folder is a checkpoint itself, and has no name at the server;
        FailedPrecondition: Another process watches with this folder, or, with ``once``, something
        cannot be read or written; RunEnded: The server was away for too long, or ``stop`` was set;
        jobs go on.
        """
        if patience is None and not once:
            patience = float("inf")
        link = Link(client, patience=patience, stop=stop)
        how = Options(concurrency or self.spec.concurrency, self.spec.retries)
        while True:
            try:
                with self._disk.journal.writing():
                    self._restore()
                    campaign = Campaign(client, link, (), how, self._disk.journal, on_update)
                    campaign.add(task for arrival in self._open for task in self._tasks(arrival))
                    self._run(client, link, campaign, once, interval)
                return
            except OSError as error:
                trouble = f"cannot write {self.folder}: {error.strerror}"
                if once:
                    raise FailedPrecondition(
                        f"{trouble}; jobs go on at the server: make room, and run it again"
                    ) from error
                self._tell(f"{trouble}; jobs go on at the server, and the watch when there is room")
            link.sleep(10 * link.poll)
            link.check()

    def _restore(self) -> None:
        """Reads what has arrived, and of what the listeners were told."""
        told: dict[str, set[str]] = {"reported": set(), "gone": set()}
        for event in self._disk.journal.events():
            if event["event"] == "arrived":
                ref = CheckpointRef(event["checkpoint"], event["weights"])
                self._digests[ref, tuple(event["stamp"])] = event["digest"]
            elif event["event"] in told:
                told[event["event"]].add(event["cell"])
        known = self._disk.read_plan()
        plan = self._plan(() if known is None else known.cells)
        if known not in (None, plan):
            self._disk.write_plan(plan)
        self._cells = {}
        for cell in plan.cells:
            self._cells.setdefault(Arrival(cell.checkpoint, cell.content), []).append(cell)
        left = [arrival for arrival in self._cells if arrival.id not in told["reported"]]
        self._open = {arrival: None for arrival in left if arrival.id not in told["gone"]}
        self._gone = {arrival for arrival in left if arrival.id in told["gone"]}

    def _plan(self, cells: tuple[Cell, ...]) -> SweepPlan:
        return SweepPlan(self.spec.name, self.spec.description, self.spec.document, cells)

    def _run(
        self,
        client: AcpcClient,
        link: Link,
        campaign: Campaign[CellTask],
        once: bool,
        interval: float,
    ) -> None:
        find_set = cache(lambda name: link.ask(lambda: client.anchors.get(name)))
        look_at = 0.0
        while True:
            if time.monotonic() >= look_at:
                for arrival in self._arriving(once):
                    if arrival in self._gone:  # and is back, as when the folder was another
                        self._gone.remove(arrival)
                        self._open[arrival] = None
                        campaign.add(self._tasks(arrival))
                        continue
                    listed = link.ask(client.checkpoints.list)
                    if self._make_cells(arrival, Planner(self.spec, listed, find_set)):
                        campaign.add(self._tasks(arrival))
                        campaign.turn()
                look_at = time.monotonic() + interval
            left = campaign.turn()
            self._report(campaign)
            if once and not left and not self.finder.unsettled:
                return
            link.sleep(min(link.poll, interval))
            link.check()

    def _tasks(self, arrival: Arrival) -> Iterator[CellTask]:
        is_gone = partial(self._is_gone, arrival)
        for cell in self._cells[arrival]:
            task = _WatchedTask(cell, self.spec.name, self._disk)
            task.is_gone = is_gone
            yield task

    def _is_gone(self, arrival: Arrival) -> bool:
        """Whether a checkpoint's files are gone or others now; not while the folder is away."""
        found = self.finder.find(arrival.ref)
        if found is None:
            return self.finder.root.is_dir()
        return self._arrived(found) not in (None, arrival)

    def _arriving(self, once: bool) -> Iterator[Arrival]:
        """Yields the checkpoints that want cells."""
        try:
            found = self.finder.look()
        except OSError as error:
            trouble = f"cannot read {self.finder.root}: {error.strerror}"
            if once:
                raise FailedPrecondition(trouble) from error
            self._tell(f"{trouble}; waiting for it")
            return
        for path, settled in self.finder.torn.items():
            if settled or once:
                self._tell(f"{path}, or {CONFIG} beside it, is not whole; left out until it is")
        meant = [x for x in found if not x.ref.name or item_of(self.spec, x.ref) is not None]
        self._tell_of_skipped([item.path for item in found if item not in meant])
        self.unplanned = []
        for item in meant:
            if not item.ref.name:
                raise ArgumentError(
                    "prefix",
                    f"{self.finder.root} holds {item.ref.weights} itself: say what the server "
                    "calls this folder, its path below --checkpoint-root",
                )
            arrival = self._arrived(item)
            if arrival is not None and (arrival not in self._cells or arrival in self._gone):
                yield arrival

    def _tell_of_skipped(self, unnamed: Sequence[Path]) -> None:
        """Names what is there and will not be scored: each once, a few of those that are alike."""
        why_not = dict.fromkeys(unnamed, f"no item of checkpoints in {self.spec.name} means it")
        why_not |= self.finder.skipped
        for why in dict.fromkeys(why_not.values()):
            paths = [x for x in why_not if why_not[x] == why and x not in self._told]
            self._told.update(paths)
            more = f" and {len(paths) - _NAMED} more" if len(paths) > _NAMED else ""
            if paths:
                self._tell(f"{', '.join(map(str, paths[:_NAMED]))}{more}: left out: {why}")

    def _arrived(self, found: WeightsFile) -> Arrival | None:
        """Returns the checkpoint that a file is; None: it is being written, and comes again."""
        key = found.ref, found.stamp
        if key not in self._digests:
            try:
                arrival = Arrival(found.ref, found.digest())
            except OSError:
                return None
            if stamp_of(found.path) != found.stamp:  # written while it was read
                self.finder.unsettled = True
                return None
            self._disk.journal.append(
                "arrived", arrival.id, checkpoint=found.ref.name, weights=found.ref.weights,
                digest=arrival.digest, epoch=arrival.epoch, stamp=list(found.stamp),
            )  # fmt: skip
            self._digests[key] = arrival.digest
        return Arrival(found.ref, self._digests[key])

    def _make_cells(self, arrival: Arrival, planner: Planner) -> bool:
        """Puts the cells of a checkpoint into the plan; where that cannot be, says why."""
        try:
            found = planner.cells_of(arrival.ref)
        except SweepFileError as error:
            self.unplanned.append(arrival)
            self._tell(f"{arrival} waits: {error.message}")
            return False
        sure = at_epoch(self.spec.evidence, arrival.epoch, self.spec.error_halflife)
        cells = []
        for cell in found:  # whose labels do not tell run and epoch: the name does
            known = {} if cell.labels.keys() & {"epoch", "step"} else arrival.labels
            labels = {**known, **cell.labels}
            cells.append(replace(cell, content=arrival.digest, evidence=sure, labels=labels))
        if not self._cells:
            self._disk.write_plan(self._plan(()))
        plain = [cell.to_document() for cell in cells]
        self._disk.journal.append("planned", arrival.id, cells=plain)
        self._cells[arrival] = cells
        self._open[arrival] = None
        return True

    def _report(self, campaign: Campaign[CellTask]) -> None:
        """Tells the listeners of the checkpoints that have come to their end.

        The next run tries again what has no score, unless it is gone.
        """
        now = {task.id: task.entry for task in campaign.tasks}
        for arrival in tuple(self._open):
            cells = tuple(self._cells[arrival])
            if not all(now[cell.id].state.done for cell in cells):
                continue
            results = SweepResults.of(self._plan(cells), self._disk, now)
            scored = ScoredCheckpoint(arrival, results, results.outcome(self.gate))
            for listener in self._listeners:
                try:
                    listener(scored)
                except Exception as error:  # noqa: BLE001 - the watch goes on
                    code = error.code if isinstance(error, AcpcError) else type(error).__name__
                    self._on_trouble(f"{arrival.ref.name}: {code}: {error}")
            if scored.outcome is not Outcome.UNSPECIFIED:
                self._disk.journal.append("reported", arrival.id)
            elif self._is_gone(arrival):
                self._disk.journal.append("gone", arrival.id)
                self._gone.add(arrival)
            del self._open[arrival]

    def _tell(self, words: str) -> None:
        """Reports a trouble that may last, once."""
        if words not in self._told:
            self._told.add(words)
            self._on_trouble(words)
