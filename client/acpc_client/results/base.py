"""Reads the parts of a message that answers share."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any, TypeVar

from acpc.contract import ArgumentError, Wire
from google.protobuf import timestamp_pb2

from acpc_client.errors import MalformedAnswer

Answer = TypeVar("Answer", bound=Wire[Any])


def read_answer(answer: type[Answer], message: Any) -> Answer:  # noqa: ANN401 - the answer's message
    """The answer that a message stands for.

    Raises:
        MalformedAnswer: The message breaks the contract.
    """
    try:
        return answer.from_message(message)
    except ArgumentError as error:
        raise MalformedAnswer(str(error)) from error


def optional(message: Any, field: str) -> Any:  # noqa: ANN401 - any message
    """The field's value, or None when it is absent."""
    return getattr(message, field) if message.HasField(field) else None


def moment(message: Any, field: str) -> datetime | None:  # noqa: ANN401 - any message
    """A timestamp field in UTC, or None when it is absent."""
    stamp: timestamp_pb2.Timestamp | None = optional(message, field)
    return None if stamp is None else stamp.ToDatetime(tzinfo=UTC)
