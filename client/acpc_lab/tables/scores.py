"""Scores as files: JSON to read, npz and Parquet to load again exactly.

npz has one entry per array, named by its path, and one, ``score``, with the rest as JSON. Parquet
has one row per side and anchor, and the rest as JSON in its metadata.
"""

from __future__ import annotations

import dataclasses
import enum
import functools
import io
import json
import math
import types
import typing
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from acpc_client import Score, write_whole
from acpc_client.errors import ArgumentError
from numpy.typing import NDArray

from acpc_lab.extras import pyarrow

FORMATS = (".json", ".npz", ".parquet")
_DOCUMENT = "score"
_METADATA = b"acpc_score"
_SIDES = ("checkpoint", "reference")
_DTYPES: dict[str, type[np.generic]] = {
    "anchor_ids": np.int64,
    "radius": np.float64,
    "motion_scale": np.float64,
    "different_state_distance": np.float64,
    "partner": np.int64,
    "draw_radius": np.float64,
    "step_radius": np.float64,
}


def save_score(score: Score, path: str | Path) -> None:
    """Writes a score in the format that the suffix names, whole or not at all.

    Raises:
        ArgumentError: Another suffix.
        FailedPrecondition: Parquet, and pyarrow is not installed.
        OSError: The file cannot be written.
    """
    writers: dict[str, Callable[[Score], bytes]] = {
        ".json": lambda item: (item.to_json(indent=2) + "\n").encode(),
        ".npz": _to_npz,
        ".parquet": _to_parquet,
    }
    target = Path(path)
    if target.suffix not in writers:
        wanted = f"{', '.join(FORMATS[:-1])} or {FORMATS[-1]}"
        raise ArgumentError("path", f"found {target.name}, wanted a name ending in {wanted}")
    write_whole(target, writers[target.suffix](score))


def load_score(path: str | Path) -> Score:
    """Reads what ``save_score`` wrote as npz or Parquet; NaN and every bit are as they were.

    Raises:
        ArgumentError: Another format, no such file, or no score in it.
        FailedPrecondition: Parquet, and pyarrow is not installed.
    """
    source = Path(path)
    readers = {".npz": _from_npz, ".parquet": _from_parquet}
    if source.suffix not in readers:
        raise ArgumentError("path", f"found {source.name}, wanted .npz or .parquet")
    try:
        content = source.read_bytes()
    except OSError as error:
        raise ArgumentError("path", f"cannot read {source}: {error.strerror}") from error
    document, arrays = readers[source.suffix](content)
    score: Score = decode(Score, document, arrays)
    return score


def read_score_json(path: Path) -> Score:
    """Reads the JSON of a score; null among numbers is NaN.

    Raises:
        ArgumentError: The file cannot be read, or holds no score.
    """
    try:
        document = json.loads(path.read_bytes())
    except OSError as error:
        raise ArgumentError("source", f"cannot read {path}: {error.strerror}") from error
    except ValueError as error:
        raise ArgumentError("source", f"{path} is no JSON: {error}") from error
    arrays: dict[str, NDArray[Any]] = {}
    try:
        for side in _SIDES:
            values = (document[side] or {}).get("anchor_values") or {}
            for name, found in values.items():
                dtype = _DTYPES.get(name)
                if dtype is not None and found is not None:
                    values[name] = f"{side}.{name}"
                    arrays[values[name]] = np.array(found, dtype)  # None becomes NaN
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise ArgumentError("source", f"{path} holds no score: {error!r}") from error
    score: Score = decode(Score, document, arrays)
    return score


def _to_npz(score: Score) -> bytes:
    document, arrays = encode(score)
    entries: dict[str, Any] = {_DOCUMENT: np.array(json.dumps(document, allow_nan=False)), **arrays}
    content = io.BytesIO()
    np.savez(content, **entries)
    return content.getvalue()


def _from_npz(content: bytes) -> tuple[Any, Arrays]:
    try:
        with np.load(io.BytesIO(content), allow_pickle=False) as entries:
            arrays = {name: entries[name] for name in entries.files}
        return json.loads(str(arrays.pop(_DOCUMENT))), arrays
    except (ValueError, KeyError, OSError, EOFError, zipfile.BadZipFile) as error:
        raise ArgumentError("path", f"the file is no score in npz: {error}") from error


def _to_parquet(score: Score) -> bytes:
    pa, pq = pyarrow()
    document, arrays = encode(score)
    tables = []
    for side in _SIDES:
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
    metadata = {_METADATA: json.dumps(document, allow_nan=False).encode()}
    content = io.BytesIO()
    pq.write_table(table.replace_schema_metadata(metadata), content)
    return content.getvalue()


def _from_parquet(content: bytes) -> tuple[Any, Arrays]:
    pa, pq = pyarrow()
    try:
        table = pq.read_table(io.BytesIO(content))
        document = json.loads((table.schema.metadata or {})[_METADATA])
    except (pa.ArrowException, KeyError, ValueError) as error:
        raise ArgumentError("path", f"the file is no score in Parquet: {error}") from error
    arrays: Arrays = {}
    for side in _SIDES:
        rows = table.filter(pa.compute.equal(table["side"], side)).combine_chunks()
        for name in table.column_names:
            if name != "side":
                arrays[f"{side}.anchor_values.{name}"] = _array(pa, rows[name])
    return document, arrays


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


Arrays = dict[str, NDArray[Any]]


def encode(record: Any) -> tuple[Any, Arrays]:  # noqa: ANN401 - any dataclass of the answers
    """The document of a record, and the arrays it names.

    Floats that JSON cannot hold are written as text ("nan", "inf"). A tuple of enums, of which
    there is one per anchor, becomes an array of their names.
    """
    arrays: Arrays = {}
    return _encode(record, "", arrays), arrays


def _encode(value: Any, path: str, arrays: Arrays) -> Any:  # noqa: ANN401 - any field
    document = value
    match value:
        case enum.Enum():
            document = value.name.lower()
        case np.ndarray():
            arrays[path], document = value, path
        case tuple() if value and all(isinstance(item, enum.Enum) for item in value):
            names = np.array([item.name.lower() for item in value])
            arrays[path], document = names, path
        case tuple() | list():
            items = enumerate(value)
            document = [_encode(item, f"{path}[{index}]", arrays) for index, item in items]
        case float() if not math.isfinite(value):
            document = str(value)
        case _ if dataclasses.is_dataclass(value):
            prefix = f"{path}." if path else ""
            document = {
                field.name: _encode(getattr(value, field.name), f"{prefix}{field.name}", arrays)
                for field in dataclasses.fields(value)
            }
    return document


def decode(kind: Any, document: Any, arrays: Mapping[str, NDArray[Any]]) -> Any:  # noqa: ANN401
    """The record of type ``kind`` that ``encode`` was given.

    Raises:
        ArgumentError: The document is not of this type.
    """
    try:
        return _decode(kind, document, arrays)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise ArgumentError("path", f"the file holds no {kind.__name__}: {error!r}") from error


@functools.cache
def _hints(kind: Any) -> dict[str, Any]:  # noqa: ANN401 - a dataclass
    return typing.get_type_hints(kind)


def _decode(kind: Any, value: Any, arrays: Mapping[str, NDArray[Any]]) -> Any:  # noqa: ANN401
    origin, inner = typing.get_origin(kind), typing.get_args(kind)
    if origin in (types.UnionType, typing.Union):
        (wanted,) = (item for item in inner if item is not types.NoneType)
        return None if value is None else _decode(wanted, value, arrays)
    if origin is np.ndarray:
        return arrays[value]
    if origin is tuple:
        items = arrays[value].tolist() if isinstance(value, str) else value
        return tuple(_decode(inner[0], item, arrays) for item in items)
    if dataclasses.is_dataclass(kind):
        record: Any = kind
        hints = _hints(record)
        unknown = value.keys() - hints.keys()
        if unknown:
            raise ValueError(f"unknown fields {', '.join(sorted(unknown))}")
        fields = {name: _decode(hints[name], item, arrays) for name, item in value.items()}
        return record(**fields)
    if issubclass(kind, enum.Enum):
        return kind[value.upper()]
    return kind(value)
