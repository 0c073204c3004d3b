"""Reads the JSON of a score, as ``acpc score --output score.json`` writes it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, get_type_hints

import numpy as np
from numpy.typing import NDArray

from acpc_client.downloads.plain import decode
from acpc_client.errors import ArgumentError
from acpc_client.results import AnchorValues, Score

_WHOLE = {"anchor_ids", "partner"}


def read_score_json(path: Path) -> Score:
    """The score; null among numbers is NaN.

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
        for side in ("checkpoint", "reference"):
            values = (document[side] or {}).get("anchor_values") or {}
            for name, found in values.items():
                values[name] = f"{side}.{name}"
                arrays[values[name]] = _array(name, found)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise ArgumentError("source", f"{path} holds no score: {error!r}") from error
    score: Score = decode(Score, document, arrays)
    return score


def _array(name: str, found: list[Any]) -> NDArray[Any]:
    if name in _WHOLE:
        return np.array(found, np.int64)
    hint = str(get_type_hints(AnchorValues).get(name, ""))
    if "float" in hint:
        return np.array(found, np.float64)  # None becomes NaN
    return np.array(found)
