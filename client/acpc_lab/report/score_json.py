"""Reads the JSON of a score, as ``acpc score --output score.json`` writes it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
from acpc_client import Score
from acpc_client.errors import ArgumentError
from numpy.typing import NDArray

from acpc_lab.tables import decode

_KINDS: dict[str, type[np.generic]] = {
    "anchor_ids": np.int64,
    "radius": np.float64,
    "motion_scale": np.float64,
    "different_state_distance": np.float64,
    "partner": np.int64,
    "draw_radius": np.float64,
    "step_radius": np.float64,
}


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
                kind = _KINDS.get(name)
                if kind is not None and found is not None:
                    values[name] = f"{side}.{name}"
                    arrays[values[name]] = np.array(found, kind)  # None becomes NaN
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise ArgumentError("source", f"{path} holds no score: {error!r}") from error
    score: Score = decode(Score, document, arrays)
    return score
