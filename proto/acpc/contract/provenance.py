"""Where an answer came from and where its time went."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import field
from datetime import UTC, datetime, timedelta
from typing import Annotated, Any

from acpc.contract.enums import NumericMode
from acpc.contract.errors import ArgumentError
from acpc.contract.messages import Codec, Wire
from acpc.contract.record import Record
from acpc.v1 import receipt_pb2


def _load_object(held: str, *, strict: bool) -> dict[str, object]:
    try:
        found = json.loads(held or "{}")
    except ValueError as error:
        raise ArgumentError("", f"is no JSON: {error}") from error
    if not isinstance(found, dict):
        raise ArgumentError("", "is no JSON object")
    return found


def _dump_object(values: Mapping[str, object]) -> str:
    return json.dumps(values, sort_keys=True, separators=(",", ":")) if values else ""


class Receipt(Record, Wire[receipt_pb2.Receipt]):
    checkpoint_digest: str
    reference_digest: str
    anchors_digest: str
    perturbation_digest: str
    parameters_digest: str
    code_version: str
    numeric_mode: NumericMode
    device: str
    torch_version: str
    image_codec: str
    parameters: Annotated[Mapping[str, Any], Codec(_load_object, _dump_object)] = field(
        default_factory=dict
    )
    model_digest: str = ""
    reference_model_digest: str = ""
    weights_read: str = ""
    reference_weights_read: str = ""
    program: str = ""


class Timing(Record, Wire[receipt_pb2.Timing], eq=True):
    queue: float = 0.0
    compute: float = 0.0
    total: float = 0.0


def moment(seconds: float) -> datetime:
    """A time in seconds since 1970 as answers hold it: in UTC, to the millisecond."""
    return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=round(seconds * 1000))
