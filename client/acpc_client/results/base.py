"""Reads the parts of a message that answers share."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from google.protobuf import duration_pb2, timestamp_pb2


def optional(message: Any, field: str) -> Any:  # noqa: ANN401 - any message
    """The field's value, or None when it is absent."""
    return getattr(message, field) if message.HasField(field) else None


def seconds(duration: duration_pb2.Duration) -> float:
    """A Duration in seconds."""
    return duration.seconds + duration.nanos * 1e-9


def moment(message: Any, field: str) -> datetime | None:  # noqa: ANN401 - any message
    """A timestamp field in UTC, or None when it is absent."""
    stamp: timestamp_pb2.Timestamp | None = optional(message, field)
    return None if stamp is None else stamp.ToDatetime(tzinfo=UTC)
