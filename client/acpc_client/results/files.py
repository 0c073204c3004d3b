"""Results as files: JSON to read, npz to load again bit by bit.

A JSON file is the document; npz has one entry per array, named by its path, and one, ``result``,
with the document.
"""

from __future__ import annotations

import hashlib
import io
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np
from acpc.contract import ArgumentError, Array, check, from_plain

from acpc_client.files import read_npz, write_whole
from acpc_client.results.calibrated import CalibratedThresholds
from acpc_client.results.documents import ABOVE, KINDS, PLAIN_KINDS, SCHEMA, VERSION, Result

RESULT_FORMATS = (".json", ".npz")
_ENTRY = "result"


@dataclass(frozen=True)
class _Parts:
    """What a document holds beside its schema and its kind."""

    answer: Mapping[str, Any]
    operation: str | None
    time: datetime | None
    request: Mapping[str, Any] | None
    receipt: Any | None


def read_document(document: object, arrays: Mapping[str, Array]) -> Result:
    """The result that a document is, with its arrays inside or beside it.

    Raises ArgumentError: It is none, or of a newer release; names the field of the document.
    """
    if not isinstance(document, Mapping):
        raise ArgumentError("", f"holds no result: found {document!r:.80}, wanted an object")
    if "schema" not in document:
        raise ArgumentError("", f"holds no result: it has no schema, which is {SCHEMA!r}")
    if document["schema"] != SCHEMA:
        raise ArgumentError("schema", f"found {document['schema']!r:.80}, wanted {SCHEMA!r}")
    version = document.get("schema_version")
    if isinstance(version, int) and version > VERSION:
        newer = f"is {version}, of a newer release; this one reads {VERSION}: update acpc"
        raise ArgumentError("schema_version", newer)
    if version != VERSION or isinstance(version, bool):
        raise ArgumentError("schema_version", f"found {version!r:.80}, wanted {VERSION}")
    kind = document.get("kind")
    if not (isinstance(kind, str) and kind in (*KINDS, *PLAIN_KINDS)):
        known = ", ".join((*KINDS, *PLAIN_KINDS))
        wanted = f"found {kind!r:.80}, wanted one of {known}; a newer release may know more"
        raise ArgumentError("kind", wanted)
    held = from_plain(_Parts, document, "", arrays)
    request, answer = held.request or {}, {**held.answer, "receipt": held.receipt}
    if kind in KINDS:
        answer = _answer(KINDS[kind], {**answer, "request": request}, arrays)
    return Result(kind, answer, request, held.operation or "", held.time)


def _answer(kind: type, plain: object, arrays: Mapping[str, Array]) -> Any:  # noqa: ANN401
    """A record, whose parts that stand above the answer keep their paths."""
    try:
        return from_plain(kind, plain, "answer", arrays)
    except ArgumentError as error:
        field = error.field.removeprefix("answer.")
        if field.partition(".")[0] in ABOVE:
            raise ArgumentError(field, error.description) from error
        raise


def save_result(answer: object, path: str | Path) -> None:
    """Writes a result in the format that the suffix names, whole or not at all.

    Args:
        answer: A ``Result``, an ``Operation`` that has ended, whose file says what was asked, or
            an answer alone.
        path: A name ending in .json or .npz.

    Raises ArgumentError: Another suffix, or what is no result; OSError: The file cannot be written.
    """
    target = Path(path)
    _check_suffix(target)
    result, content = Result.of(answer), io.BytesIO()
    if target.suffix == ".json":
        content.write((result.to_json(indent=2) + "\n").encode())
    else:
        document, arrays = result.encoded()
        text: Any = np.array(json.dumps(document, allow_nan=False))
        np.savez(content, **{_ENTRY: text, **arrays})
    write_whole(target, content.getvalue())


def load_result(path: str | Path) -> Result:
    """Reads what ``save_result`` wrote, or ``--out``, ``-o json`` and a sweep's folder hold.

    npz gives back every bit; JSON all but infinities, which it holds as null, as NaN.

    Raises ArgumentError: Another format, no such file, or no result in it.
    """
    return _read(Path(path))[0]


def load_thresholds(path: str | Path) -> CalibratedThresholds:
    """Reads thresholds that ``acpc study run thresholds --out`` wrote; see their ``warnings``.

    The ``thresholds`` in them are what ``score_checkpoint`` takes; they hold the sha256 of the
    file, which the receipts of scores keep, and their family, which the server compares with the
    checkpoint's.

    Raises ArgumentError: No such file, or it was changed or damaged; names the field.
    """
    source = Path(path)
    result, content = _read(source)
    found = result.answer
    if not isinstance(found, CalibratedThresholds):
        wanted = "wanted what acpc study run thresholds --out writes"
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


def _read(source: Path) -> tuple[Result, bytes]:
    """A file as a result, and its content; raises as ``load_result``."""
    _check_suffix(source)
    try:
        content = source.read_bytes()
    except OSError as error:
        raise ArgumentError("path", f"cannot read {source}: {error.strerror}") from error
    try:
        if source.suffix == ".json":
            return read_document(_checked(_parsed(content)), {}), content
        arrays = read_npz(content)
        if _ENTRY not in arrays:
            raise ArgumentError("", f"holds no result: it has no entry {_ENTRY!r}")
        return read_document(_parsed(str(arrays.pop(_ENTRY))), arrays), content
    except ArgumentError as error:
        where = f"{source}: {error.field}: " if error.field else f"{source} "
        raise ArgumentError("path", f"{where}{error.description}") from error


def _check_suffix(path: Path) -> None:
    if path.suffix not in RESULT_FORMATS:
        wanted = " or ".join(RESULT_FORMATS)
        raise ArgumentError("path", f"found {path.name}, wanted a name ending in {wanted}")


def _parsed(text: str | bytes) -> object:
    try:
        return json.loads(text)
    except RecursionError as error:
        raise ArgumentError("", "holds no result: its JSON is nested too deep") from error
    except ValueError as error:
        raise ArgumentError("", f"holds no result: it is no JSON: {error}") from error


def _checked(document: object) -> object:
    """The document, once its numbers are known to be such as floats and 64 bits hold."""
    left: list[tuple[str, object]] = [("", document)]
    while left:  # not by recursion: the reader has met what is nested as deep as it may be
        path, value = left.pop()
        if isinstance(value, float) and not math.isfinite(value):
            wanted = "wanted a number, or null where there is none"
            raise ArgumentError(path, f"found {value}, {wanted}")
        if isinstance(value, int) and abs(value) >= 2**64:
            raise ArgumentError(path, f"found an integer of {value.bit_length()} bits, wanted 64")
        if isinstance(value, dict):
            left += [(f"{path}.{key}" if path else key, item) for key, item in value.items()]
        elif isinstance(value, list):
            left += [(f"{path}[{index}]", item) for index, item in enumerate(value)]
    return document
