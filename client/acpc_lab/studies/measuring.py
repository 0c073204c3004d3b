"""Measures checkpoints at a server, one job each; an interrupted measurement goes on later."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, Protocol, TypeVar

from acpc.contract import Study
from acpc_client import (
    AcpcClient,
    NumericMode,
    Operation,
    Perturbation,
    Result,
    Score,
    ScoreProtocol,
    StudyResult,
)
from acpc_client.errors import ArgumentError, Unknown
from google.protobuf.json_format import MessageToDict
from google.protobuf.message import Message

from acpc_lab.campaigns import (
    Campaign,
    CampaignProgress,
    Journal,
    Link,
    OnUpdate,
    Options,
    TaskState,
)
from acpc_lab.studies.checkpoints import StudyCheckpoint
from acpc_lab.tables import write_whole

JOURNAL = "measuring.json"
"""Which measurement a folder is in the middle of."""
EVENTS = "measuring.jsonl"
"""What happened to its jobs."""
CONCURRENCY = 5
"""Jobs at the server at a time."""

Answer = TypeVar("Answer", StudyResult, Score)
Given_co = TypeVar("Given_co", bound=StudyResult | Score, covariant=True)


class Ask(Protocol[Given_co]):
    """What is measured on every checkpoint."""

    def submit(self, client: AcpcClient, row: StudyCheckpoint, request_id: str) -> Operation:
        """Submits the job of a checkpoint."""
        ...

    def answer(self, operation: Operation) -> Given_co:
        """What a job that has ended has measured; raises why it has not."""
        ...

    def document(self) -> dict[str, Any]:
        """All that decides a number, as plain values."""
        ...


@dataclass(frozen=True)
class AskStudy:
    """Asks for a study's rows."""

    study: Study
    numeric_mode: NumericMode = NumericMode.SERVER_DEFAULT

    def submit(self, client: AcpcClient, row: StudyCheckpoint, request_id: str) -> Operation:
        """Submits RunStudy."""
        return client.run_study(
            row.checkpoint,
            row.anchors,
            self.study,
            numeric_mode=self.numeric_mode,
            request_id=request_id,
            patience=0.0,
        ).submitted

    def answer(self, operation: Operation) -> StudyResult:
        """The rows."""
        return operation.study_result()

    def document(self) -> dict[str, Any]:
        """The study with its parameters."""
        return {
            "study": self.study.kind,
            "request": _plain(self.study.to_message()),
            "numeric_mode": str(self.numeric_mode),
        }


@dataclass(frozen=True)
class AskScore:
    """Asks for a score without a reference."""

    shift: Perturbation
    protocol: ScoreProtocol
    numeric_mode: NumericMode = NumericMode.SERVER_DEFAULT

    def submit(self, client: AcpcClient, row: StudyCheckpoint, request_id: str) -> Operation:
        """Submits ScoreCheckpoint."""
        return client.score_checkpoint(
            row.checkpoint,
            row.anchors,
            self.shift,
            protocol=self.protocol,
            numeric_mode=self.numeric_mode,
            request_id=request_id,
            patience=0.0,
        ).submitted

    def answer(self, operation: Operation) -> Score:
        """The score."""
        return operation.result()

    def document(self) -> dict[str, Any]:
        """Shift and protocol."""
        return {
            "shift": _plain(self.shift.to_spec()),
            "protocol": dataclasses.asdict(self.protocol),
            "numeric_mode": str(self.numeric_mode),
        }


@dataclass(frozen=True)
class Measured(Generic[Answer]):
    """What was measured on one checkpoint, and by which job."""

    row: StudyCheckpoint
    operation: Operation
    answer: Answer

    def source(self) -> dict[str, Any]:
        """For a bundle: checkpoint, job, receipt, and the request as the server took it."""
        return {
            "kind": "job",
            "task": self.row.task,
            "run": self.row.run,
            "level": self.row.level,
            "checkpoint": self.row.checkpoint.name,
            "operation": self.operation.name,
            "receipt": self.answer.receipt.to_dict(),
            "request": dict(Result.of(self.operation).request),
        }


@dataclass(eq=False)
class MeasuringTask(Generic[Answer]):
    """One checkpoint to be measured, and what was measured on it.

    Attributes:
        measured: None until the job has ended.
    """

    index: int
    row: StudyCheckpoint
    ask: Ask[Answer]
    identity: uuid.UUID
    measured: Measured[Answer] | None = None

    @property
    def id(self) -> str:
        """The index in this measurement: events of another one in the folder are not its own."""
        return f"{self.identity}.{self.index}"

    @property
    def title(self) -> str:
        """Task, run and level."""
        return str(self.row)

    @property
    def kept(self) -> bool:
        """Whether it was measured in this run; a run before this one keeps no answer."""
        return self.measured is not None

    def submit(self, client: AcpcClient, attempt: int) -> Operation:
        """Submits the job of an attempt."""
        request_id = str(uuid.uuid5(self.identity, f"{self.index}.{attempt - 1}"))
        return self.ask.submit(client, self.row, request_id)

    def keep(self, operation: Operation) -> None:
        """Keeps the answer in memory."""
        self.measured = Measured(self.row, operation, self.ask.answer(operation))


MeasuringProgress = CampaignProgress[MeasuringTask[Any]]


def measure(
    client: AcpcClient,
    rows: Sequence[StudyCheckpoint],
    ask: Ask[Answer],
    folder: Path,
    on_update: OnUpdate[MeasuringTask[Answer]] = lambda _: None,
    timeout: float | None = None,
) -> list[Measured[Answer]]:
    """Has every checkpoint measured and waits for all, ``timeout`` seconds at most in total.

    The names of the jobs are kept in the folder, so that the same call resumes an interrupted
    measurement. Raises ArgumentError: The folder is in the middle of another measurement; RunEnded:
    ``timeout`` passed, or the server was away for too long; the jobs go on; AcpcError: A job
    failed; the others go on, and the next call does it again.
    """
    path, digest = folder / JOURNAL, _digest(rows, ask)
    _identity(path, digest)  # before anything is written
    journal = Journal(folder, "study", EVENTS, "measuring.lock")
    with journal.writing():
        identity = _identity(path, digest)
        if identity is None:
            journal.clear()
            identity = uuid.uuid4()
            begun = {"digest": digest, "identity": str(identity)}
            write_whole(path, json.dumps(begun, indent=1).encode())
        tasks = [MeasuringTask(index, row, ask, identity) for index, row in enumerate(rows)]
        campaign = Campaign(
            client,
            Link(client, timeout=timeout),
            tasks,
            Options(concurrency=CONCURRENCY, stop_at_failure=True),
            journal,
            on_update,
        )
        campaign.run()
        measured = [task.measured for task in tasks if task.measured is not None]
        if len(measured) < len(tasks):
            ended = (TaskState.FAILED, TaskState.CANCELLED)
            failed = next(status for status in campaign.statuses if status.state in ended)
            raise failed.problem or Unknown(f"{failed.task.title} has no answer")
        journal.clear()
        path.unlink()
        journal.remove()
    return measured


def _identity(path: Path, digest: str) -> uuid.UUID | None:
    """Identity of the measurement that a folder is in the middle of; None: it is in none."""
    files = f"{path} and {EVENTS} beside it"
    try:
        document = json.loads(path.read_bytes())
        found, identity = document["digest"], uuid.UUID(document["identity"])
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise ArgumentError(str(path), f"is no journal: {error}; delete {files}") from error
    if found != digest:
        raise ArgumentError(
            str(path.parent),
            "is in the middle of a measurement with other checkpoints or parameters; name "
            f"another folder, or delete {files}",
        )
    return identity


def _plain(message: Message) -> dict[str, Any]:
    plain: dict[str, Any] = MessageToDict(message, preserving_proto_field_name=True)
    return plain


def _digest(rows: Sequence[StudyCheckpoint], ask: Ask[Any]) -> str:
    document = {
        "cells": [[str(row), str(row.checkpoint), str(row.anchors)] for row in rows],
        "ask": ask.document(),
    }
    return hashlib.sha256(json.dumps(document, sort_keys=True).encode()).hexdigest()
