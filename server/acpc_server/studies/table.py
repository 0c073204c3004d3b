"""Tables of rows that studies measure, and their form in the job record."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from acpc_server.jobs import Json, pack, unpack

Arrays = Mapping[str, np.ndarray]


@dataclass(frozen=True)
class Table:
    """A part of a study, or all of it.

    Attributes:
        columns: Arrays of one axis and one length, in the order of the contract.
        arrays: What does not fit a column; the first axis grows from part to part.
    """

    columns: Arrays
    arrays: Arrays = field(default_factory=dict)

    @classmethod
    def join(cls, parts: Sequence[Table]) -> Table:
        """The parts, one after the other."""
        return cls(
            {name: np.concatenate([p.columns[name] for p in parts]) for name in parts[0].columns},
            {name: np.concatenate([p.arrays[name] for p in parts]) for name in parts[0].arrays},
        )

    def to_json(self) -> Json:
        """Form in the job record, which restores every bit."""
        return {
            "columns": [[name, pack(values)] for name, values in self.columns.items()],
            "arrays": [[name, pack(values)] for name, values in self.arrays.items()],
        }

    @classmethod
    def from_json(cls, record: Mapping[str, Any]) -> Table:
        """Inverse of :meth:`to_json`."""
        return cls(
            {name: unpack(values) for name, values in record["columns"]},
            {name: unpack(values) for name, values in record["arrays"]},
        )
