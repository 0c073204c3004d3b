"""Sweeps that are planned without a server."""

from types import SimpleNamespace
from typing import Any

from acpc_client import Checkpoint, CheckpointState
from acpc_lab.sweeps import Planner, Sweep, SweepPlan
from acpc_lab.sweeps.spec import SweepSpec

Listing = dict[str, list[str]] | list[str]


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
