"""A sweep file that measures the same again, for sources that have none of their own."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from typing import Any

from acpc_client import CheckpointRef, ScoreRequest


def recipe(request: ScoreRequest) -> str:
    """The sweep file of one job, as JSON, which is YAML too; empty for an unknown shift."""
    if request.shift is None:
        return ""
    anchors = request.anchors
    protocol = _given(dataclasses.asdict(request.protocol))
    document: dict[str, Any] = {
        "checkpoints": [_named(request.checkpoint)],
        "anchors": {"set": anchors}
        if isinstance(anchors, str)
        else _given(dataclasses.asdict(anchors)),
        "shifts": [{request.shift.kind: dataclasses.asdict(request.shift)}],
        "seeds": [protocol.pop("seed", 0)],
        "protocol": protocol,
        "thresholds": _given(dataclasses.asdict(request.thresholds)),
        "numeric_mode": request.numeric_mode.name.lower(),
    }
    if request.reference is not None:
        document["reference"] = _named(request.reference)
    return again(document)


def again(document: Mapping[str, Any]) -> str:
    """The text of a sweep file without its name: under it the server would find the old jobs."""
    kept = {key: value for key, value in document.items() if key != "name"}
    return json.dumps(kept, indent=2, ensure_ascii=False)


def _named(checkpoint: CheckpointRef) -> dict[str, str]:
    named = {"name": checkpoint.name}
    return named | ({"weights": checkpoint.weights} if checkpoint.weights else {})


def _given(values: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in values.items() if value not in (None, (), [])}
