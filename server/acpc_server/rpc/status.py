"""Errors as google.rpc.Status with the standard details."""

from __future__ import annotations

import grpc
from google.protobuf import any_pb2, duration_pb2
from google.protobuf.message import Message
from google.rpc import error_details_pb2, status_pb2

from acpc_server.errors import AcpcError

DOMAIN = "acpc.v1"
# A status travels in trailers, of which a client takes 8 KiB. The message goes twice, once with
# every byte beyond ASCII written as three, and callers' own text may be quoted in it.
MAX_TEXT_BYTES = 1024
MAX_FIELD_BYTES = 256


def to_status(error: AcpcError, identity: str) -> status_pb2.Status:
    """Make a status with ErrorInfo, RequestInfo and, where they apply, BadRequest and RetryInfo."""
    details: list[Message] = [
        error_details_pb2.ErrorInfo(reason=error.reason, domain=DOMAIN),
        error_details_pb2.RequestInfo(request_id=identity),
    ]
    if error.violations:
        fields = [
            error_details_pb2.BadRequest.FieldViolation(
                field=_clipped(violation.field, MAX_FIELD_BYTES),
                description=_clipped(violation.description, MAX_TEXT_BYTES),
            )
            for violation in error.violations
        ]
        details.append(error_details_pb2.BadRequest(field_violations=fields))
    if error.retry_after is not None:
        delay = duration_pb2.Duration()
        delay.FromNanoseconds(round(error.retry_after * 1e9))
        details.append(error_details_pb2.RetryInfo(retry_delay=delay))
    return plain_status(error.code, error.message, details)


def plain_status(code: str, message: str, details: list[Message]) -> status_pb2.Status:
    """Make a status from a code's name; a message too long for the trailers is cut."""
    packed = [any_pb2.Any() for _ in details]
    for value, detail in zip(packed, details, strict=True):
        value.Pack(detail)
    number: int = grpc.StatusCode[code].value[0]
    text = _clipped(message, MAX_TEXT_BYTES)
    return status_pb2.Status(code=number, message=text, details=packed)


def _clipped(text: str, limit: int) -> str:
    data = text.encode("utf-8", "replace")
    if len(data) <= limit:
        return text
    return data[: limit - 3].decode("utf-8", "ignore") + "..."
