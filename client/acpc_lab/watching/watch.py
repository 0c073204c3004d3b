"""Watches a folder: a campaign whose cells arrive while it runs."""

from __future__ import annotations

import dataclasses
import functools
import logging
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, TypedDict, Unpack

from acpc_client import AcpcClient, CheckpointRef, Outcome
from acpc_client.errors import AcpcError, ArgumentError, FailedPrecondition

from acpc_lab.campaigns import Campaign, Entry, Link, Options, check_options
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
    depot_of,
    item_of,
)
from acpc_lab.watching.arrivals import Arrival, Listener, ScoredCheckpoint, WatchedTask
from acpc_lab.watching.finding import Finder, WeightsFile, stamp_of

if TYPE_CHECKING:
    from acpc_lab.sweeps import SweepSpec

_POLL_S, _RETRY_S = 0.5, 5.0
# Files that a line names.
_NAMED = 4
_log = logging.getLogger("acpc_lab")


class WatchRun(TypedDict, total=False):
    """Options of a watch; defaults in brackets.

    Attributes:
        once: End as soon as everything that is there now has been scored [False].
        interval: Seconds between two looks at the folder [2].
        concurrency: Jobs in flight at most [the file's].
        patience: Seconds the server may be away at a stretch [without end; with ``once`` the
            client's].
        stop: Ends the run when set, from any thread.
        on_update: Called whenever a cell has moved.
    """

    once: bool
    interval: float
    concurrency: int | None
    patience: float | None
    stop: threading.Event | None
    on_update: Callable[[SweepProgress], object]


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
        self._listeners = tuple(listeners)
        self._on_trouble = on_trouble
        self._disk = SweepFolder(folder)
        self._told: set[str] = set()
        self._skipped: set[Path] = set()
        self._arrivals: dict[str, Arrival] = {}
        self._cells: dict[str, tuple[Cell, ...]] = {}
        self._open: dict[str, None] = {}
        self._entries: dict[str, Entry] = {}

    def run(self, client: AcpcClient, **options: Unpack[WatchRun]) -> None:
        """Watches until it is stopped.

        Without ``once``, a full disk and a folder that is away are waited for. Raises
        ArgumentError: The folder is a checkpoint itself, and has no name at the server;
        FailedPrecondition: Another process watches with this folder, or, with ``once``, something
        cannot be read or written; RunEnded: The server was away for too long, or ``stop`` was set;
        jobs go on.
        """
        check_options("run", options, WatchRun)
        once, stop = options.get("once", False), options.get("stop") or threading.Event()
        patience = options.get("patience")
        if patience is None and not once:
            patience = float("inf")
        link = Link(client, patience=patience, stop=stop)
        while True:
            try:
                with self._disk.journal.writing():
                    self._disk.make_results()
                    self._restore()
                    self._run(client, link, options)
                return
            except OSError as error:
                trouble = f"cannot write {self.folder}: {error.strerror}"
                if once:
                    raise FailedPrecondition(
                        f"{trouble}; jobs go on at the server: make room, and run it again"
                    ) from error
                self._tell(f"{trouble}; jobs go on at the server, and the watch when there is room")
            link.sleep(_RETRY_S)
            link.check()

    @property
    def unplanned(self) -> tuple[Arrival, ...]:
        """Checkpoints that cannot be scored yet, for reasons that were reported."""
        waiting = (a for key, a in self._arrivals.items() if key not in self._cells)
        return tuple(arrival for arrival in waiting if not self._is_gone(arrival))

    def _restore(self) -> None:
        """Reads what has arrived, what became of it, and of what the listeners were told."""
        journal, reported = self._disk.journal, set()
        self._arrivals, self._cells = {}, {}
        for event in journal.events():
            if event["event"] == "arrived":
                ref = CheckpointRef(event["checkpoint"], event["weights"])
                stamp = tuple(event["stamp"])
                self._note(Arrival(ref, event["digest"], event["epoch"], stamp))
            elif event["event"] == "reported":
                reported.add(event["cell"])
        self._entries = journal.entries()
        known = self._disk.read_plan()
        plan = self._plan(() if known is None else known.cells)
        if known not in (None, plan):
            self._disk.write_plan(plan)
        ids = {(a.ref, a.digest): a.id for a in self._arrivals.values()}
        for cell in plan.cells:
            key = ids.get((cell.checkpoint, cell.content))
            if key is not None:
                self._cells[key] = (*self._cells.get(key, ()), cell)
        self._open = {key: None for key in self._cells if key not in reported}

    def _plan(self, cells: tuple[Cell, ...]) -> SweepPlan:
        return SweepPlan(self.spec.name, self.spec.description, self.spec.document, cells)

    def _note(self, arrival: Arrival) -> None:
        self._arrivals.pop(arrival.id, None)  # the latest of a name stands last
        self._arrivals[arrival.id] = arrival

    def _run(self, client: AcpcClient, link: Link, options: WatchRun) -> None:
        on_update = options.get("on_update")

        def moved(now: SweepProgress) -> None:
            self._entries |= {item.task.id: item.entry for item in now.changed}
            if on_update is not None:
                on_update(now)

        how = Options(options.get("concurrency") or self.spec.concurrency, self.spec.retries)
        campaign: Campaign[CellTask] = Campaign(client, link, (), how, self._disk.journal, moved)
        campaign.add([task for key in self._open for task in self._tasks(key)])
        depot = depot_of(self.spec, client, link, self.folder.parent)
        store = functools.cache(depot.store)
        once, interval, look_at = options.get("once", False), options.get("interval", 2.0), 0.0
        while True:
            if time.monotonic() >= look_at:
                for arrival in self._arriving(once=once):
                    listed = link.ask(lambda: list(client.checkpoints.list()))
                    planner = Planner.of(self.spec, listed, store, depot.groups)
                    if self._make_cells(arrival, planner):
                        campaign.add(self._tasks(arrival.id))
                        campaign.turn()
                look_at = time.monotonic() + interval
            left = campaign.turn()
            self._report()
            if once and not left and not self.finder.unsettled:
                return
            link.sleep(min(_POLL_S, interval))
            link.check()

    def _tasks(self, key: str) -> list[CellTask]:
        arrival = self._arrivals[key]
        return [
            WatchedTask(cell, self.spec.name, self._disk, is_gone=lambda: self._is_gone(arrival))
            for cell in self._cells[key]
        ]

    def _is_gone(self, arrival: Arrival) -> bool:
        """Whether a checkpoint's files are gone or others now; not while the folder is away."""
        found = self.finder.find(arrival.ref)
        if found is None:
            return self.finder.root.is_dir()
        try:
            return found.stamp != arrival.stamp and found.digest() != arrival.digest
        except OSError:
            return False

    def _arriving(self, *, once: bool) -> Iterator[Arrival]:
        """Yields the checkpoints that want cells: those that waited, and new ones."""
        yield from self.unplanned
        try:
            found = self.finder.look()
        except OSError as error:
            trouble = f"cannot read {self.finder.root}: {error.strerror}"
            if once:
                raise FailedPrecondition(trouble) from error
            self._tell(f"{trouble}; waiting for it")
            return
        for path in self.finder.torn:
            self._tell(f"{path} is not whole, and has not changed for a while; left out")
        latest = {arrival.ref: arrival for arrival in self._arrivals.values()}
        meant = {item.path: item_of(self.spec, item.ref) is not None for item in found}
        self._tell_of_skipped([x.path for x in found if x.ref.name and not meant[x.path]])
        for item in found:
            if not item.ref.name:
                raise ArgumentError(
                    "prefix",
                    f"{self.finder.root} holds {item.ref.weights} itself: say what the server "
                    "calls this folder, its path below --checkpoint-root",
                )
            arrival = self._arrived(item, latest.get(item.ref)) if meant[item.path] else None
            if arrival is not None and arrival.id not in self._cells:
                yield arrival

    def _tell_of_skipped(self, unnamed: Sequence[Path]) -> None:
        """Names what is there and will not be scored: each once, a few of those that are alike."""
        reasons: dict[str, list[Path]] = {}
        why_not = dict.fromkeys(unnamed, f"no item of checkpoints in {self.spec.name} means it")
        for path, why in (why_not | self.finder.skipped).items():
            if path not in self._skipped:
                reasons.setdefault(why, []).append(path)
        for why, paths in reasons.items():
            self._skipped.update(paths)
            more = f" and {len(paths) - _NAMED} more" if len(paths) > _NAMED else ""
            self._tell(f"{', '.join(map(str, paths[:_NAMED]))}{more}: left out: {why}")

    def _arrived(self, found: WeightsFile, latest: Arrival | None) -> Arrival | None:
        """Returns a checkpoint that is new by its name or content; None: it is known."""
        if latest is not None and latest.stamp == found.stamp:
            return None
        try:
            digest = found.digest()
        except OSError:
            return None
        if stamp_of(found.path) != found.stamp:  # written while it was read; it comes again
            self.finder.unsettled = True
            return None
        arrival = Arrival(found.ref, digest, found.epoch, found.stamp)
        self._disk.journal.append(
            "arrived", arrival.id, checkpoint=found.ref.name, weights=found.ref.weights,
            digest=digest, epoch=found.epoch, stamp=list(found.stamp),
        )  # fmt: skip
        self._note(arrival)
        return arrival

    def _make_cells(self, arrival: Arrival, planner: Planner) -> bool:
        """Puts the cells of a checkpoint into the plan; where that cannot be, says why."""
        try:
            found = planner.cells_of(arrival.ref)
        except SweepFileError as error:
            self._tell(f"{arrival} waits: {error.message}")
            return False
        sure = at_epoch(self.spec.evidence, arrival.epoch, self.spec.error_halflife)
        cells = tuple(
            dataclasses.replace(
                cell,
                content=arrival.digest,
                evidence=sure,
                # The name tells run and epoch where the file does not.
                labels=cell.labels
                if cell.labels.keys() & {"epoch", "step"}
                else {**arrival.labels, **cell.labels},
            )
            for cell in found
        )
        if self._cells or self._disk.has_plan:
            self._disk.add_cells(arrival.id, cells)
        else:
            self._disk.write_plan(self._plan(cells))
        self._cells[arrival.id] = cells
        if cells:
            self._open[arrival.id] = None
        return True

    def _report(self) -> None:
        """Tells the listeners of the checkpoints that have come to their end.

        The next run tries again what has no score, unless it is gone.
        """
        for key in tuple(self._open):
            cells, arrival, spec = self._cells[key], self._arrivals[key], self.spec
            if not all(self._entries.get(cell.id, Entry()).state.done for cell in cells):
                continue
            about = (spec.name, spec.description, self.folder)
            results = SweepResults(*about, cells, self._entries)
            scored = ScoredCheckpoint(arrival, results, results.outcome(self.gate))
            for listener in self._listeners:
                try:
                    listener(scored)
                except Exception as error:  # noqa: BLE001 - the watch goes on
                    code = error.code if isinstance(error, AcpcError) else type(error).__name__
                    self._on_trouble(f"{arrival.ref.name}: {code}: {error}")
            if scored.outcome is not Outcome.UNSPECIFIED or self._is_gone(arrival):
                self._disk.journal.append("reported", key)
            del self._open[key]

    def _tell(self, words: str) -> None:
        """Reports a trouble that may last, once."""
        if words not in self._told:
            self._told.add(words)
            self._on_trouble(words)
