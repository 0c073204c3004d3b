"""Results as files: JSON to read, npz to load again bit by bit.

npz has one entry per array, named by its path, and one, ``result``, with the document.
"""

from __future__ import annotations

import hashlib
import io
import json
import math
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from acpc.contract import Array, check

from acpc_client.errors import ArgumentError
from acpc_client.files import read_npz, write_whole
from acpc_client.results.calibrated import CalibratedThresholds
from acpc_client.results.documents import Result, read_document

RESULT_FORMATS = (".json", ".npz")
_DOCUMENT = "result"
Read = tuple[object, Mapping[str, Array]]


def save_result(answer: object, path: str | Path) -> None:
    """Writes a result in the format that the suffix names, whole or not at all.

    Args:
        answer: A ``Result``, an ``Operation`` that has ended, whose file says what was asked, or
            an answer alone.
        path: A name ending in .json or .npz.

    Raises ArgumentError: Another suffix, or what is no result; OSError: The file cannot be written.
    """
    target = Path(path)
    npz, result = _suffix(target) == ".npz", Result.of(answer)
    write_whole(target, _to_npz(result) if npz else (result.to_json(indent=2) + "\n").encode())


def load_result(path: str | Path) -> Result:
    """Reads what ``save_result`` wrote, or ``--output``, ``--json`` and a sweep's folder hold.

    npz gives back every bit; JSON all but infinities, which it holds as null, as NaN.

    Raises ArgumentError: Another format, no such file, or no result in it.
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
    read = _from_npz if source.suffix == ".npz" else _from_json
    try:
        return read_document(*read(content))
    except ArgumentError as error:
        where = f"{source}: {error.field}: " if error.field else f"{source} "
        raise ArgumentError("path", f"{where}{error.description}") from error


def _suffix(path: Path) -> str:
    if path.suffix not in RESULT_FORMATS:
        wanted = " or ".join(RESULT_FORMATS)
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


def _to_npz(result: Result) -> bytes:
    document, arrays = result.encoded()
    entries: Any = {_DOCUMENT: np.array(json.dumps(document, allow_nan=False)), **arrays}
    content = io.BytesIO()
    np.savez(content, **entries)
    return content.getvalue()


def _from_npz(content: bytes) -> Read:
    arrays = read_npz(content)
    if _DOCUMENT not in arrays:
        raise ArgumentError("", f"holds no result: it has no entry {_DOCUMENT!r}")
    return _parsed(str(arrays.pop(_DOCUMENT))), arrays
