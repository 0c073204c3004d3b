"""Errors as google.rpc.Status with the standard details."""

from __future__ import annotations

import grpc
from google.protobuf import any_pb2, duration_pb2
from google.protobuf.message import Message
from google.rpc import error_details_pb2, status_pb2

from acpc_server.errors import AcpcError

DOMAIN = "acpc.v1"


def to_status(error: AcpcError, request_id: str) -> status_pb2.Status:
    """Status with ErrorInfo, RequestInfo and, where they apply, BadRequest and RetryInfo."""
    details: list[Message] = [
        error_details_pb2.ErrorInfo(reason=error.reason, domain=DOMAIN),
        error_details_pb2.RequestInfo(request_id=request_id),
    ]
    if error.violations:
        details.append(
            error_details_pb2.BadRequest(
                field_violations=[
                    error_details_pb2.BadRequest.FieldViolation(
                        field=violation.field, description=violation.description
                    )
                    for violation in error.violations
                ]
            )
        )
    if error.retry_after is not None:
        delay = duration_pb2.Duration()
        delay.FromNanoseconds(round(error.retry_after * 1e9))
        details.append(error_details_pb2.RetryInfo(retry_delay=delay))
    return plain_status(error.code, error.message, details)


def plain_status(code: str, message: str, details: list[Message]) -> status_pb2.Status:
    """Status from a code's name."""
    packed = []
    for detail in details:
        value = any_pb2.Any()
        value.Pack(detail)
        packed.append(value)
    number: int = grpc.StatusCode[code].value[0]
    return status_pb2.Status(code=number, message=message, details=packed)
