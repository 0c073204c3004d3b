"""Sweeps of the example document, at a counterparty with jobs, or planned without a server."""

from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from acpc_client import Checkpoint, CheckpointState
from acpc_client.sync.client import AcpcClient
from acpc_lab.sweeps import Planner, Sweep, SweepPlan, SweepResults
from acpc_lab.sweeps.spec import SweepSpec
from job_counterparty import DOCUMENT, JobParty

Listing = dict[str, list[str]] | list[str]
POLL = 0.01


def sweep_of(folder: Path = Path(), **changes: Any) -> Sweep:
    """A sweep of the example document with other values; None leaves a key out."""
    document = {k: v for k, v in {**DOCUMENT, **changes}.items() if v is not None}
    return Sweep.of(document, folder / f"{document['name']}.sweep")


@dataclass
class Scene:
    """A counterparty with jobs, its client, and sweeps at it, which lie in a folder."""

    party: JobParty
    client: AcpcClient
    folder: Path

    def sweep(self, **changes: Any) -> Sweep:
        return sweep_of(self.folder, **changes)

    def run(self, **changes: Any) -> SweepResults:
        return self.sweep(**changes).run(self.client, poll=POLL)


def planned(sweep: Sweep | SweepSpec, names: Listing) -> SweepPlan:
    """Plans over checkpoints of these names; every anchor set is there."""
    spec = sweep.spec if isinstance(sweep, Sweep) else sweep
    files = names if isinstance(names, dict) else {name: ["weights.pt"] for name in names}
    listed = [
        Checkpoint(name, weights, CheckpointState.AVAILABLE, 1, None, False)
        for name, found in files.items()
        for weights in found
    ]
    find_set: Any = lambda digest: SimpleNamespace(digest=digest)  # noqa: E731
    return Planner(spec, listed, find_set).plan()
