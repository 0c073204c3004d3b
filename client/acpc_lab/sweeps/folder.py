"""The folder of a sweep: what was planned, what happened, what was measured.

NAME.sweep/plan.json        every cell, written once the file was resolved
NAME.sweep/journal.jsonl    one line per event, appended and flushed to the disk
NAME.sweep/results/ID.npz   the score of a cell, whole or not there
"""

from __future__ import annotations

import json
from pathlib import Path

from acpc_client import Score
from acpc_client.errors import ArgumentError, FailedPrecondition

from acpc_lab.campaigns import Journal
from acpc_lab.sweeps.cells import Cell
from acpc_lab.sweeps.plan import Plan
from acpc_lab.tables import load_score, save_score, write_whole


class SweepFolder:
    """A sweep on the disk.

    Attributes:
        path: The folder; made by the first write.
        journal: Its events.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.journal = Journal(path, "sweep")
        self._plan = path / "plan.json"

    def result_path(self, cell: Cell) -> Path:
        """Where the score of a cell is, or will be."""
        return self.path / "results" / f"{cell.id}.npz"

    def read_plan(self) -> Plan | None:
        """The plan, or None before there is one.

        Raises:
            FailedPrecondition: The file is no plan of this release.
        """
        try:
            document = json.loads(self._plan.read_bytes())
            if document["format"] != 1:
                raise ValueError(f"its format is {document['format']}, wanted 1")
            return Plan.from_document(document)
        except FileNotFoundError:
            return None
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            raise FailedPrecondition(f"{self._plan} cannot be read: {error}") from error

    def write_plan(self, plan: Plan) -> None:
        """Replaces the plan."""
        text = json.dumps(plan.to_document(), indent=1)
        write_whole(self._plan, f"{text}\n".encode())

    def save(self, cell: Cell, score: Score) -> None:
        """Keeps the score of a cell."""
        path = self.result_path(cell)
        path.parent.mkdir(exist_ok=True)
        save_score(score, path)

    def load(self, cell: Cell) -> Score | None:
        """The score of a cell, or None when there is none that can be read."""
        try:
            return load_score(self.result_path(cell))
        except ArgumentError:
            return None
