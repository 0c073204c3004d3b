"""Keeps a sweep in its folder: the plan, a journal, and the scores."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from acpc.contract import from_plain
from acpc_client import Result, Score, load_result, save_result
from acpc_client.errors import ArgumentError, FailedPrecondition

from acpc_lab.campaigns import Journal
from acpc_lab.sweeps.cells import Cell
from acpc_lab.tables import write_whole


@dataclass(frozen=True)
class SweepPlan:
    """A sweep in full: what ``plan.json`` holds."""

    name: str
    description: str
    document: Mapping[str, Any]
    cells: tuple[Cell, ...]

    def to_document(self) -> dict[str, Any]:
        """Returns the plan as plain values."""
        return {
            "format": 1,
            "name": self.name,
            "description": self.description,
            "sweep": self.document,
            "cells": [{"id": cell.id, **cell.to_document()} for cell in self.cells],
        }

    @classmethod
    def from_document(cls, document: Mapping[str, Any]) -> SweepPlan:
        """Reads what ``to_document`` returned."""
        cells = tuple(from_plain(Cell, item, arrays={}) for item in document["cells"])
        return cls(document["name"], document["description"], document["sweep"], cells)


class SweepFolder:
    """A sweep on the disk.

    plan.json        what the file says, and every cell once it was resolved
    journal.jsonl    one line per event, later cells included, appended and flushed to the disk
    results/ID.npz   the score of a cell and what was asked, whole or not there
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.journal = Journal(path)
        self._plan = path / "plan.json"
        self._results = path / "results"

    @property
    def has_plan(self) -> bool:
        """Whether there is a plan."""
        return self._plan.exists()

    def read_plan(self) -> SweepPlan | None:
        """Reads the plan; None before there is one.

        Raises FailedPrecondition: The file is no plan of this release.
        """
        try:
            document = json.loads(self._plan.read_bytes())
            if document["format"] != 1:
                raise ValueError(f"its format is {document['format']}, wanted 1")
            plan = SweepPlan.from_document(document)
            later = [
                from_plain(Cell, item, arrays={})
                for event in self.journal.events()
                if event["event"] == "planned"
                for item in event["cells"]
            ]
        except FileNotFoundError:
            return None
        except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            raise FailedPrecondition(f"{self._plan} cannot be read: {error}") from error
        cells = {cell.id: cell for cell in (*plan.cells, *later)}
        return dataclasses.replace(plan, cells=tuple(cells.values())) if later else plan

    def add_cells(self, what: str, cells: Iterable[Cell]) -> None:
        """Adds cells to the plan, by an event of whatever they belong to."""
        self.journal.append("planned", what, cells=[cell.to_document() for cell in cells])

    def write_plan(self, plan: SweepPlan) -> None:
        """Replaces the plan."""
        text = json.dumps(plan.to_document(), indent=1)
        write_whole(self._plan, f"{text}\n".encode())

    def save(self, cell: Cell, result: Result | Score) -> None:
        """Keeps the score of a cell."""
        self._results.mkdir(exist_ok=True)
        save_result(result, self._results / f"{cell.id}.npz")

    def load(self, cell: Cell) -> Result | None:
        """Reads the score of a cell; None when there is none that can be read."""
        try:
            result = load_result(self._results / f"{cell.id}.npz")
        except ArgumentError:
            return None
        return result if isinstance(result.answer, Score) else None
