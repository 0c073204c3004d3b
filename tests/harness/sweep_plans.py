"""Sweeps that are planned without a server."""

from dataclasses import dataclass, field

from acpc_client import Checkpoint, CheckpointState, DatasetAnchors
from acpc_lab.sweeps import Planner, Sweep, SweepPlan
from acpc_lab.sweeps.spec import AnchorPlace, SweepSpec

Listing = dict[str, list[str]] | list[str]


def listed(names: Listing) -> list[Checkpoint]:
    files = names if isinstance(names, dict) else {name: ["weights.pt"] for name in names}
    return [
        Checkpoint(name, weights, CheckpointState.AVAILABLE, 1, None, False)
        for name, found in files.items()
        for weights in found
    ]


@dataclass
class Shelf:
    """Stands for the anchors at a server, where they lie already.

    Attributes:
        asked: What was stored.
        of_views: The groups of views that anchors have.
    """

    asked: list[AnchorPlace] = field(default_factory=list)
    of_views: tuple[str, ...] = ()

    def store(self, anchors: AnchorPlace) -> DatasetAnchors | str:
        self.asked.append(anchors)
        return (
            f"{len(self.asked)}" * 64
            if anchors.freeze or anchors.upload
            else (anchors.drawn or anchors.set)
        )

    def groups(self, anchors: AnchorPlace) -> tuple[str, ...]:
        return self.of_views


def planned(sweep: Sweep | SweepSpec, names: Listing, shelf: Shelf | None = None) -> SweepPlan:
    spec = sweep.spec if isinstance(sweep, Sweep) else sweep
    return Planner(spec, shelf or Shelf()).plan(listed(names))
