"""Answer of RunStudy: one table, the arrays beside it, and what was measured."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from acpc.contract import (
    Array,
    CheckpointRef,
    Columns,
    Receipt,
    Record,
    StudyRows,
    Tabular,
    to_plain,
)
from acpc.v1 import study_service_pb2 as pb

from acpc_client.errors import MalformedAnswer
from acpc_client.results.base import read_answer

Arrays = Mapping[str, Array]


@dataclass(frozen=True, repr=False, eq=False)
class StudyResult(Tabular, Record):
    """The rows of one study of one checkpoint; study_service.proto names the columns.

    Attributes:
        checkpoint: What was measured.
        kind: ``"drift"``, ``"planner"``, ``"geometry"`` or ``"sensitivity"``.
        request: The request as the server took it, defaults filled in and digests pinned, as plain
            values under the names of the contract.
        columns: One-dimensional arrays of one length, in the contract's order.
        arrays: What does not fit a table.
        receipt: What the rows were computed from.
    """

    checkpoint: CheckpointRef
    kind: str
    request: Mapping[str, Any]
    columns: Arrays
    arrays: Arrays
    receipt: Receipt

    @property
    def rows(self) -> int:
        """Rows of the table."""
        return len(next(iter(self.columns.values()), ()))

    @property
    def parameters(self) -> Mapping[str, Any]:
        """The study's own part of the request."""
        parameters: Mapping[str, Any] = self.request.get("study", {})
        return parameters

    def table(self) -> Columns:
        """The rows."""
        return {name: values.tolist() for name, values in self.columns.items()}

    def headline(self) -> str:
        """Kind, checkpoint and number of rows."""
        return f"{self.kind} study of {self.checkpoint.name}: {self.rows} rows"

    @classmethod
    def from_message(cls, message: pb.RunStudyResponse) -> StudyResult:
        """Reads the wire form.

        Raises:
            MalformedAnswer: Columns of unequal length, or a tensor that breaks the contract.
        """
        rows = read_answer(StudyRows, message)
        shapes = {name: values.shape for name, values in rows.columns.items()}
        if any(len(shape) != 1 for shape in shapes.values()) or len(set(shapes.values())) > 1:
            raise MalformedAnswer(f"columns: found shapes {shapes}, wanted one length")
        return cls(
            checkpoint=rows.checkpoint,
            kind=message.request.WhichOneof("study") or "",
            request=to_plain(rows.request),
            columns=rows.columns,
            arrays=rows.arrays,
            receipt=rows.receipt,
        )
