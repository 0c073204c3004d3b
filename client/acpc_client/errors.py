"""Everything a call can raise. No ``grpc.RpcError`` ever reaches the caller.

AcpcError
├── InvalidArgument     INVALID_ARGUMENT     the request can never work; see ``violations``
│   └── ArgumentError   INVALID_ARGUMENT     refused here, before anything was sent
├── NotFound            NOT_FOUND            no such checkpoint, dataset, anchor set, operation
├── AlreadyExists       ALREADY_EXISTS       the request id was used for another request
├── FailedPrecondition  FAILED_PRECONDITION  the named thing exists but cannot be used
│   ├── ClientClosed    FAILED_PRECONDITION  a call on a closed client
│   └── SessionClosed   FAILED_PRECONDITION  a pool for a planning session that is not open
├── PermissionDenied    PERMISSION_DENIED    a path that leaves its configured root
├── Unauthenticated     UNAUTHENTICATED      no valid credentials
├── ResourceExhausted   RESOURCE_EXHAUSTED   over a limit; ``retry_after`` when it may pass later
├── DeadlineExceeded    DEADLINE_EXCEEDED    not done in time
├── Cancelled           CANCELLED            the call or the job was withdrawn
├── Aborted             ABORTED              lost against a concurrent change
├── OutOfRange          OUT_OF_RANGE         past the end
├── Unavailable         UNAVAILABLE          no server, or it is draining
├── Unimplemented       UNIMPLEMENTED        not in the server's release
├── DataLoss            DATA_LOSS            unrecoverable loss at the server
├── Internal            INTERNAL             a fault of the server
│   └── MalformedAnswer INTERNAL             an answer this client cannot read
└── Unknown             UNKNOWN              a status without a class of its own
"""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from typing import Any, ClassVar

import grpc
from google.protobuf.message import DecodeError
from google.rpc import error_details_pb2, status_pb2

_DETAILS_KEY = "grpc-status-details-bin"


@dataclass(frozen=True)
class FieldViolation:
    """One field of the request and what is wrong with it."""

    field: str
    description: str


class AcpcError(Exception):
    """Base of every error of this package.

    Attributes:
        code: Name of the gRPC status.
        message: What is wrong and how to mend it.
        reason: UPPER_SNAKE_CASE constant for programs; empty when the server gave none.
        domain: Who defined ``reason``.
        violations: The request fields at fault.
        retry_after: Seconds after which the same call may succeed; None when unknown.
        request_id: Names the request in the server's logs; empty when it had no id.
    """

    code: ClassVar[str] = "UNKNOWN"

    def __init__(
        self,
        message: str,
        *,
        reason: str = "",
        domain: str = "",
        violations: tuple[FieldViolation, ...] = (),
        retry_after: float | None = None,
        request_id: str = "",
    ) -> None:
        super().__init__(message)
        self.message = message
        self.reason = reason
        self.domain = domain
        self.violations = violations
        self.retry_after = retry_after
        self.request_id = request_id

    def to_dict(self) -> dict[str, Any]:
        """Plain values, ready for JSON."""
        return {
            "code": self.code,
            "message": self.message,
            "reason": self.reason,
            "domain": self.domain,
            "violations": [
                {"field": v.field, "description": v.description} for v in self.violations
            ],
            "retry_after": self.retry_after,
            "request_id": self.request_id,
        }


class InvalidArgument(AcpcError):
    """The request can never work, whatever the state of the server."""

    code = "INVALID_ARGUMENT"


class ArgumentError(InvalidArgument, ValueError):
    """An argument refused here, before anything was sent.

    Args:
        argument: Name of the argument at fault.
        description: What is wrong with it, with the value found and the value wanted.
    """

    def __init__(self, argument: str, description: str) -> None:
        super().__init__(
            f"{argument}: {description}",
            reason="INVALID_FIELD",
            violations=(FieldViolation(argument, description),),
        )
        self.argument = argument


class NotFound(AcpcError):
    """The named resource does not exist."""

    code = "NOT_FOUND"


class AlreadyExists(AcpcError):
    """The request id belongs to a different request."""

    code = "ALREADY_EXISTS"


class FailedPrecondition(AcpcError):
    """The resource exists, but not in a state the call can use."""

    code = "FAILED_PRECONDITION"


class ClientClosed(FailedPrecondition):
    """A call on a client that was closed."""


class SessionClosed(FailedPrecondition):
    """A pool for a planning session that was not entered yet, or has ended."""


class PermissionDenied(AcpcError):
    """The caller may not do this."""

    code = "PERMISSION_DENIED"


class Unauthenticated(AcpcError):
    """The caller gave no valid credentials."""

    code = "UNAUTHENTICATED"


class ResourceExhausted(AcpcError):
    """Over a limit, or no room at the moment."""

    code = "RESOURCE_EXHAUSTED"


class DeadlineExceeded(AcpcError):
    """The call did not finish, or could not have finished, before its deadline."""

    code = "DEADLINE_EXCEEDED"


class Cancelled(AcpcError):
    """The call or the job was withdrawn."""

    code = "CANCELLED"


class Aborted(AcpcError):
    """The call lost against a concurrent change."""

    code = "ABORTED"


class OutOfRange(AcpcError):
    """The call went past the end of something."""

    code = "OUT_OF_RANGE"


class Unavailable(AcpcError):
    """There is no server at the target, or it is draining."""

    code = "UNAVAILABLE"


class Unimplemented(AcpcError):
    """The server's release does not have this method."""

    code = "UNIMPLEMENTED"


class DataLoss(AcpcError):
    """The server lost data."""

    code = "DATA_LOSS"


class Internal(AcpcError):
    """A fault of the server."""

    code = "INTERNAL"


class MalformedAnswer(Internal):
    """The server's answer breaks the contract, so no number was taken from it."""


class Unknown(AcpcError):
    """A status without a class of its own."""


_CLASSES: dict[str, type[AcpcError]] = {
    cls.code: cls
    for cls in (
        InvalidArgument, NotFound, AlreadyExists, FailedPrecondition, PermissionDenied,
        Unauthenticated, ResourceExhausted, DeadlineExceeded, Cancelled, Aborted, OutOfRange,
        Unavailable, Unimplemented, DataLoss, Internal, Unknown,
    )
}  # fmt: skip
_NAMES: dict[int, str] = {status.value[0]: status.name for status in grpc.StatusCode}


def from_status(status: status_pb2.Status, request_id: str = "") -> AcpcError:
    """The error that a ``google.rpc.Status`` stands for."""
    return _build(_NAMES.get(status.code, "UNKNOWN"), status.message, status, request_id)


def from_rpc_error(error: grpc.RpcError, request_id: str = "") -> AcpcError:
    """The error behind a failed RPC, sync or asyncio, with the details the server attached."""
    status = status_pb2.Status()
    metadata: Any = error.trailing_metadata()
    for key, value in metadata or ():
        if key == _DETAILS_KEY:
            with contextlib.suppress(DecodeError):  # a proxy may mangle them; the code still stands
                status = status_pb2.Status.FromString(value)
    return _build(error.code().name, error.details() or status.message, status, request_id)


def _build(code: str, message: str, status: status_pb2.Status, request_id: str) -> AcpcError:
    info = error_details_pb2.ErrorInfo()
    request = error_details_pb2.BadRequest()
    retry = error_details_pb2.RetryInfo()
    request_info = error_details_pb2.RequestInfo()
    retry_after: float | None = None
    for detail in status.details:
        detail.Unpack(info)
        detail.Unpack(request)
        detail.Unpack(request_info)
        if detail.Unpack(retry):
            retry_after = retry.retry_delay.seconds + retry.retry_delay.nanos * 1e-9
    return _CLASSES.get(code, Unknown)(
        message or f"the server answered {code} without a message",
        reason=info.reason,
        domain=info.domain,
        violations=tuple(FieldViolation(v.field, v.description) for v in request.field_violations),
        retry_after=retry_after,
        request_id=request_info.request_id or request_id,
    )
