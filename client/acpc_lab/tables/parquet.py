"""A score as Parquet: one row per side and anchor, everything else as JSON in the metadata."""

from __future__ import annotations

import io
import json
from typing import Any

import numpy as np
from acpc_client import Score
from acpc_client.errors import ArgumentError
from numpy.typing import NDArray

from acpc_lab.extras import pyarrow
from acpc_lab.tables.plain import Arrays, decode, encode

METADATA = b"acpc_score"
SIDES = ("checkpoint", "reference")


def write(score: Score) -> bytes:
    """The bytes of the file.

    Raises:
        FailedPrecondition: pyarrow is not installed.
    """
    pa, pq = pyarrow()
    document, arrays = encode(score)
    tables = []
    for side in SIDES:
        prefix = f"{side}.anchor_values."
        columns = {
            name.removeprefix(prefix): _column(pa, values)
            for name, values in arrays.items()
            if name.startswith(prefix)
        }
        if columns:
            rows = len(next(iter(columns.values())))
            tables.append(pa.table({"side": pa.array([side] * rows, pa.string()), **columns}))
    table = (
        pa.concat_tables(tables, promote_options="default")
        if tables
        else pa.table({"side": pa.array([], pa.string())})
    )
    metadata = {METADATA: json.dumps(document, allow_nan=False).encode()}
    content = io.BytesIO()
    pq.write_table(table.replace_schema_metadata(metadata), content)
    return content.getvalue()


def read(content: bytes) -> Score:
    """The score.

    Raises:
        ArgumentError: The bytes are no such file.
        FailedPrecondition: pyarrow is not installed.
    """
    pa, pq = pyarrow()
    try:
        table = pq.read_table(io.BytesIO(content))
        document = json.loads((table.schema.metadata or {})[METADATA])
    except (pa.ArrowException, KeyError, ValueError) as error:
        raise ArgumentError("path", f"the file is no score in Parquet: {error}") from error
    arrays: Arrays = {}
    for side in SIDES:
        rows = table.filter(pa.compute.equal(table["side"], side)).combine_chunks()
        for name in table.column_names:
            if name != "side":
                arrays[f"{side}.anchor_values.{name}"] = _array(pa, rows[name])
    score: Score = decode(Score, document, arrays)
    return score


def _column(pa: Any, values: NDArray[Any]) -> Any:  # noqa: ANN401 - pyarrow is not imported here
    """A column of scalars, or of lists of one length."""
    if values.ndim == 1:
        return pa.array(values.tolist() if values.dtype.kind == "U" else values)
    flat = pa.array(np.ascontiguousarray(values).reshape(-1))
    return pa.FixedSizeListArray.from_arrays(flat, values.shape[1])


def _array(pa: Any, column: Any) -> NDArray[Any]:  # noqa: ANN401
    whole = column.combine_chunks()
    if pa.types.is_fixed_size_list(whole.type):
        flat: NDArray[Any] = whole.flatten().to_numpy(zero_copy_only=False)
        return flat.reshape(-1, whole.type.list_size)
    if pa.types.is_string(whole.type):
        return np.array(whole.to_pylist(), dtype=np.str_)
    values: NDArray[Any] = whole.to_numpy(zero_copy_only=False)
    return values
