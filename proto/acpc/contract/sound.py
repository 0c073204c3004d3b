"""Checks that the numbers of a score from elsewhere are such as a measurement gives."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from acpc.contract.errors import ArgumentError
from acpc.contract.evidence import EvidenceOptions
from acpc.contract.fields import bounds_of, check
from acpc.contract.plain import to_plain
from acpc.contract.scores import AnchorValues, Score

LARGEST = 1e150
"""Magnitude that no measurement reaches; the square of a larger number may overflow."""


def check_score(score: Score) -> None:
    """Raises ArgumentError with the path of the first number that no measurement gives."""
    check(score.verdict.thresholds, "answer.verdict.thresholds")
    if score.evidence is not None:
        found, range_ = score.evidence.confidence, bounds_of(EvidenceOptions)["confidence"]
        if not range_.holds(found):
            wanted = f"found {found}, wanted {range_.wanted(whole=False)}"
            raise ArgumentError("answer.evidence.confidence", wanted)
    to_plain(score, _check_float, "answer")
    for name, side in {"checkpoint": score.checkpoint, "reference": score.reference}.items():
        if side and side.anchor_values:
            _check_values(side.anchor_values, f"answer.{name}.anchor_values")


def _check_float(value: Any, path: str) -> Any:
    if isinstance(value, float) and LARGEST < abs(value) < math.inf:
        raise ArgumentError(path, f"found {value}, wanted a magnitude of at most {LARGEST:g}")
    return value


def _check_values(values: AnchorValues, path: str) -> None:
    count = len(values.anchor_ids)
    for name, found in vars(values).items():
        if not isinstance(found, np.ndarray):
            continue
        if len(found) != count:
            wanted = f"wanted {count}, as many as anchor_ids"
            raise ArgumentError(f"{path}.{name}", f"found {len(found)} entries, {wanted}")
        wrong, wanted = ~(np.abs(found) <= LARGEST), f"a finite number of at most {LARGEST:g}"
        if name == "partner":
            wrong, wanted = (found < -1) | (found >= count), "an index of an anchor, or -1"
        elif name == "different_state_distance":
            wrong, wanted = np.abs(found) > LARGEST, f"{wanted}, or NaN where skipped"
        for place in np.argwhere(wrong)[:1].tolist():
            at = "".join(f"[{index}]" for index in place)
            bad = found[tuple(place)]
            raise ArgumentError(f"{path}.{name}{at}", f"found {bad}, wanted {wanted}")
