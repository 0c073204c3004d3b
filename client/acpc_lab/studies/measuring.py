"""Measuring checkpoints at a server, one job each; an interrupted measurement goes on later."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, Protocol, TypeVar

from acpc_client import (
    AcpcClient,
    NumericMode,
    Operation,
    Perturbation,
    Receipt,
    Score,
    ScoreProtocol,
    Study,
    StudyResult,
)
from acpc_client.errors import ArgumentError, NotFound
from google.protobuf.json_format import MessageToDict
from google.protobuf.message import Message

from acpc_lab.studies.cells import Cell
from acpc_lab.tables import write_whole

JOURNAL = "measuring.json"
AHEAD = 4
"""Jobs that wait at the server beside the one that is watched."""

Answer = TypeVar("Answer", StudyResult, Score)
Given_co = TypeVar("Given_co", bound=StudyResult | Score, covariant=True)
Report = Callable[[int, Cell, Operation], None]


class Ask(Protocol[Given_co]):
    """What is measured on every checkpoint."""

    def submit(self, client: AcpcClient, cell: Cell, request_id: str) -> str:
        """Submits the job of a checkpoint and answers its name."""

    def answer(self, operation: Operation) -> Given_co:
        """What a job that has ended has measured; raises why it has not."""

    def document(self) -> dict[str, Any]:
        """All that decides a number, as plain values."""


@dataclass(frozen=True)
class AskStudy:
    """A study's rows."""

    study: Study
    numeric_mode: NumericMode = NumericMode.SERVER_DEFAULT

    def submit(self, client: AcpcClient, cell: Cell, request_id: str) -> str:
        """Submits RunStudy."""
        job = client.run_study(
            cell.checkpoint,
            cell.anchors,
            self.study,
            numeric_mode=self.numeric_mode,
            request_id=request_id,
        )
        return job.name

    def answer(self, operation: Operation) -> StudyResult:
        """The rows."""
        return operation.study_result()

    def document(self) -> dict[str, Any]:
        """The study with its parameters."""
        ((kind, message),) = self.study.to_fields().items()
        return {"study": kind, "request": _plain(message), "numeric_mode": str(self.numeric_mode)}


@dataclass(frozen=True)
class AskScore:
    """A score without a reference."""

    shift: Perturbation
    protocol: ScoreProtocol
    numeric_mode: NumericMode = NumericMode.SERVER_DEFAULT

    def submit(self, client: AcpcClient, cell: Cell, request_id: str) -> str:
        """Submits ScoreCheckpoint."""
        job = client.score_checkpoint(
            cell.checkpoint,
            cell.anchors,
            self.shift,
            protocol=self.protocol,
            numeric_mode=self.numeric_mode,
            request_id=request_id,
        )
        return job.name

    def answer(self, operation: Operation) -> Score:
        """The score."""
        return operation.result()

    def document(self) -> dict[str, Any]:
        """Shift and protocol."""
        return {
            "shift": _plain(self.shift.to_message()),
            "protocol": dataclasses.asdict(self.protocol),
            "numeric_mode": str(self.numeric_mode),
        }


@dataclass(frozen=True)
class Measured(Generic[Answer]):
    """What was measured on one checkpoint, and by which job."""

    cell: Cell
    operation: Operation
    answer: Answer

    def source(self) -> dict[str, Any]:
        """For a bundle: checkpoint, job, receipt, and the request as the server took it."""
        receipt: Receipt = self.answer.receipt
        scored, measured = self.operation.request, self.operation.study
        request = scored.to_dict() if scored else dict(measured.request) if measured else {}
        return {
            "kind": "job",
            "task": self.cell.task,
            "run": self.cell.run,
            "level": self.cell.level,
            "checkpoint": self.cell.checkpoint.name,
            "operation": self.operation.name,
            "receipt": receipt.to_dict(),
            "request": request,
        }


def measure(
    client: AcpcClient,
    cells: Sequence[Cell],
    ask: Ask[Answer],
    folder: Path,
    report: Report,
    timeout: float | None = None,
) -> list[Measured[Answer]]:
    """Has every checkpoint measured and waits for all.

    The names of the jobs are kept in the folder, so that the same call takes up an interrupted
    measurement where it was left.

    Args:
        client: Of the server.
        cells: The checkpoints.
        ask: What is measured.
        folder: Of the study; made where it is missing.
        report: Told of every change of the job that is watched, with its index.
        timeout: Seconds to wait for each job; None: until it ends.

    Raises:
        ArgumentError: The folder is in the middle of another measurement.
        DeadlineExceeded: ``timeout`` passed; the jobs go on.
        AcpcError: A job failed; the others go on, and the next call does it again.
    """
    journal = _Journal(folder, _digest(cells, ask))
    measured = []
    for index, cell in enumerate(cells):
        for ahead in range(index, min(index + 1 + AHEAD, len(cells))):
            if ahead not in journal.jobs:
                journal.keep(ahead, ask.submit(client, cells[ahead], journal.request_id(ahead)))
        operation = _watch(client, journal, index, cell, ask, report, timeout)
        measured.append(Measured(cell, operation, ask.answer(operation)))
    journal.forget()
    return measured


def _watch(
    client: AcpcClient,
    journal: _Journal,
    index: int,
    cell: Cell,
    ask: Ask[Answer],
    report: Report,
    timeout: float | None,
) -> Operation:
    try:
        operation = client.operations.get(journal.jobs[index])
    except NotFound:  # the server has forgotten it
        journal.drop(index)
        journal.keep(index, ask.submit(client, cell, journal.request_id(index)))
        operation = client.operations.get(journal.jobs[index])
    name = operation.name
    watched = client.operations.watch(name, timeout=timeout)
    updates = [operation] if operation.done else watched
    for update in updates:
        operation = update
        report(index, cell, operation)
    if operation.error is not None:
        journal.drop(index)
    return operation


class _Journal:
    """Names of the jobs of a measurement, by the index of the checkpoint.

    Request ids follow from the journal, so that a job whose name was lost in a crash between its
    submission and the next line is found again.
    """

    def __init__(self, folder: Path, digest: str) -> None:
        self._path = folder / JOURNAL
        self._digest = digest
        self._identity = uuid.uuid4()
        self._dropped: dict[int, int] = {}
        self.jobs: dict[int, str] = {}
        folder.mkdir(parents=True, exist_ok=True)
        if self._path.exists():
            self._read(folder)
        else:
            self._write()

    def _read(self, folder: Path) -> None:
        try:
            document = json.loads(self._path.read_bytes())
            found = document["digest"]
            self._identity = uuid.UUID(document["identity"])
            self._dropped = {int(index): int(n) for index, n in document["dropped"].items()}
            self.jobs = {int(index): str(name) for index, name in document["jobs"].items()}
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise ArgumentError(str(self._path), f"is no journal: {error}; delete it") from error
        if found != self._digest:
            raise ArgumentError(
                str(folder),
                "is in the middle of a measurement with other checkpoints or parameters; name "
                f"another folder, or delete {self._path}",
            )

    def request_id(self, index: int) -> str:
        """Of the job of a checkpoint; another one after each that was dropped."""
        return str(uuid.uuid5(self._identity, f"{index}.{self._dropped.get(index, 0)}"))

    def keep(self, index: int, name: str) -> None:
        self.jobs[index] = name
        self._write()

    def drop(self, index: int) -> None:
        del self.jobs[index]
        self._dropped[index] = self._dropped.get(index, 0) + 1
        self._write()

    def forget(self) -> None:
        self._path.unlink(missing_ok=True)

    def _write(self) -> None:
        document = {
            "digest": self._digest,
            "identity": str(self._identity),
            "dropped": self._dropped,
            "jobs": self.jobs,
        }
        write_whole(self._path, json.dumps(document, indent=1).encode())


def _plain(message: Message) -> dict[str, Any]:
    plain: dict[str, Any] = MessageToDict(message, preserving_proto_field_name=True)
    return plain


def _digest(cells: Sequence[Cell], ask: Ask[Any]) -> str:
    document = {
        "cells": [[str(cell), str(cell.checkpoint), str(cell.anchors)] for cell in cells],
        "ask": ask.document(),
    }
    return hashlib.sha256(json.dumps(document, sort_keys=True).encode()).hexdigest()
