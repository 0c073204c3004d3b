"""Defines what arrives at a watch, the tasks that follow from it, and what listeners get."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from pathlib import PurePosixPath
from typing import Any

from acpc_client import AcpcClient, CheckpointRef, Operation, Outcome
from acpc_client.errors import FailedPrecondition, NotFound, extended

from acpc_lab.sweeps import CellTask, Label, SweepResults
from acpc_lab.watching.finding import Stamp


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

    def __str__(self) -> str:
        return f"{self.ref.name} ({self.ref.weights})"

    @property
    def labels(self) -> dict[str, Label]:
        """Its training run and epoch, as a sweep's labels; none where its name has no number.

        The run is the folder above the checkpoint's where the checkpoint's is the epoch's.
        """
        if self.epoch is None:
            return {}
        path = PurePosixPath(self.ref.name)
        numbers = re.findall(r"\d+", path.name)
        in_weights = re.search(r"\d", PurePosixPath(self.ref.weights).stem)
        of_epoch = not in_weights and numbers and int(numbers[-1]) == self.epoch
        run = str(path.parent) if of_epoch and path.parent.name else self.ref.name
        return {"run": run, "epoch": self.epoch}


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
class WatchedTask(CellTask):
    """A cell of a checkpoint in the folder.

    Attributes:
        is_gone: Whether the content that it is of is no longer there.
    """

    is_gone: Callable[[], bool] = lambda: False

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
