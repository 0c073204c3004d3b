"""Fields whose default the reading of the paper's protocol decides."""

from __future__ import annotations

import dataclasses
import enum
from typing import Any, TypeVar

from acpc.contract.enums import Reading
from acpc.contract.fields import Bounds
from acpc.contract.plain import to_plain

R = TypeVar("R")


def reading_field() -> Any:
    """The dataclass field ``reading``, which decides those of ``follows``."""
    return dataclasses.field(default=Reading.SERVER_DEFAULT, metadata={"paper": Reading.PAPER})


def follows(*, paper: object, released: object, bounds: Bounds | None = None) -> Any:
    """A dataclass field that is open unless it is given: 0 of an enum, otherwise None.

    ``resolved`` gives it the value of the record's reading.
    """
    default = type(paper)(0) if isinstance(paper, enum.IntEnum) else None
    values = {"paper": paper, "released": released}
    ranges = {} if bounds is None else {"bounds": bounds}
    return dataclasses.field(default=default, metadata={**values, **ranges})


def resolved(record: R, fallback: Reading = Reading.PAPER) -> R:
    """The record with its reading, ``fallback`` where it is open, and what follows it decided."""
    reading = record.reading or fallback  # type: ignore[attr-defined]
    values = {
        f.name: f.metadata[reading.name.lower()]
        for f in dataclasses.fields(record)  # type: ignore[arg-type]
        if "released" in f.metadata and _is_open(getattr(record, f.name))
    }
    return dataclasses.replace(record, reading=reading, **values)  # type: ignore[type-var]


def _is_open(value: object) -> bool:
    return value is None or (isinstance(value, enum.IntEnum) and not value)


def digested(record: Any) -> dict[str, Any]:
    """What the digest of a resolved record's parameters holds: its plain values, as JSON.

    A field that a later release added, which its metadata's ``paper`` says, is left out where it
    has that value: digests of different releases can be compared.
    """
    plain: dict[str, Any] = to_plain(record)
    for f in dataclasses.fields(record):
        if "paper" in f.metadata and getattr(record, f.name) == f.metadata["paper"]:
            del plain[f.metadata.get("json", f.name)]
    return plain
