"""What a call is before anything is sent."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from acpc.contract import ArgumentError, NumericMode

from acpc_client.calls.options import CallOptions
from acpc_client.errors import MalformedAnswer
from acpc_client.inputs import CheckpointRef, DatasetAnchors
from acpc_client.results import AnchorSet

Answer = TypeVar("Answer")


@dataclass(frozen=True)
class Method:
    """One method of the contract.

    Attributes:
        stub: Generated stub class of its service.
        name: Its name there.
        timeout: Default deadline in seconds.
        idempotent: Whether sending it twice does what sending it once does.
    """

    stub: Callable[[Any], Any]
    name: str
    timeout: float
    idempotent: bool = True


@dataclass(frozen=True)
class Call(Generic[Answer]):
    """A request ready to be sent, as often as the retries need.

    Attributes:
        method: Where it goes.
        request: The message; it carries one request id through all attempts.
        parse: Turns the response message into the answer.
        request_id: The id, for errors; empty for methods without one.
    """

    method: Method
    request: Any
    parse: Callable[[Any], Answer]
    request_id: str = ""

    def read(self, answer: object) -> Answer:
        """The typed answer of a response message.

        Raises:
            MalformedAnswer: The response breaks the contract.
        """
        if answer is None:  # what grpc.aio yields for bytes that are no such message
            raise MalformedAnswer(f"the answer of {self.method.name} cannot be read")
        try:
            return self.parse(answer)
        except ArgumentError as error:
            raise MalformedAnswer(str(error)) from error


@dataclass(frozen=True)
class Page(Generic[Answer]):
    """One page of a list."""

    items: tuple[Answer, ...]
    next_token: str


def identity(request_id: str | None) -> str:
    """The caller's request id, or a fresh one."""
    return request_id or str(uuid.uuid4())


def reference(checkpoint: str | CheckpointRef) -> Any:  # noqa: ANN401 - a generated message
    """The message for a checkpoint named either way."""
    return CheckpointRef.of(checkpoint).to_message()


def call_fields(checkpoint: str | CheckpointRef, options: CallOptions) -> dict[str, Any]:
    """The fields of every computing request: request id, checkpoint and numeric mode."""
    mode = options.get("numeric_mode", NumericMode.SERVER_DEFAULT)
    return {
        "request_id": identity(options.get("request_id")),
        "checkpoint": reference(checkpoint),
        "numeric_mode": mode.wire,
    }


def job_fields(
    checkpoint: str | CheckpointRef, anchors: DatasetAnchors | AnchorSet | str, options: CallOptions
) -> dict[str, Any]:
    """The fields of every job: those of a call, and where anchors come from.

    A text as ``anchors`` is the digest of a set.
    """
    fields = call_fields(checkpoint, options)
    if isinstance(anchors, DatasetAnchors):
        return {**fields, "dataset": anchors.to_message()}
    return {**fields, "anchor_set": anchors if isinstance(anchors, str) else anchors.digest}
