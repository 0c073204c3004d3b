"""A cell of a sweep as a task of a campaign."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

from acpc_client import AcpcClient, Operation, Score
from acpc_client.errors import AlreadyExists

from acpc_lab.campaigns import CampaignProgress, TaskStatus
from acpc_lab.sweeps.cells import Cell
from acpc_lab.sweeps.folder import SweepFolder


@dataclass(eq=False)
class CellTask:
    """One cell to be scored.

    Attributes:
        cell: What is asked.
        sweep: Name of the sweep.
        folder: Where the score is kept.
        score: The score without its per-anchor values, when it was measured in this run.
    """

    cell: Cell
    sweep: str
    folder: SweepFolder
    score: Score | None = None

    @property
    def id(self) -> str:
        """Id of the cell."""
        return self.cell.id

    @property
    def title(self) -> str:
        """What a person calls it."""
        return self.cell.title

    @property
    def kept(self) -> bool:
        """Whether its score is in the folder."""
        return self.folder.result_path(self.cell).exists()

    def submit(self, client: AcpcClient, attempt: int) -> Operation:
        """Submits the scoring job of an attempt.

        Raises:
            AlreadyExists: What the cell names at the server has changed.
            AcpcError: The server rejected it.
        """
        cell = self.cell
        try:
            return client.score_checkpoint(
                cell.checkpoint,
                cell.anchors,
                cell.shift,
                reference=cell.reference,
                protocol=cell.protocol,
                thresholds=cell.thresholds,
                numeric_mode=cell.numeric_mode,
                request_id=cell.request_id(self.sweep, attempt),
            ).submitted
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
        self.folder.save(self.cell, score)
        self.score = _without_anchors(score)


CellStatus = TaskStatus[CellTask]
SweepProgress = CampaignProgress[CellTask]


def _without_anchors(score: Score) -> Score:
    reference = score.reference
    return dataclasses.replace(
        score,
        checkpoint=dataclasses.replace(score.checkpoint, anchor_values=None),
        reference=None if reference is None else dataclasses.replace(reference, anchor_values=None),
    )
