"""Writes the JSON Schema of results from the dataclasses: ``python docs/schemas/generate.py``."""

from __future__ import annotations

import enum
import inspect
import json
import re
import types
import typing
from collections.abc import Mapping
from dataclasses import MISSING, fields, is_dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np
from acpc.contract import Receipt, ScoreRequest, StudyRequest
from acpc_client import Operation
from acpc_client.results.documents import KINDS, SCHEMA, VERSION

FILE = Path(__file__).with_name(f"result-{VERSION}.json")
Schema = dict[str, Any]
_PLAIN = {bool: "boolean", int: "integer", str: "string", types.NoneType: "null"}
_ABOVE = ("request", "receipt")


def schema() -> Schema:
    """The schema of every kind of result."""
    defined: dict[str, Schema] = {}
    asked = {
        "score": _nullable(_of(ScoreRequest, defined)),
        "sweep_cell": _of(ScoreRequest, defined),
        "study": _nullable(_of(StudyRequest, defined)),
    }
    answers = {kind: _record(cls, defined, _ABOVE) for kind, cls in KINDS.items()}
    for name in ("score", "study"):
        defined[f"{KINDS[name].__name__}Answer"] = answers[name]
    answers["operation"] = _operation(defined)
    del defined["Score"], defined["StudyResult"]  # their answers alone are in documents
    answers |= _of_the_lab()
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": f"urn:{SCHEMA}:{VERSION}",
        "title": "A result of acpc: what was asked, what was answered, and from what",
        "type": "object",
        "properties": {
            "schema": {"const": SCHEMA},
            "schema_version": {"const": VERSION},
            "kind": {"enum": list(answers)},
            "operation": {"type": ["string", "null"], "description": "Name of the job."},
            "time": {
                "type": ["string", "null"],
                "format": "date-time",
                "description": "When the job ended, or the call was answered.",
            },
            "request": {"type": ["object", "null"]},
            "answer": {"type": "object"},
            "receipt": _nullable(_of(Receipt, defined)),
        },
        "required": [
            "schema", "schema_version", "kind", "operation", "time", "request", "answer", "receipt",
        ],
        "allOf": [_when(kind, answer, asked.get(kind)) for kind, answer in answers.items()],
        "$defs": defined,
    }  # fmt: skip


def _when(kind: str, answer: Schema, request: Schema | None) -> Schema:
    then = {"answer": answer} | ({"request": request} if request else {})
    return {"if": {"properties": {"kind": {"const": kind}}}, "then": {"properties": then}}


def _operation(defined: dict[str, Schema]) -> Schema:
    """A job as it is, with its answer: what stands above the answer stands above this too."""
    found = _record(Operation, defined, _ABOVE)
    for name in ("score", "study"):
        answer = {"$ref": f"#/$defs/{KINDS[name].__name__}Answer"}
        found["properties"][name] = _nullable(answer)
    return found


def _of_the_lab() -> dict[str, Schema]:
    """Kinds whose answer is plain values."""
    cell = {
        "cell": {
            "type": "string",
            "description": "Its id, which names the file of its score.",
        },
        "labels": {"type": "object", "description": "What the sweep file says of the checkpoint."},
        "state": {"type": "string"},
        "attempt": {"type": "integer"},
        "error": {"type": ["object", "null"]},
        "score": _nullable({"$ref": "#/$defs/ScoreAnswer"}),
    }
    among = {
        "type": ["object", "null"],
        "description": "How sure the verdict is, by itself (alone) and among all cells (outcome), "
        "with adjusted p-values; null for a reference.",
    }
    sweep = {
        "name": {"type": "string"},
        "description": {"type": "string"},
        "counts": {"type": "object", "additionalProperties": {"type": "integer"}},
        "inconsistencies": {"type": "array", "items": {"type": "string"}},
        "cells": {
            "type": "array",
            "items": {"allOf": [{"$ref": "#"}, {"properties": {"kind": {"const": "sweep_cell"}}}]},
        },
    }
    method = {
        "type": "object",
        "description": "How confident verdicts are corrected for the number of cells.",
    }
    cell["family_wise"], sweep["family_wise"] = among, method
    limits = {
        "type": "array",
        "items": {"type": "object"},
        "description": "Up to which severity each checkpoint passes, as of the kind limit.",
    }
    return {
        "sweep_cell": {"type": "object", "properties": cell, "required": list(cell)},
        "sweep": {
            "type": "object",
            "properties": {**sweep, "limits": limits},
            "required": list(sweep),
        },
        "study_summary": {"type": "object", "description": "Every number of the summary."},
    }


def _nullable(found: Schema) -> Schema:
    return {"anyOf": [found, {"type": "null"}]}


def _of(hint: Any, defined: dict[str, Schema]) -> Schema:  # noqa: ANN401 - a type hint
    origin, inner = typing.get_origin(hint), typing.get_args(hint)
    found: Schema = {}
    if origin is typing.Annotated:
        found = _of(inner[0], defined)
    elif origin in (types.UnionType, typing.Union):
        found = {"anyOf": [_of(part, defined) for part in inner]}
    elif origin is np.ndarray:
        found = {"type": "array", "description": "An array as nested lists; null is NaN."}
    elif origin is tuple:
        found = {"type": "array", "items": _of(inner[0], defined)}
    elif origin is not None and issubclass(origin, Mapping):
        found = {"type": "object", "additionalProperties": _of(inner[1], defined)}
    elif hint in _PLAIN:
        found = {"type": _PLAIN[hint]}
    elif hint is float:
        found = {"type": ["number", "null"]}
    elif is_dataclass(hint):
        name = hint.__name__  # type: ignore[union-attr]
        if name not in defined:
            defined[name] = {}
            defined[name] = _record(hint, defined, ())
        found = {"$ref": f"#/$defs/{name}"}
    elif isinstance(hint, type) and issubclass(hint, enum.Enum):
        found = {"enum": [member.name.lower() for member in hint]}
    elif hint is datetime:
        found = {"type": "string", "format": "date-time"}
    elif hint is not Any:  # an error
        found = {"type": "object"}
    return found


def _record(cls: Any, defined: dict[str, Schema], without: tuple[str, ...]) -> Schema:  # noqa: ANN401
    """An object with a property per field; those that have a default may be absent."""
    hints = typing.get_type_hints(cls, include_extras=True)
    about, properties, required = _documented(cls), {}, []
    if isinstance(getattr(cls, "kind", None), str):
        properties["kind"] = {"const": cls.kind}
        required.append("kind")
    for field in fields(cls):
        if field.name in without:
            continue
        name = field.metadata.get("json", field.name)
        properties[name] = _of(hints[field.name], defined)
        if field.name in about:
            properties[name] = {**properties[name], "description": about[field.name]}
        if field.default is MISSING and field.default_factory is MISSING:
            required.append(name)
    summary = (inspect.getdoc(cls) or "").partition("\n")[0]
    return {
        "type": "object",
        "description": summary.replace("``", ""),
        "properties": properties,
        "required": required,
    }


def _documented(cls: type[Any]) -> dict[str, str]:
    """What the docstrings of a class and its bases say of each attribute."""
    told: dict[str, str] = {}
    for base in reversed(cls.__mro__):
        _, _, section = inspect.cleandoc(base.__doc__ or "").partition("Attributes:\n")
        for name, text in re.findall(r"^    (\w+): (.+(?:\n {8,}.+)*)", section, re.MULTILINE):
            told[name] = " ".join(text.replace("``", "").split())
    return told


def text() -> str:
    """The content of the file."""
    return json.dumps(schema(), indent=1) + "\n"


if __name__ == "__main__":
    FILE.write_text(text())
