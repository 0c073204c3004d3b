"""Reads which checkpoints a study measures, and turns their answers into rows."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, TypeVar

import numpy as np
from acpc_client import CheckpointRef, DatasetAnchors, Score, StudyResult
from acpc_client.errors import ArgumentError, MalformedAnswer
from numpy.typing import NDArray

from acpc_lab.studies.collapse import CollapseRows
from acpc_lab.studies.geometry import key
from acpc_lab.studies.horizons import HorizonRows
from acpc_lab.tables import Column, Numbers, Rows, Texts

Kind = TypeVar("Kind", bound=Rows)


@dataclass(frozen=True, eq=False)
class CheckpointRows(Rows):
    """A row per checkpoint to measure."""

    task: Annotated[Texts, Column("task, as it shall be called in the results")]
    run: Annotated[Texts, Column("training run, for example its seed")]
    level: Annotated[
        Numbers, Column("augmentation level; 0: unaugmented [0]", low=0, optional=True)
    ]
    checkpoint: Annotated[Texts, Column("checkpoint at the server")]
    weights: Annotated[Texts, Column("weights file inside its folder", optional=True)]
    dataset: Annotated[Texts, Column("HDF5 file below the dataset root", optional=True)]
    preset: Annotated[Texts, Column("task preset or task file", optional=True)]
    anchor_set: Annotated[Texts, Column("digest of an anchor set, for dataset", optional=True)]
    success_clean: Annotated[
        Numbers, Column("clean success in %, shown by collapse", 0, 100, optional=True)
    ]
    success_clean_seeds: Annotated[
        Texts, Column("the same by evaluation seed, for example 95 98 96", optional=True)
    ]


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
    """The checkpoints behind the rows.

    Args:
        rows: Of the file.
        **drawn: How anchors are drawn from datasets: fields of ``DatasetAnchors``.

    Raises ArgumentError: A row has neither or both of dataset and anchor set, or comes twice.
    """
    rows.require_unique("task", "run", "level", "checkpoint", "weights")
    measured: list[StudyCheckpoint] = []
    columns = {field.name: getattr(rows, field.name).tolist() for field in rows.fields()}
    for index in range(len(rows)):
        row = {name: values[index] for name, values in columns.items()}
        if bool(row["dataset"]) == bool(row["anchor_set"]):
            found = "both" if row["dataset"] else "neither"
            raise ArgumentError(
                "dataset", f"row {index + 1}: found {found} dataset and anchor_set, wanted one"
            )
        if row["dataset"] and not row["preset"]:
            raise ArgumentError("preset", f"row {index + 1}: is empty; a dataset needs one")
        source = row["anchor_set"] or DatasetAnchors(row["dataset"], row["preset"], **drawn)
        level = 0.0 if np.isnan(row["level"]) else row["level"]
        checkpoint = CheckpointRef(row["checkpoint"], row["weights"])
        measured.append(
            StudyCheckpoint(
                row["task"],
                row["run"],
                level,
                checkpoint,
                source,
                row["success_clean"],
                row["success_clean_seeds"],
            )
        )
    return tuple(measured)


def require_one_per_run(checkpoints: Sequence[StudyCheckpoint]) -> None:
    """Rejects two checkpoints of a task and run, for studies that take the unaugmented one alone.

    Raises ArgumentError: There are two.
    """
    seen: dict[tuple[str, str], StudyCheckpoint] = {}
    for row in checkpoints:
        other = seen.setdefault((row.task, row.run), row)
        if other is not row:
            raise ArgumentError(
                "checkpoint",
                f"{row.task}, run {row.run} has {other.checkpoint.name} and "
                f"{row.checkpoint.name}; this study takes one checkpoint of each, the "
                "unaugmented one",
            )


def study_rows(kind: type[Kind], answers: Sequence[tuple[StudyCheckpoint, StudyResult]]) -> Kind:
    """The rows of every checkpoint, with its task, run and level.

    Raises MalformedAnswer: An answer lacks a column, or holds a value it must not.
    """
    return kind.joined([_rows_of(kind, row, answer) for row, answer in answers])


def _rows_of(kind: type[Kind], row: StudyCheckpoint, answer: StudyResult) -> Kind:
    labels = dataclasses.asdict(row)
    columns: dict[str, Any] = {}
    for field in kind.fields():
        if field.name in answer.columns:
            values = answer.columns[field.name]
            columns[field.name] = values.astype(np.int64) if values.dtype == bool else values
        elif field.name in ("task", "run", "level"):
            columns[field.name] = [labels[field.name]] * answer.rows
        elif not field.column.optional:
            raise MalformedAnswer(
                f"{row.checkpoint.name}: column {field.name} is missing; found "
                f"{', '.join(answer.columns)}"
            )
    try:
        return kind.of(columns)
    except ArgumentError as error:
        raise MalformedAnswer(f"{row.checkpoint.name}: {error.message}") from error


def study_arrays(answers: Sequence[tuple[StudyCheckpoint, StudyResult]]) -> dict[str, NDArray[Any]]:
    """The arrays of every checkpoint, numbered in the order of the rows."""
    return {
        key(index, name): values
        for index, (_, answer) in enumerate(answers)
        for name, values in answer.arrays.items()
    }


def horizon_rows(answers: Sequence[tuple[StudyCheckpoint, Score]]) -> HorizonRows:
    """A row per checkpoint, horizon and quantile that was asked for."""
    columns: dict[str, list[Any]] = {field.name: [] for field in HorizonRows.fields()}
    for row, score in answers:
        for summary in score.checkpoint.summaries:
            for name in ("task", "run", "level"):
                columns[name].append(getattr(row, name))
            for name in ("horizon", "quantile", "ir_raw"):
                columns[name].append(getattr(summary, name))
    return HorizonRows.of(columns)


def collapse_rows(answers: Sequence[tuple[StudyCheckpoint, Score]]) -> CollapseRows:
    """A row per checkpoint, under its own name.

    Raises ArgumentError: The checkpoints were not scored on the same anchors.
    """
    digests: Mapping[str, str] = {
        row.checkpoint.name: score.receipt.anchors_digest for row, score in answers
    }
    if len(set(digests.values())) > 1:
        raise ArgumentError(
            "anchors", f"differ between {', '.join(digests)}; a comparison needs the same ones"
        )
    scores = [score.checkpoint for _, score in answers]
    return CollapseRows.of(
        {
            "checkpoint": [row.checkpoint.name for row, _ in answers],
            "median_latent_distance": [score.median_latent_distance for score in scores],
            "ir_raw": [score.ir_raw for score in scores],
            "sr": [score.sr for score in scores],
            "success_clean": [row.success_clean for row, _ in answers],
            "success_clean_seeds": [row.success_clean_seeds for row, _ in answers],
        }
    )
