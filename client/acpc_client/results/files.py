"""Results as files: JSON to read, npz and Parquet to load again bit by bit.

npz has one entry per array, named by its path, and one, ``result``, with the document. Parquet has
a row per side and anchor of a score, or per row of a study; the document is in its metadata, and
beside it, as npz in base64, the arrays that are no column.
"""

from __future__ import annotations

import base64
import hashlib
import io
import json
import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
from acpc.contract import Array, check, pyarrow

from acpc_client.errors import ArgumentError
from acpc_client.files import read_npz, write_whole
from acpc_client.results.calibrated import CalibratedThresholds
from acpc_client.results.codec import Arrays
from acpc_client.results.documents import Result, read_document

RESULT_FORMATS = (".json", ".npz", ".parquet")
_DOCUMENT = "result"
_METADATA = b"acpc_result"
_REST = b"acpc_arrays"
_PARTS = (
    ("answer.checkpoint.anchor_values.", "checkpoint"),
    ("answer.reference.anchor_values.", "reference"),
    ("answer.columns.", ""),
)
"""Paths of the arrays that are columns, each with the side its rows are of."""
Read = tuple[object, Mapping[str, Array]]


def save_result(answer: object, path: str | Path) -> None:
    """Writes a result in the format that the suffix names, whole or not at all.

    Args:
        answer: A ``Result``, an ``Operation`` that has ended, whose file says what was asked, or
            an answer alone.
        path: A name ending in .json, .npz or .parquet.

    Raises ArgumentError: Another suffix, or what is no result; FailedPrecondition: Parquet, and
    pyarrow is not installed; OSError: The file cannot be written.
    """
    writers: dict[str, Callable[[Result], bytes]] = {
        ".json": lambda item: (item.to_json(indent=2) + "\n").encode(),
        ".npz": _to_npz,
        ".parquet": _to_parquet,
    }
    target = Path(path)
    write_whole(target, writers[_suffix(target)](Result.of(answer)))


def load_result(path: str | Path) -> Result:
    """Reads what ``save_result`` wrote, or ``--output``, ``--json`` and a sweep's folder hold.

    npz and Parquet give back every bit; JSON all but infinities, which it holds as null, as NaN.

    Raises ArgumentError: Another format, no such file, or no result in it; FailedPrecondition:
    Parquet, and pyarrow is not installed.
    """
    source = Path(path)
    return _read(source, _content_of(source))


def load_thresholds(path: str | Path) -> CalibratedThresholds:
    """Reads thresholds that ``acpc study thresholds --output`` wrote; see their ``warnings``.

    The ``thresholds`` in them are what ``score_checkpoint`` takes; they hold the sha256 of the
    file, which the receipts of scores keep, and their family, which the server compares with the
    checkpoint's.

    Raises ArgumentError: No such file, or it was changed or damaged; names the field.
    """
    source = Path(path)
    content = _content_of(source)
    result = _read(source, content)
    found = result.answer
    if not isinstance(found, CalibratedThresholds):
        wanted = "wanted what acpc study thresholds --output writes"
        raise ArgumentError("path", f"{source} holds a result of kind {result.kind}, {wanted}")
    try:
        check(found.thresholds)
        for name in ("ir", "sr"):
            grid = result.request["parameters"][f"{name}_grid"]
            if getattr(found, name) not in grid:
                wrong = f"found {getattr(found, name):g}, but request.parameters.{name}_grid"
                raise ArgumentError(name, f"{wrong} is {grid}")
    except ArgumentError as error:
        hint = "the file was changed or damaged: give other thresholds without a file"
        raise ArgumentError("path", f"{source}: answer.{error}; {hint}") from error
    except (KeyError, TypeError) as error:
        wrong = f"{source}: request.parameters lacks the grids of the thresholds"
        raise ArgumentError("path", wrong) from error
    return replace(found, source_digest=hashlib.sha256(content).hexdigest())


def _content_of(source: Path) -> bytes:
    _suffix(source)
    try:
        return source.read_bytes()
    except OSError as error:
        raise ArgumentError("path", f"cannot read {source}: {error.strerror}") from error


def _read(source: Path, content: bytes) -> Result:
    readers: dict[str, Callable[[bytes], Read]] = {
        ".json": _from_json,
        ".npz": _from_npz,
        ".parquet": _from_parquet,
    }
    try:
        return read_document(*readers[source.suffix](content))
    except ArgumentError as error:
        where = f"{source}: {error.field}: " if error.field else f"{source} "
        raise ArgumentError("path", f"{where}{error.description}") from error


def _suffix(path: Path) -> str:
    if path.suffix not in RESULT_FORMATS:
        wanted = f"{', '.join(RESULT_FORMATS[:-1])} or {RESULT_FORMATS[-1]}"
        raise ArgumentError("path", f"found {path.name}, wanted a name ending in {wanted}")
    return path.suffix


def _from_json(content: bytes) -> Read:
    document = _parsed(content)
    left: list[tuple[str, object]] = [("", document)]
    while left:  # not by recursion: the reader has met what is nested as deep as it may be
        path, value = left.pop()
        if isinstance(value, float) and not math.isfinite(value):
            raise ArgumentError(
                path, f"found {value}, wanted a number, or null where there is none"
            )
        if isinstance(value, int) and abs(value) >= 2**64:
            raise ArgumentError(path, f"found an integer of {value.bit_length()} bits, wanted 64")
        if isinstance(value, dict):
            left += [(f"{path}.{key}" if path else key, item) for key, item in value.items()]
        elif isinstance(value, list):
            left += [(f"{path}[{index}]", item) for index, item in enumerate(value)]
    return document, {}


def _parsed(text: str | bytes) -> object:
    try:
        return json.loads(text)
    except RecursionError as error:
        raise ArgumentError("", "holds no result: its JSON is nested too deep") from error
    except ValueError as error:
        raise ArgumentError("", f"holds no result: it is no JSON: {error}") from error


def _npz(entries: Mapping[str, Any]) -> bytes:
    content = io.BytesIO()
    np.savez(content, **entries)
    return content.getvalue()


def _to_npz(result: Result) -> bytes:
    document, arrays = result.encoded()
    return _npz({_DOCUMENT: np.array(json.dumps(document, allow_nan=False)), **arrays})


def _from_npz(content: bytes) -> Read:
    arrays = read_npz(content)
    if _DOCUMENT not in arrays:
        raise ArgumentError("", f"holds no result: it has no entry {_DOCUMENT!r}")
    return _parsed(str(arrays.pop(_DOCUMENT))), arrays


def _to_parquet(result: Result) -> bytes:
    pa, pq = pyarrow()
    document, rest = result.encoded()
    parts = []
    for prefix, side in _PARTS:
        names = [name for name in rest if name.startswith(prefix)]
        if names:
            parts.append((side, {name.removeprefix(prefix): rest.pop(name) for name in names}))
    everywhere = set.intersection(*(set(columns) for _, columns in parts)) if parts else set()
    tables = []
    for side, columns in parts:
        made = {name: _column(pa, x, name in everywhere) for name, x in columns.items()}
        count = len(next(iter(columns.values())))
        beside = {"side": pa.array([side] * count, pa.string())} if side else {}
        tables.append(pa.table({**beside, **made}))
    table = pa.concat_tables(tables, promote_options="default") if tables else pa.table({})
    metadata = {_METADATA: json.dumps(document, allow_nan=False).encode()}
    if rest:
        metadata[_REST] = base64.b64encode(_npz(rest))
    content = io.BytesIO()
    pq.write_table(table.replace_schema_metadata(metadata), content)
    return content.getvalue()


def _from_parquet(content: bytes) -> Read:
    pa, pq = pyarrow()
    try:
        table = pq.read_table(io.BytesIO(content))
        metadata = table.schema.metadata or {}
        rest = base64.b64decode(metadata[_REST]) if _REST in metadata else None
    except (pa.ArrowException, OSError, ValueError) as error:
        raise ArgumentError("", "is not a Parquet file, or a damaged one") from error
    if _METADATA not in metadata:
        raise ArgumentError("", f"holds no result: its metadata has no {_METADATA.decode()}")
    arrays = {} if rest is None else read_npz(rest)
    try:
        arrays |= _columns_of(pa, table)
    except (pa.ArrowException, KeyError, TypeError, ValueError) as error:
        raise ArgumentError("", "holds no result: its columns are not those of one") from error
    return _parsed(metadata[_METADATA]), arrays


def _columns_of(pa: ModuleType, table: Any) -> Arrays:  # noqa: ANN401 - pyarrow's
    arrays: Arrays = {}
    sided = "side" in table.column_names
    for prefix, side in _PARTS:
        if sided is not bool(side):
            continue
        rows = table
        if sided:
            rows = table.filter(pa.compute.equal(table["side"], side)).drop_columns(["side"])
        for name in rows.column_names:
            arrays[f"{prefix}{name}"] = _array(pa, rows.combine_chunks()[name])
    return arrays


def _column(pa: ModuleType, values: Array, everywhere: bool) -> object:
    """A column of scalars, or of lists of one length; one that a side lacks of any lists.

    pyarrow before 26 does not read lists of one length where a row has none.
    """
    if values.ndim == 1:
        return pa.array(values.tolist() if values.dtype.kind == "U" else values)
    flat = pa.array(np.ascontiguousarray(values).reshape(-1))
    if everywhere:
        return pa.FixedSizeListArray.from_arrays(flat, values.shape[1])
    starts = np.arange(len(values) + 1, dtype=np.int32) * np.int32(values.shape[1])
    return pa.ListArray.from_arrays(pa.array(starts), flat)


def _array(pa: ModuleType, column: Any) -> Array:  # noqa: ANN401 - pyarrow's
    whole = column.combine_chunks()
    if pa.types.is_fixed_size_list(whole.type):
        flat: Array = whole.flatten().to_numpy(zero_copy_only=False)
        return flat.reshape(-1, whole.type.list_size)
    if pa.types.is_list(whole.type):
        lists: Array = whole.flatten().to_numpy(zero_copy_only=False)
        return lists.reshape(len(whole), len(lists) // max(1, len(whole)))
    if pa.types.is_string(whole.type):
        return np.array(whole.to_pylist(), dtype=np.str_)
    values: Array = whole.to_numpy(zero_copy_only=False)
    return values
