"""Checks documents of results against the published JSON Schema."""

import json
from pathlib import Path
from typing import Any

import jsonschema

FILE = Path(__file__).resolve().parents[2] / "docs/schemas/result-1.json"
_VALIDATOR = jsonschema.Draft202012Validator(json.loads(FILE.read_bytes()))


def checked(document: Any) -> dict[str, Any]:  # noqa: ANN401 - whatever was written
    """The document, or the text of one, which is as the schema says; raises ValidationError."""
    found: dict[str, Any] = json.loads(document) if isinstance(document, str) else document
    _VALIDATOR.validate(found)
    return found
