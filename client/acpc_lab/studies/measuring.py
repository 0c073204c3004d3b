"""Measures checkpoints at a server, one job each; the same measurement finds its jobs again."""

from __future__ import annotations

import dataclasses
import json
import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from acpc.contract import Study
from acpc_client import (
    AcpcClient,
    CheckpointRef,
    DatasetAnchors,
    NumericMode,
    Operation,
    Perturbation,
    Result,
    ScoreProtocol,
)
from acpc_client.errors import AlreadyExists, ArgumentError, Unknown
from google.protobuf.json_format import MessageToDict
from google.protobuf.message import Message

from acpc_lab import campaigns
from acpc_lab.studies.statistics import CLEAN_SEEDS
from acpc_lab.tables import Numbers, Rows, Texts, column, optional

CONCURRENCY = 5
"""Jobs at the server at a time."""
_NAMESPACE = uuid.UUID("5b0c3c0e-8f0f-4d7a-9c9a-2f1f6f4f3b11")
# Jobs of one checkpoint: each that failed, and each time it is overwritten, takes one.
_MAX_ATTEMPTS = 1000


class CheckpointRows(Rows):
    """A row per checkpoint to measure."""

    task: Texts = column("task, as it shall be called in the results")
    run: Texts = column("training run, for example its seed")
    level: Numbers = optional("augmentation level; 0: unaugmented [0]", low=0)
    checkpoint: Texts = column("checkpoint at the server")
    weights: Texts = optional("weights file inside its folder")
    dataset: Texts = optional("HDF5 file below the dataset root")
    preset: Texts = optional("task preset or task file")
    anchor_set: Texts = optional("digest of an anchor set, for dataset")
    success_clean: Numbers = optional("clean success in %, shown by collapse", 0, 100)
    success_clean_seeds: Texts = optional(CLEAN_SEEDS)


@dataclass(frozen=True)
class StudyCheckpoint:
    """One checkpoint to measure."""

    task: str
    run: str
    level: float
    checkpoint: CheckpointRef
    anchors: DatasetAnchors | str
    success_clean: float
    success_clean_seeds: str = ""

    def __str__(self) -> str:
        return f"{self.task}, run {self.run}, level {self.level:g}"


def read_checkpoints(
    rows: CheckpointRows,
    **drawn: Any,  # noqa: ANN401 - as DatasetAnchors takes them
) -> tuple[StudyCheckpoint, ...]:
    """The checkpoints behind the rows; ``drawn`` are fields of ``DatasetAnchors``.

    Raises ArgumentError: A row has neither or both of dataset and anchor set, or comes twice.
    """
    rows.require_unique("task", "run", "level", "checkpoint", "weights")
    measured: list[StudyCheckpoint] = []
    for number, row in enumerate(rows.each(), start=1):
        if bool(row.dataset) == bool(row.anchor_set):
            found = "both" if row.dataset else "neither"
            wrong = f"row {number}: found {found} dataset and anchor_set, wanted one"
            raise ArgumentError("dataset", wrong)
        if row.dataset and not row.preset:
            raise ArgumentError("preset", f"row {number}: is empty; a dataset needs one")
        anchors = row.anchor_set or DatasetAnchors(row.dataset, row.preset, **drawn)
        level = 0.0 if np.isnan(row.level) else row.level
        checkpoint = CheckpointRef(row.checkpoint, row.weights)
        success = (row.success_clean, row.success_clean_seeds)
        measured.append(StudyCheckpoint(row.task, row.run, level, checkpoint, anchors, *success))
    return tuple(measured)


@dataclass(frozen=True)
class Ask:
    """The rows of a study, or a score without a reference and its shift, on every checkpoint."""

    request: Study | ScoreProtocol
    shift: Perturbation | None = None
    numeric_mode: NumericMode = NumericMode.SERVER_DEFAULT

    def submit(self, client: AcpcClient, row: StudyCheckpoint, **how: Any) -> Operation:  # noqa: ANN401
        """Submits the job of a checkpoint; all of a study are measured on equally many anchors."""
        how = {"numeric_mode": self.numeric_mode, **how}
        if isinstance(self.request, ScoreProtocol):
            drawn = row.anchors
            drawn = drawn if isinstance(drawn, str) else drawn.resolved_count()
            asked: Any = (row.checkpoint, drawn, self.shift)
            return client.score_checkpoint(*asked, protocol=self.request, **how).submitted
        return client.run_study(row.checkpoint, row.anchors, self.request, **how).submitted

    def document(self) -> dict[str, Any]:
        """All that decides a number, as plain values; request ids follow from it."""
        mode = str(self.numeric_mode)
        if isinstance(self.request, ScoreProtocol):
            shift = self.shift and _plain(self.shift.to_spec())
            asked = dataclasses.asdict(self.request)
            return {"shift": shift, "protocol": asked, "numeric_mode": mode}
        plain = _plain(self.request.to_message())
        return {"study": self.request.kind, "request": plain, "numeric_mode": mode}


class MeasuringTask(campaigns.Task):
    """One checkpoint to be measured; its id says what on which, ``measured`` what was found."""

    measured: Result | None = None

    def __init__(self, row: StudyCheckpoint, ask: Ask) -> None:
        asked = [str(row.checkpoint), str(row.anchors), ask.document()]
        name = uuid.uuid5(_NAMESPACE, json.dumps(asked, sort_keys=True))
        super().__init__(str(name), str(row))
        self.row, self.ask = row, ask

    def submit(self, client: AcpcClient, attempt: int) -> Operation:
        """Submits its job, or finds that of an earlier call, unless that one has failed."""
        for number in range(attempt, attempt + _MAX_ATTEMPTS):
            name = f"study-{self.id}-{number}"
            try:
                operation = self.ask.submit(client, self.row, request_id=name, patience=0.0)
            except AlreadyExists:  # of a checkpoint that has been overwritten since
                continue
            if operation.error is None:
                return operation
        raise Unknown(f"{self.title} has failed {_MAX_ATTEMPTS} times")

    def keep(self, operation: Operation) -> None:
        """Keeps the answer in memory."""
        scored = isinstance(self.ask.request, ScoreProtocol)
        _ = operation.result() if scored else operation.study_result()  # raises why there is none
        self.measured = Result.of(operation)

    @property
    def answer(self) -> Any:  # noqa: ANN401 - a StudyResult or a Score
        """What was measured."""
        return self.measured and self.measured.answer

    def source(self) -> dict[str, Any]:
        """For a bundle: checkpoint, job, receipt, and the request as the server took it."""
        found, of = Result.of(self.measured), ("task", "run", "level")
        return {
            "kind": "job",
            **{name: getattr(self.row, name) for name in of},
            "checkpoint": self.row.checkpoint.name,
            "operation": found.operation,
            "receipt": found.answer.receipt.to_dict(),
            "request": dict(found.request),
        }


MeasuringProgress = campaigns.CampaignProgress[MeasuringTask]


def measure(
    client: AcpcClient,
    rows: Sequence[StudyCheckpoint],
    ask: Ask,
    on_update: campaigns.OnUpdate[MeasuringTask] = lambda _: None,
    timeout: float | None = None,
) -> list[MeasuringTask]:
    """Has every checkpoint measured and waits for all, ``timeout`` seconds at most in total.

    The request ids of the jobs follow from what is asked, so that the same call finds them again.
    Raises RunEnded: ``timeout`` passed, or the server was away for too long; the jobs go on;
    AcpcError: A job failed; the others go on, and the next call does it again.
    """

    def update(now: MeasuringProgress) -> None:
        on_update(now)
        for task in now.changed:
            if task.state in campaigns.ENDED_BADLY:
                raise task.problem or Unknown(f"{task.title} has no answer")

    tasks = [MeasuringTask(row, ask) for row in rows]
    link = campaigns.Link(client, timeout=timeout)
    options = campaigns.Options(concurrency=CONCURRENCY)
    campaigns.Campaign(client, link, tasks, options, on_update=update).run()
    return [task for task in tasks if task.measured is not None]


def _plain(message: Message) -> dict[str, Any]:
    plain: dict[str, Any] = MessageToDict(message, preserving_proto_field_name=True)
    return plain
