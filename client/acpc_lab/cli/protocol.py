"""``--protocol``: how something is measured, as a YAML file, as the same text inline, or a word."""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Annotated, Any

import typer
from acpc.contract import Reading, Wire, did_you_mean, field_from_plain
from acpc_client import Thresholds, load_thresholds
from acpc_client.errors import ArgumentError

from acpc_lab.cli import render
from acpc_lab.cli.command import Keys

READINGS = [str(reading) for reading in Reading if reading]
ProtocolOption = Annotated[
    str | None,
    typer.Option(
        metavar="FILE",
        help="How it is measured, by the keys below: a YAML file, the same text inline as '{...}' "
        f"or, where they have a reading, its name ({', '.join(READINGS)}) [paper].",
    ),
]


def keys_of(record: type[Any], names: Iterable[str], section: str = "") -> Keys:
    """Keys that are called as the fields of a record."""
    return {f"{section}.{name}".lstrip("."): (record, name) for name in names}


def read_protocol(text: str | None, keys: Keys) -> dict[str, Any]:
    """Reads the option: the values by key, those of a section by their field.

    Raises ArgumentError: No file, no such key, or a value that does not fit.
    """
    if text is None:
        return {}
    readings = [key.rpartition(".")[0] for key in keys if key.rpartition(".")[2] == "reading"]
    if text in READINGS and readings:
        found: Any = {"reading": text}
        return _read({readings[0]: found} if readings[0] else found, keys, Path())
    from acpc_lab.sweeps import as_document, read_document  # noqa: PLC0415  slow to import

    try:
        inline = text.lstrip().startswith("{")
        document = as_document(text) if inline else read_document(Path(text))
        try:
            return _read(document.value, keys, Path() if inline else Path(text).parent)
        except ArgumentError as error:
            raise document.error(error.field, error.description) from error
    except ArgumentError as error:
        place = "" if error.field == "sweep file" else f"{error.field}: "
        wrong = f"{'' if inline else f'{text}: '}{place}{error.description}"
        raise ArgumentError("--protocol", wrong) from error


def _read(held: object, keys: Keys, beside: Path, section: str = "") -> dict[str, Any]:
    if not isinstance(held, Mapping):
        wrong = (
            f"found {held!r}, wanted a mapping" if section else f"wanted the keys {', '.join(keys)}"
        )
        raise ArgumentError(section, wrong)
    read: dict[str, Any] = {}
    sections = set() if section else {key.partition(".")[0] for key in keys if "." in key}
    for name, item in held.items():
        key = f"{section}.{name}".lstrip(".")
        if name in sections and name == "thresholds" and isinstance(item, str):
            read[name] = calibrated(beside / item)
        elif name in sections:
            reading = name == "protocol" and isinstance(item, str)
            read[name] = _read({"reading": item} if reading else item, keys, beside, name)
        elif key in keys:
            record, field = keys[key]
            plain = tuple(item) if isinstance(item, list) else item
            read[name] = (
                field_from_plain(record, field, item) if issubclass(record, Wire) else plain
            )
        else:
            known = [one.rpartition(".")[2] for one in keys if one.rpartition(".")[0] == section]
            known += sorted(sections)
            near = did_you_mean(str(name), known, f"known keys: {', '.join(known)}")
            raise ArgumentError(key, f"unknown key; {near}")
    return read


def calibrated(path: Path) -> Thresholds:
    """The thresholds that a study wrote, with their warnings on stderr."""
    try:
        chosen = load_thresholds(path)
    except ArgumentError as error:
        raise ArgumentError("thresholds", error.description) from error
    render.notes(chosen.warnings, f"warning: {path}")
    return chosen.thresholds
