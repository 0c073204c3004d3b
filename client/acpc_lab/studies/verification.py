"""Is a bundle what it says? Digest of every file, and every number computed again."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from acpc_client import Record
from acpc_client.errors import ArgumentError

from acpc_lab.studies import bundle
from acpc_lab.studies.bundle import Bundle

TOLERANCE = 1e-9
"""Relative difference that another machine's linear algebra may make."""
NOTHING = 1e-12
"""Absolute difference that counts as none, for numbers that are zero but for rounding."""


@dataclass(frozen=True, repr=False, eq=False)
class Verification(Record):
    """What came out.

    Attributes:
        digest: Of the study, as its manifest has it.
        files: Files whose digests were compared.
        values: Values of the summary that were compared.
        largest_difference: Largest relative difference of two numbers that count as equal.
        difference: The first thing that is not as it should be; None when all is.
    """

    study: str
    digest: str
    files: int
    values: int
    largest_difference: float
    difference: str | None


def verify(folder: Path) -> Verification:
    """Compares every file with its digest and every number with one computed from the rows.

    Raises:
        ArgumentError: The folder holds no bundle.
    """
    held = bundle.read(folder)
    files = held.files | held.figures  # type: ignore[operator]
    difference = next(_files(folder, files), None)
    values, largest = 0, 0.0
    if difference is None:
        try:
            values, largest, difference = _numbers(held)
        except ArgumentError as error:
            difference = f"the summary cannot be computed from the rows: {error.message}"
    return Verification(held.study.name, held.digest, len(files), values, largest, difference)


def _files(folder: Path, files: dict[str, str]) -> Iterator[str]:
    for name, wanted in files.items():
        path = folder / name
        if not path.is_file():
            yield f"{name} is missing"
        elif (found := bundle.digest_of(path)) != wanted:
            yield f"{name} has the SHA-256 {found}, where {bundle.MANIFEST} has {wanted}"


def _numbers(held: Bundle) -> tuple[int, float, str | None]:
    """Values compared, the largest difference that passes, and the first that does not."""
    if bundle.SUMMARY not in held.files:
        return 0, 0.0, f"{bundle.MANIFEST} names no {bundle.SUMMARY}"
    try:
        written = json.loads((held.folder / bundle.SUMMARY).read_bytes())
    except ValueError as error:
        return 0, 0.0, f"{bundle.SUMMARY} is not JSON: {error}"
    computed = held.evidence().summary.to_dict()
    largest, count = 0.0, 0
    for count, (path, found, wanted) in enumerate(_pairs("", written, computed), start=1):
        gap = _gap(found, wanted)
        if gap > TOLERANCE:
            return (
                count,
                largest,
                (
                    f"{bundle.SUMMARY}, {path}: found {_shown(found)}, where the rows give "
                    f"{_shown(wanted)}"
                ),
            )
        largest = max(largest, gap)
    return count, largest, None


_ABSENT = object()


def _pairs(path: str, found: Any, wanted: Any) -> Iterator[tuple[str, Any, Any]]:  # noqa: ANN401
    """Every leaf of two JSON values, side by side."""
    match found, wanted:
        case dict(), dict():
            for key in wanted | found:
                name = f"{path}.{key}" if path else key
                yield from _pairs(name, found.get(key, _ABSENT), wanted.get(key, _ABSENT))
        case list(), list() if len(found) == len(wanted):
            for index, (left, right) in enumerate(zip(found, wanted, strict=True)):
                yield from _pairs(f"{path}[{index}]", left, right)
        case _:
            yield path, found, wanted


def _gap(found: Any, wanted: Any) -> float:  # noqa: ANN401 - any JSON value
    """Relative difference of two numbers; 0 or infinity for anything else."""
    numbers = [isinstance(value, int | float) for value in (found, wanted)]
    flags = [isinstance(value, bool) for value in (found, wanted)]
    if all(numbers) and not any(flags):
        apart = abs(float(found) - float(wanted))
        return apart / max(abs(found), abs(wanted)) if apart > NOTHING else 0.0
    return 0.0 if type(found) is type(wanted) and found == wanted else math.inf


def _shown(value: Any) -> str:  # noqa: ANN401 - any JSON value
    if value is _ABSENT:
        return "nothing"
    text = json.dumps(value)
    return text if len(text) <= 60 else f"{text[:57]}..."
