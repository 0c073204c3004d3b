"""Runs a sweep: submits, watches, resumes and cancels the cells of a sweep file."""

from __future__ import annotations

import dataclasses
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypedDict, Unpack

from acpc_client import AcpcClient, Operation, Result, Score
from acpc_client.errors import AlreadyExists, FailedPrecondition

from acpc_lab.campaigns import (
    POLL_S,
    Campaign,
    CampaignProgress,
    Entry,
    Link,
    OnUpdate,
    Options,
    Task,
)
from acpc_lab.sweeps.folder import Cell, SweepFolder, SweepPlan
from acpc_lab.sweeps.plan import Planner
from acpc_lab.sweeps.reading import brief
from acpc_lab.sweeps.results import SweepResults
from acpc_lab.sweeps.rows import without_anchors
from acpc_lab.sweeps.spec import SweepSpec, folder_of, load_spec, read_spec


class CellTask(Task):
    """One cell to be scored.

    Attributes:
        score: The score without its per-anchor values, when it was measured in this run.
    """

    def __init__(self, cell: Cell, sweep: str, folder: SweepFolder) -> None:
        super().__init__(cell.id, cell.title)
        self.cell, self.sweep, self.folder = cell, sweep, folder
        self.score: Score | None = None

    @property
    def kept(self) -> bool:
        """Whether its score is in the folder, and can be read."""
        return self.folder.load(self.cell) is not None

    def submit(self, client: AcpcClient, attempt: int) -> Operation:
        """Submits the scoring job of an attempt.

        Raises AlreadyExists: What the cell names at the server has changed; FailedPrecondition: Its
        checkpoint holds no longer what it is to be scored for; AcpcError: The server rejected it.
        """
        ref, content = self.cell.checkpoint, self.cell.content
        if content and client.checkpoints.get(ref).content != content:
            raise FailedPrecondition("its files were replaced before it was scored")
        asked = {**vars(self.cell.request()), "request_id": self.cell.job_id(self.sweep, attempt)}
        try:
            return client.score_checkpoint(**asked, patience=0.0).submitted
        except AlreadyExists as error:
            raise AlreadyExists(
                "this cell was submitted before, under the same name of the sweep, and its "
                "checkpoint or dataset has changed since; give the sweep another name to measure "
                f"the new one ({error.message})",
                reason=error.reason,
                request_id=error.request_id,
            ) from error

    def keep(self, operation: Operation) -> None:
        """Writes the score into the folder."""
        score = operation.result()
        self.folder.save(self.cell, Result.of(operation))
        self.score = without_anchors(score)


SweepProgress = CampaignProgress[CellTask]


class RunOptions(TypedDict, total=False):
    """Options of running a sweep; defaults in brackets.

    Attributes:
        submit: Submit the cells that have no score; else follow what was submitted [True].
        follow: Wait until all is done; else leave as soon as all is submitted, or, where nothing
            is to be, each job was looked at once [True].
        timeout: Seconds for the whole run; None: until it is done.
        poll: Seconds between two looks at the server [0.5].
        on_update: Called in this thread whenever anything has changed.
        stop: Ends the run when set, from any thread.
        rescan: Resolve the names of the file again: checkpoints that are new join the sweep.
        drop: Leave out cells that were submitted and are no longer in the file.
        concurrency: Jobs in flight at most [the file's; no bound where none is waited for].
    """

    submit: bool
    follow: bool
    timeout: float | None
    poll: float
    on_update: OnUpdate[CellTask]
    stop: threading.Event | None
    rescan: bool
    drop: bool
    concurrency: int | None


class Sweep:
    """A sweep of checkpoints x shifts x severities x seeds.

    Example:
        >>> sweep = Sweep.load("sweep.yaml")
        >>> with AcpcClient("gpu-host:50051") as client:
        ...     results = sweep.run(client, on_update=lambda now: print(now.counts))
        >>> for item in results:
        ...     print(item.cell.checkpoint.name, item.cell.shift, item.passed)
    """

    def __init__(self, spec: SweepSpec, folder: Path) -> None:
        self.spec = spec
        self.folder = folder
        self._disk = SweepFolder(folder)

    @classmethod
    def load(cls, path: str | Path) -> Sweep:
        """Reads a sweep file; its folder is ``<name>.sweep`` beside it.

        Raises SweepFileError: The file cannot be run; names the line, the place and the fix.
        """
        spec = load_spec(Path(path))
        return cls(spec, folder_of(Path(path), spec))

    @classmethod
    def of(cls, document: Mapping[str, Any], folder: str | Path) -> Sweep:
        """Makes a sweep from plain values, as a file would hold them.

        Raises SweepFileError: It cannot be run; names the place and the fix.
        """
        place = Path(folder)
        return cls(read_spec(document, place.name.removesuffix(".sweep"), place.parent), place)

    def run(self, client: AcpcClient, **options: Unpack[RunOptions]) -> SweepResults:
        """Runs every cell that has no score yet, and waits for all of them.

        A cell that fails does not stop the others. Run again after any interruption: cells that are
        done are not repeated, and those under way are found again. Raises SweepFileError: A name
        fits no checkpoint at the server; FailedPrecondition: Another process runs this sweep, the
        file has changed so that cells that were submitted would be dropped, or nothing was
        submitted that could be followed; RunEnded: The server was away for longer than the client
        has patience, the time is over, or ``stop`` was set; what was measured is kept.
        """
        known = RunOptions.__annotations__
        if unknown := [name for name in options if name not in known]:
            raise TypeError(f"a sweep takes no {', '.join(unknown)}; known: {', '.join(known)}")
        submit, follow = options.get("submit", True), options.get("follow", True)
        limit = (options.get("concurrency") or self.spec.concurrency) if submit and follow else None
        how = Options(limit, self.spec.retries, submit, follow)
        on_update: OnUpdate[CellTask] = options.get("on_update") or (lambda _: None)
        link = Link(
            client,
            patience=None if submit or follow else 0.0,
            timeout=options.get("timeout"),
            stop=options.get("stop"),
            on_away=lambda error: on_update(CampaignProgress(away=error)),
            poll=options.get("poll", POLL_S),
        )
        if not submit:
            self._planned()
        with self._disk.writing():
            plan = self._plan(client, link, options) if submit else self._planned()
            tasks = [CellTask(cell, plan.name, self._disk) for cell in plan.cells]
            kept = self._disk.entries(), self._disk.write_entries
            Campaign(client, link, tasks, how, on_update, *kept).run()
        return self.results()

    def cancel(self, client: AcpcClient) -> int:
        """Asks for every job in flight to be cancelled; returns how many there are.

        Raises FailedPrecondition: Another process runs the sweep; stop that first; AcpcError: The
        server rejected it.
        """
        plan, disk = self._planned(), self._disk
        with disk.writing():
            planned, entries = {cell.id for cell in plan.cells}, disk.entries()
            flying = {
                name: dataclasses.replace(entry, cancel_asked=True)
                for name, entry in entries.items()
                if name in planned and entry.state.in_flight
            }
            if flying:
                disk.write_entries(entries | flying)  # before a job can end as cancelled
            for entry in flying.values():
                client.operations.cancel(entry.operation)
        return len(flying)

    def preview(self, client: AcpcClient) -> SweepPlan:
        """Makes the cells that the file means at this server; submits nothing, keeps nothing.

        Raises SweepFileError: A name fits no checkpoint at the server.
        """
        return Planner(self.spec, client.checkpoints.list(), client.anchors.get).plan()

    def results(self) -> SweepResults:
        """Reads what has been measured so far; needs no server.

        Raises ArgumentError: The sweep has not been run yet.
        """
        return SweepResults.open(self.folder)

    def _planned(self) -> SweepPlan:
        plan = self._disk.read_plan()
        if plan is None:
            raise FailedPrecondition(
                f"{self.folder} holds no plan: this sweep was not submitted yet; run it first"
            )
        return plan

    def _plan(self, client: AcpcClient, link: Link, options: RunOptions) -> SweepPlan:
        """Returns the plan on disk while the file says the same; else replaces it."""
        before = self._disk.read_plan()
        same = before is not None and before.document == self.spec.document
        if before is not None and same and not options.get("rescan"):
            return before
        listed = link.ask(client.checkpoints.list)
        planner = Planner(self.spec, listed, lambda x: link.ask(lambda: client.anchors.get(x)))
        plan = planner.plan()
        if before is not None and not options.get("drop"):
            _check_dropped(before, plan, self._disk.entries(), self.folder)
        if plan != before:
            self._disk.write_plan(plan)
        return plan


def _check_dropped(
    before: SweepPlan, after: SweepPlan, entries: Mapping[str, Entry], folder: Path
) -> None:
    """Raises FailedPrecondition: A submitted cell is no longer in the plan; says what changed."""
    submitted = {name for name, entry in entries.items() if entry.attempt}
    lost = submitted - {cell.id for cell in after.cells}
    dropped = [cell for cell in before.cells if cell.id in lost]
    if not dropped:
        return
    was, now = before.document, after.document
    changed = [key for key in dict.fromkeys((*was, *now)) if was.get(key) != now.get(key)]
    sides = (["nothing" if x.get(k) is None else brief(x[k]) for k in changed] for x in (was, now))
    changes = [f"{key}: {old} -> {new}" for key, old, new in zip(changed, *sides, strict=True)]
    what = "; ".join(changes) or "the checkpoints at the server"
    raise FailedPrecondition(
        f"{len(dropped)} cells that were submitted are no longer in the sweep, the first "
        f"{dropped[0].title}; what changed: {what}. Give the sweep another name, or pass "
        f"--drop to leave these cells out; their results stay in {folder}",
        reason="SWEEP_CHANGED",
    )
