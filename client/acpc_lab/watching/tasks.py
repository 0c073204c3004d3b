"""What a watch has a server measure: cells of a content that must still be there."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from acpc_client import AcpcClient, Operation
from acpc_client.errors import FailedPrecondition, NotFound, extended

from acpc_lab.campaigns import Entry
from acpc_lab.sweeps import CellStatus, CellTask

GONE = "its files were removed or replaced before it was scored"


@dataclass(eq=False)
class WatchedTask(CellTask):
    """A cell of a checkpoint in the folder.

    Attributes:
        is_gone: Whether the content that it is of is no longer there.
    """

    is_gone: Callable[[], bool] = lambda: False

    def submit(self, client: AcpcClient, attempt: int) -> Operation:
        """Submits the scoring job of an attempt.

        Raises:
            FailedPrecondition: The content is gone.
            AcpcError: As ``CellTask.submit``.
        """
        if self.is_gone():
            raise FailedPrecondition(GONE)
        try:
            return super().submit(client, attempt)
        except NotFound as error:
            if self.cell.checkpoint.name not in error.message:
                raise
            raise extended(
                error,
                "the watched folder must be what the server has below its --checkpoint-root; "
                "say with --prefix what it is called there",
            ) from error


def entry_of(status: CellStatus) -> Entry:
    """What the journal knows of a cell that has moved."""
    ended = status.problem if status.state.done else None
    told = (ended.code, ended.message) if ended is not None else ("", "")
    return Entry(status.state, status.attempt, status.operation, *told)
