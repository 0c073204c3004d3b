"""A sweep: its file, its folder, and what can be done with both."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from acpc_client import AcpcClient
from acpc_client.errors import AcpcError, FailedPrecondition

from acpc_lab.sweeps.anchors import Depot, named
from acpc_lab.sweeps.changes import check_dropped
from acpc_lab.sweeps.journal import Entry, Journal
from acpc_lab.sweeps.link import Link
from acpc_lab.sweeps.plan import Plan, make_plan
from acpc_lab.sweeps.progress import SweepProgress
from acpc_lab.sweeps.reading import Node
from acpc_lab.sweeps.results import SweepResults
from acpc_lab.sweeps.runner import Callback, Options, Runner
from acpc_lab.sweeps.spec import SweepSpec, folder_of, load_spec, read_spec

PATIENCE_S = 600.0


def _nobody(_: SweepProgress) -> None:
    """Listens to nothing."""


class Sweep:
    """A sweep of checkpoints x shifts x severities x seeds.

    Example:
        >>> sweep = Sweep.load("sweep.yaml")
        >>> with AcpcClient("gpu-host:50051") as client:
        ...     results = sweep.run(client, on_update=lambda now: print(now.counts))
        >>> for item in results:
        ...     print(item.cell.checkpoint.name, item.cell.shift, item.passed)

    Attributes:
        spec: The checked file.
        folder: Where the sweep keeps its plan, its journal and its results.
    """

    def __init__(self, spec: SweepSpec, folder: Path) -> None:
        self.spec = spec
        self.folder = folder
        self._journal = Journal(folder)

    @classmethod
    def load(cls, path: str | Path) -> Sweep:
        """Reads a sweep file; its folder is ``<name>.sweep`` beside it.

        Raises:
            SweepFileError: The file cannot be run; names the line, the place and the fix.
        """
        spec = load_spec(Path(path))
        return cls(spec, folder_of(Path(path), spec))

    @classmethod
    def of(cls, document: Mapping[str, Any], folder: str | Path) -> Sweep:
        """A sweep from plain values, as a file would hold them.

        Raises:
            SweepFileError: It cannot be run; names the place and the fix.
        """
        place = Path(folder)
        return cls(read_spec(Node(document), place.name.removesuffix(".sweep")), place)

    def run(
        self,
        client: AcpcClient,
        *,
        timeout: float | None = None,
        patience: float = PATIENCE_S,
        concurrency: int | None = None,
        rescan: bool = False,
        drop: bool = False,
        poll: float = 0.5,
        on_update: Callback = _nobody,
        stop: threading.Event | None = None,
    ) -> SweepResults:
        """Runs every cell that has no score yet, and waits for all of them.

        A cell that fails does not stop the others. Run again after any interruption: cells that
        are done are not repeated, and those under way are found again.

        Args:
            client: Of the server to run on.
            timeout: Seconds for the whole run; None: until it is done.
            patience: Seconds the server may be away at a stretch.
            concurrency: Jobs in flight at most; None: the file's.
            rescan: Resolve the names of the file again: checkpoints that are new join the sweep.
            drop: Leave out cells that were submitted and are no longer in the file.
            poll: Seconds between two looks at the server.
            on_update: Called in this thread whenever anything has changed.
            stop: Ends the run when set, from any thread.

        Raises:
            SweepFileError: A name fits no checkpoint at the server.
            FailedPrecondition: Another process runs this sweep, or the file has changed so that
                cells that were submitted would be dropped.
            RunEnded: The server was away for too long, the time is over, or ``stop`` was set;
                what was measured is kept.
        """
        limit = concurrency or self.spec.concurrency
        options = Options(limit, self.spec.retries, poll=poll)
        with self._opened(client, options, timeout, patience, on_update, stop, rescan, drop) as run:
            run.run()
        return self.results()

    def submit(
        self,
        client: AcpcClient,
        *,
        timeout: float | None = None,
        patience: float = PATIENCE_S,
        rescan: bool = False,
        drop: bool = False,
        on_update: Callback = _nobody,
    ) -> SweepResults:
        """Submits every cell that has no score yet, all at once, and waits for none.

        The arguments and errors are those of ``run``.
        """
        options = Options(None, self.spec.retries, follow=False)
        with self._opened(client, options, timeout, patience, on_update, None, rescan, drop) as run:
            run.run()
        return self.results()

    def watch(
        self,
        client: AcpcClient,
        *,
        timeout: float | None = None,
        patience: float = PATIENCE_S,
        poll: float = 0.5,
        on_update: Callback = _nobody,
        stop: threading.Event | None = None,
    ) -> SweepResults:
        """Follows the jobs that were submitted until they are done; submits none.

        The arguments and errors are those of ``run``.

        Raises:
            FailedPrecondition: The sweep was not submitted yet.
        """
        self._planned()
        options = Options(None, self.spec.retries, submit=False, poll=poll)
        with self._opened(client, options, timeout, patience, on_update, stop) as run:
            run.run()
        return self.results()

    def refresh(self, client: AcpcClient, *, on_update: Callback = _nobody) -> SweepResults:
        """Looks once at every job in flight.

        Raises:
            FailedPrecondition: The sweep was not submitted yet, or another process runs it.
            ServerAway: The server does not answer.
        """
        self._planned()
        options = Options(None, self.spec.retries, submit=False)
        with self._opened(client, options, None, 0.0, on_update) as run:
            run.look_once()
        return self.results()

    def cancel(self, client: AcpcClient) -> int:
        """Asks for every job in flight to be cancelled; the answer is how many there are.

        Raises:
            FailedPrecondition: Another process runs the sweep; stop that first.
            AcpcError: What the server refused.
        """
        plan = self._planned()
        asked = 0
        with self._journal.writing():
            entries = self._journal.entries()
            for cell in plan.cells:
                entry = entries.get(cell.id, Entry())
                if entry.state.in_flight:
                    self._journal.append("cancel", cell, attempt=entry.attempt)
                    client.operations.cancel(entry.operation)
                    asked += 1
        return asked

    def preview(self, client: AcpcClient) -> Plan:
        """The cells that the file means at this server; submits nothing, keeps nothing.

        Raises:
            SweepFileError: A name fits no checkpoint at the server.
        """
        listed = list(client.checkpoints.list())
        return make_plan(self.spec, listed, lambda anchors: named(anchors, self.folder.parent))

    def results(self) -> SweepResults:
        """What has been measured so far; needs no server.

        Raises:
            ArgumentError: The sweep has not been run yet.
        """
        return SweepResults.open(self.folder)

    def _planned(self) -> Plan:
        plan = self._journal.read_plan()
        if plan is None:
            raise FailedPrecondition(
                f"{self.folder} holds no plan: this sweep was not submitted yet; run it first"
            )
        return plan

    @contextlib.contextmanager
    def _opened(
        self,
        client: AcpcClient,
        options: Options,
        timeout: float | None,
        patience: float,
        on_update: Callback,
        stop: threading.Event | None = None,
        rescan: bool = False,
        drop: bool = False,
    ) -> Iterator[Runner]:
        """A runner over the plan, which is made first where it has to be."""
        runner: Runner | None = None

        def on_away(error: AcpcError | None) -> None:
            if runner is not None:
                runner.set_away(error)
            else:
                on_update(SweepProgress((), (), 0.0, None, None, error))

        link = Link(
            patience=patience, timeout=timeout, stop=stop or threading.Event(), on_away=on_away
        )
        with self._journal.writing():
            plan = self._plan(client, link, rescan, drop) if options.submit else self._planned()
            runner = Runner(client, link, plan.name, plan.cells, self._journal, options, on_update)
            yield runner

    def _plan(self, client: AcpcClient, link: Link, rescan: bool, drop: bool) -> Plan:
        """The plan on disk while the file says the same; otherwise a new one in its place."""
        before = self._journal.read_plan()
        if before is not None and not rescan and before.document == self.spec.document:
            return before

        protocol = self.spec.protocol
        horizon = max(protocol.horizon or 8, *protocol.extra_horizons, 1)
        depot = Depot(client, link, self.spec.name, self.folder.parent, horizon)
        listed = link.ask(lambda: list(client.checkpoints.list()))
        plan = make_plan(self.spec, listed, depot.store)
        if before is not None and not drop:
            check_dropped(before, plan, self._journal.entries(), self.folder)
        if plan != before:
            self._journal.write_plan(plan)
        return plan
