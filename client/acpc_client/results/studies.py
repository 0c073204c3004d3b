"""Answer of RunStudy: one table, the arrays beside it, and what was measured."""

from __future__ import annotations

import io
import json
import zipfile
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from acpc.contract import CheckpointRef, NumericMode, Receipt, Record, StudyRows
from acpc.v1 import study_service_pb2 as pb
from google.protobuf.json_format import MessageToDict
from numpy.typing import NDArray

from acpc_client.errors import ArgumentError, MalformedAnswer
from acpc_client.files import write_whole
from acpc_client.results.base import read_answer

Arrays = Mapping[str, NDArray[Any]]
# The entry of the file with everything that is no array, as JSON.
DOCUMENT = "study"


@dataclass(frozen=True, repr=False, eq=False)
class StudyResult(Record):
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
        parameters: Mapping[str, Any] = self.request.get(self.kind, {})
        return parameters

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
            request=MessageToDict(message.request, preserving_proto_field_name=True),
            columns=rows.columns,
            arrays=rows.arrays,
            receipt=rows.receipt,
        )

    def save(self, path: str | Path) -> None:
        """Writes an npz file, whole or not at all, from which ``load`` gets every bit back.

        Its entries are ``columns/<name>``, ``arrays/<name>`` and ``study``, JSON of the rest.

        Raises:
            OSError: The file cannot be written.
        """
        document = {
            "checkpoint": asdict(self.checkpoint),
            "kind": self.kind,
            "request": self.request,
            "receipt": self.receipt.to_dict(),
        }
        entries: dict[str, Any] = {DOCUMENT: np.array(json.dumps(document, allow_nan=False))}
        for group in ("columns", "arrays"):
            entries |= {f"{group}/{name}": x for name, x in getattr(self, group).items()}
        content = io.BytesIO()
        np.savez(content, **entries)
        write_whole(Path(path), content.getvalue())

    @classmethod
    def load(cls, path: str | Path) -> StudyResult:
        """Reads what ``save`` wrote.

        Raises:
            ArgumentError: No such file, or no study in it.
        """
        try:
            with np.load(Path(path), allow_pickle=False) as file:
                entries = {name: file[name] for name in file.files}
            document = json.loads(str(entries.pop(DOCUMENT)))
            receipt = document["receipt"]
            receipt["numeric_mode"] = NumericMode[receipt["numeric_mode"].upper()]
            return cls(
                checkpoint=CheckpointRef(**document["checkpoint"]),
                kind=document["kind"],
                request=document["request"],
                columns=_below("columns/", entries),
                arrays=_below("arrays/", entries),
                receipt=Receipt(**receipt),
            )
        except (OSError, EOFError, ValueError, KeyError, TypeError, zipfile.BadZipFile) as error:
            raise ArgumentError("path", f"{path} holds no study: {error}") from error


def _below(prefix: str, entries: Arrays) -> dict[str, NDArray[Any]]:
    return {
        name.removeprefix(prefix): values
        for name, values in entries.items()
        if name.startswith(prefix)
    }
