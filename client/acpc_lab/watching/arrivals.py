"""What arrives at a watch, and what it tells of."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from pathlib import PurePosixPath
from typing import Any

from acpc_client import CheckpointRef, Outcome

from acpc_lab.sweeps import Label, SweepResults
from acpc_lab.watching.finding import Stamp


def run_of(ref: CheckpointRef, epoch: int) -> str:
    """Names the training run: its folder, where that is the epoch's and the weights file is not."""
    path = PurePosixPath(ref.name)
    numbers = re.findall(r"\d+", path.name)
    named_by_weights = re.search(r"\d", PurePosixPath(ref.weights).stem)
    if named_by_weights or not numbers or int(numbers[-1]) != epoch or not path.parent.name:
        return ref.name
    return str(path.parent)


@dataclass(frozen=True)
class Arrival:
    """A checkpoint that has arrived: one name with one content.

    Attributes:
        digest: sha256 of its files, see ``WeightsFile.digest``.
        epoch: Which epoch or step it is of, by its name; None: the name has no number.
        stamp: Of its files, when they were read.
    """

    ref: CheckpointRef
    digest: str
    epoch: int | None
    stamp: Stamp

    @cached_property
    def id(self) -> str:
        """Names it in the journal."""
        text = "\0".join((self.ref.name, self.ref.weights, self.digest))
        return hashlib.sha256(text.encode()).hexdigest()[:32]

    @property
    def labels(self) -> dict[str, Label]:
        """Its training run and epoch, as a sweep's labels; none where its name has no number."""
        if self.epoch is None:
            return {}
        return {"run": run_of(self.ref, self.epoch), "epoch": self.epoch}


@dataclass(frozen=True)
class ScoredCheckpoint:
    """A checkpoint all of whose cells have come to an end: what listeners are told.

    Attributes:
        results: Its cells with their scores, per-anchor values included.
        outcome: What the gate says of all cells together; UNSPECIFIED: one has no score.
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
        """Plain values for JSON; scores are documents of the kind ``sweep_cell``."""
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
