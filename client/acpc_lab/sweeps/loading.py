"""Loads sweep files: what is wrong in one is named with its line, its place and the fix."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from acpc_lab.extras import load
from acpc_lab.sweeps.reading import (
    Document,
    SweepFileError,
    Wrong,
    as_value,
    found,
    joined,
    read_document,
)

if TYPE_CHECKING:
    from pydantic_core import ErrorDetails

    from acpc_lab.sweeps.spec import SweepSpec

# What should stand where pydantic found another kind of value.
_WANTED = {
    "string_type": "text; put it in quotes",
    "string_too_short": "text",
    "string_pattern_mismatch": "up to 100 letters, digits, dots, dashes or spaces",
    "bool_type": "true or false",
    "int_type": "a whole number",
    "int_from_float": "a whole number",
    "tuple_type": "a list with at least one item",
    "too_short": "a list with at least one item",
    "dict_type": "a mapping",
    "literal_error": "one of {expected}",
    "greater_than_equal": "a whole number from {ge}",
    "less_than_equal": "a whole number up to {le}",
    "less_than": "a whole number below {lt}",
}


def example(file: Path) -> str:
    """Returns the commented sweep file that ``acpc init`` writes."""
    text = Path(__file__).with_name("example.yaml").read_text(encoding="utf-8")
    return text.format(file=file.name, name=file.stem)


def load_spec(file: Path) -> SweepSpec:
    """Reads a sweep file.

    Raises SweepFileError: The file cannot be run as it is; names the line, the place and the fix.
    """
    return _checked(read_document(file), file.stem, file.parent)


def folder_of(file: Path, spec: SweepSpec) -> Path:
    """Returns where the sweep of a file keeps its plan, journal and scores."""
    return file.with_name(f"{spec.name}.sweep")


def read_spec(document: Mapping[str, Any], default_name: str, beside: Path) -> SweepSpec:
    """Reads a sweep from plain values; files that it names are relative to ``beside``.

    Raises SweepFileError: The document cannot be run as it is; names the place and the fix.
    """
    return _checked(Document(document), default_name, beside)


def _checked(source: Document, default_name: str, beside: Path) -> SweepSpec:
    pydantic = load("pydantic")
    from acpc_lab.sweeps.spec import SweepSpec  # noqa: PLC0415 - loads pydantic

    given = source.value
    if isinstance(given, Mapping):
        given = {"name": default_name, **given}
    try:
        spec = SweepSpec.model_validate(given, context={"beside": beside})
    except pydantic.ValidationError as error:
        raise _refused(source, error.errors()[0]) from error
    spec.bind(source)
    for group in spec.groups:
        if group.anchors is None:
            words = "lacks anchors; write them here or at the top of the file"
            raise source.error(group.place, words)
    return spec


def _refused(source: Document, detail: ErrorDetails) -> SweepFileError:
    path = ""
    for part in detail["loc"]:
        if part != "[key]":
            path = joined(path, f"[{part}]" if isinstance(part, int) else str(part))
    value, context = detail["input"], detail.get("ctx", {})
    cause = context.get("error")
    if isinstance(cause, Wrong):
        words = re.search(r"found '([^']*)', wanted (float|a number)", str(cause))
        as_text = words and isinstance(as_value(words[1]), int | float)
        hint = "; YAML reads 1e-3 as text, write 1.0e-3" if as_text else ""
        return source.error(joined(path, cause.at), f"{cause}{hint}")
    if isinstance(cause, ValueError):
        return source.error(path, str(cause))
    if "expected" in context:
        context = {"expected": re.sub(" or ", ", ", context["expected"]).replace("'", "")}
    wanted = _WANTED.get(detail["type"], detail["msg"]).format(**context)
    value = list(value) if isinstance(value, tuple) else value
    return source.error(path, str(found(value, wanted)))
