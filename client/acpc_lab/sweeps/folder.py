"""Keeps the cells of a sweep in a folder: plan, state and scores."""

from __future__ import annotations

import contextlib
import dataclasses
import fcntl
import hashlib
import json
import re
import uuid
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from acpc.contract import changed, from_plain, measured, shared, to_plain
from acpc_client import DatasetAnchors, Result, Score, ScoreRequest, load_result, save_result
from acpc_client.errors import ArgumentError, FailedPrecondition

from acpc_lab.campaigns import Entry
from acpc_lab.sweeps.reading import Label
from acpc_lab.tables import write_whole

_NAMESPACE = uuid.UUID("3d1b6e52-6b0b-4f0c-9f53-5c0a2d9f7b61")
_SLUG_LENGTH = 80
# What reading JSON raises where a file is not as it was written.
_UNREADABLE = (OSError, ValueError, LookupError, TypeError, AttributeError, RecursionError)


class Cell(ScoreRequest):
    """One job of a sweep: what is asked, without a request id, and what the file says of it.

    Attributes:
        labels: What the file says about the checkpoint; no number depends on them.
        content: As ``Checkpoint.content``, of a watch: other content under the same names is
            another cell. Empty: the cell goes by the names.
    """

    labels: Mapping[str, Label] = field(default_factory=dict, compare=False)
    content: str = ""

    @property
    def seed(self) -> int:
        """Seed of the draws."""
        return self.protocol.seed or 0

    @property
    def of_reference(self) -> bool:
        """Whether the checkpoint is its own reference, and so can never pass the screen."""
        return self.checkpoint == self.reference

    @cached_property
    def id(self) -> str:
        """Name of the cell's files: readable, and unique by the content it ends with."""
        readable = f"{self.checkpoint.name}-{self.shift}-seed{self.seed}"
        slug = re.sub(r"[^\w.\-]+", "-", readable).strip("-.")[-_SLUG_LENGTH:]
        return f"{slug}-{hashlib.sha256(self._content().encode()).hexdigest()[:10]}"

    @property
    def title(self) -> str:
        """Names the cell for people."""
        near = "neighbourhood" in changed(self.protocol)
        control = f" neighbourhood {self.protocol.neighbourhood:g}" if near else ""
        return f"{self.checkpoint.name} {self.shift} seed {self.seed}{control}"

    def job_id(self, sweep: str, attempt: int) -> str:
        """Returns the request id of an attempt, from 1: whoever computes it finds the same job."""
        return str(uuid.uuid5(_NAMESPACE, json.dumps([sweep, self._content(), attempt])))

    def request(self) -> ScoreRequest:
        """Returns what a server is asked for; the request id is the attempt's."""
        asked = shared(self, ScoreRequest)
        if isinstance(self.anchors, DatasetAnchors):  # all cells have as many
            asked["anchors"] = self.anchors.resolved_count()
        return ScoreRequest(**asked)

    def to_document(self) -> dict[str, Any]:
        """Returns the cell as plain values, without the request id, which is the attempt's."""
        plain: dict[str, Any] = to_plain(self)
        del plain["request_id"]
        return plain

    def _content(self) -> str:
        # What has its default is left out: a release with one more field finds the same jobs.
        whole = {**measured(self), "request_id": None}
        for part in ("anchors", "protocol", "thresholds", "evidence"):
            record = getattr(self, part)
            if not isinstance(record, str):
                whole[part] = {name: whole[part][name] for name in changed(record)}
        document: dict[str, Any] = _given(whole)
        document.setdefault("protocol", {})["seed"] = self.seed
        return json.dumps(document, sort_keys=True, separators=(",", ":"))


def again(document: Mapping[str, Any]) -> str:
    """The text of a sweep file without its name: under it the server would find the old jobs."""
    kept = {key: value for key, value in document.items() if key != "name"}
    return json.dumps(kept, indent=2, ensure_ascii=False)


def _given(value: Any) -> Any:  # noqa: ANN401 - any plain value
    """Returns a document without what is None or empty."""
    if not isinstance(value, Mapping):
        return value
    given = {key: _given(item) for key, item in value.items()}
    return {key: item for key, item in given.items() if item not in (None, "", [], {})}


@dataclass(frozen=True)
class SweepPlan:
    """A sweep in full: what ``plan.json`` holds."""

    name: str
    description: str
    document: Mapping[str, Any] = field(metadata={"json": "sweep"})
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


class SweepFolder:
    """A sweep on the disk: read by any process, written by one.

    plan.json        what the file says, and every cell once it was resolved
    state.json       how far each cell is, written whole once a turn
    results/ID.npz   the score of a cell and what was asked, whole or not there

    A crash costs nothing: request ids follow from cell and attempt, so what was not written yet is
    found at the server. Its record alone does not do: it lacks refused attempts, forgets jobs, and
    may be away.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._plan, self._state = path / "plan.json", path / "state.json"
        self._results = path / "results"

    def read_plan(self) -> SweepPlan | None:
        """Reads the plan; None before there is one.

        Raises FailedPrecondition: The file is no plan of this release.
        """
        try:
            document = json.loads(self._plan.read_bytes())
            if document["format"] != 1:
                raise ValueError(f"its format is {document['format']}, wanted 1")
            plan = from_plain(SweepPlan, document, arrays={})
            later = [
                from_plain(Cell, item, arrays={})
                for event in self._events()
                if event["event"] == "planned"
                for item in event["cells"]
            ]
        except FileNotFoundError:
            return None
        except _UNREADABLE as error:
            found = f"{self._plan} cannot be read as a plan: {error}"
            ways = "restore the file, or delete its folder to start over"
            raise FailedPrecondition(f"{found}; {ways}") from error
        cells = {cell.id: cell for cell in (*plan.cells, *later)}
        return dataclasses.replace(plan, cells=tuple(cells.values())) if later else plan

    def write_plan(self, plan: SweepPlan) -> None:
        """Replaces the plan."""
        text = json.dumps(plan.to_document(), indent=1)
        write_whole(self._plan, f"{text}\n".encode())

    @contextlib.contextmanager
    def writing(self) -> Iterator[None]:
        """Holds the folder for this process; the lock is freed however the process ends.

        Raises FailedPrecondition: Another process holds it, or it cannot be written.
        """
        with contextlib.ExitStack() as held:
            try:
                self.path.mkdir(parents=True, exist_ok=True)
                lock = held.enter_context((self.path / "lock").open("ab"))
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError as error:
                raise FailedPrecondition(
                    f"another process runs the sweep in {self.path}; wait for it, or stop it",
                    reason="SWEEP_RUNNING",
                ) from error
            except OSError as error:
                raise FailedPrecondition(f"cannot write {self.path}: {error.strerror}") from error
            yield

    def entries(self) -> dict[str, Entry]:
        """Returns the last state of every cell, by its id.

        Raises FailedPrecondition: The file holds none.
        """
        try:
            if self._state.exists():
                plain = json.loads(self._state.read_bytes())
            else:
                plain = {x["cell"]: x for x in self._events() if x["event"] == "moved"}
            return {cell: from_plain(Entry, x, arrays={}) for cell, x in plain.items()}
        except _UNREADABLE as error:
            raise FailedPrecondition(
                f"{self._state} cannot be read as the state of a sweep; "
                "restore the file, or delete its folder to start over"
            ) from error

    def write_entries(self, entries: Mapping[str, Entry]) -> None:
        """Replaces the states, without what is empty of each; raises OSError."""
        plain = {
            cell: {name: value for name, value in to_plain(entry).items() if value}
            for cell, entry in entries.items()
        }
        write_whole(self._state, f"{json.dumps(plain, indent=0)}\n".encode())

    def _events(self) -> list[dict[str, Any]]:
        """The events that an earlier release wrote, a line each; a crash may have torn the last."""
        file = self.path / "journal.jsonl"
        lines = file.read_bytes().split(b"\n")[:-1] if file.exists() else []
        return [json.loads(line) for line in lines]

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
