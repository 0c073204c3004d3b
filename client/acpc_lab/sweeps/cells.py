"""Defines cells: one checkpoint under one shift at one severity, with one seed of draws."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import re
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from acpc.contract import from_plain, to_plain
from acpc_client import (
    CheckpointRef,
    DatasetAnchors,
    NumericMode,
    Perturbation,
    ScoreProtocol,
    Thresholds,
)

from acpc_lab.sweeps.reading import Label

NAMESPACE = uuid.UUID("3d1b6e52-6b0b-4f0c-9f53-5c0a2d9f7b61")
_SLUG_LENGTH = 80


@dataclass(frozen=True)
class Cell:
    """One job of a sweep.

    Attributes:
        reference: The unaugmented checkpoint; None: relative IR stays unknown.
        anchors: A dataset, or the digest of an anchor set.
        labels: What the file says about the checkpoint; no number depends on them.
    """

    checkpoint: CheckpointRef
    reference: CheckpointRef | None
    anchors: DatasetAnchors | str
    shift: Perturbation
    protocol: ScoreProtocol
    thresholds: Thresholds
    numeric_mode: NumericMode
    labels: Mapping[str, Label]

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
        """What a person calls it."""
        return f"{self.checkpoint.name} {self.shift} seed {self.seed}"

    def request_id(self, sweep: str, attempt: int) -> str:
        """The request id of an attempt, from 1; whoever computes it finds the same job."""
        return str(uuid.uuid5(NAMESPACE, json.dumps([sweep, self._content(), attempt])))

    def to_document(self) -> dict[str, Any]:
        """The cell as plain values."""
        document: dict[str, Any] = to_plain(self)
        return document

    @classmethod
    def from_document(cls, document: Mapping[str, Any]) -> Cell:
        """The cell that ``to_document`` was asked of; other keys are passed over."""
        known = {field.name for field in dataclasses.fields(cls)}
        return from_plain(cls, {key: v for key, v in document.items() if key in known})

    def _content(self) -> str:
        """Everything that can change a number, in one canonical text.

        What is left to the paper or the server is left out, so that a release with one more field
        of that kind finds the jobs of this one.
        """
        document = {
            "checkpoint": _said(self.checkpoint),
            "reference": self.reference and _said(self.reference),
            "anchors": self.anchors if isinstance(self.anchors, str) else _said(self.anchors),
            "shift": to_plain(self.shift),
            "protocol": {**_said(self.protocol), "seed": self.seed},
            "thresholds": _said(self.thresholds),
            "numeric_mode": self.numeric_mode.name.lower(),
        }
        said = {key: value for key, value in document.items() if value}
        return json.dumps(said, sort_keys=True, separators=(",", ":"))


def _said(record: Any) -> dict[str, Any]:  # noqa: ANN401 - any dataclass
    """The fields of a record that are not as they are by default."""
    return {
        field.name: value
        for field in dataclasses.fields(record)
        if (value := getattr(record, field.name)) not in (field.default, None, "", ())
    }
