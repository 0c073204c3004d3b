"""Everything a call can raise. No ``grpc.RpcError`` ever reaches the caller.

The tree is the contract's (``acpc.contract.errors``); of the client alone are

FailedPrecondition
├── ClientClosed     FAILED_PRECONDITION  a call on a closed client
└── SessionClosed    FAILED_PRECONDITION  a pool for a planning session that is not open
Internal
└── MalformedAnswer  INTERNAL             an answer this client cannot read
RunEnded
└── ServerAway       UNAVAILABLE          the server was away for longer than the caller's patience
"""

# ruff: noqa: I001 - one name a line is too long
from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

import grpc
from acpc.contract import (
    Aborted, AcpcError, AlreadyExists, ArgumentError, Cancelled, DataLoss, DeadlineExceeded,
    FailedPrecondition, FieldViolation, Internal, InvalidArgument, NotFound, OutOfRange,
    PermissionDenied, ResourceExhausted, Unauthenticated, Unavailable, Unimplemented, Unknown,
)  # fmt: skip

if TYPE_CHECKING:
    from google.rpc import status_pb2

__all__ = [
    "Aborted", "AcpcError", "AlreadyExists", "ArgumentError", "Cancelled", "ClientClosed",
    "DataLoss", "DeadlineExceeded", "FailedPrecondition", "FieldViolation", "Internal",
    "InvalidArgument", "MalformedAnswer", "NotFound", "OutOfRange", "PermissionDenied",
    "ResourceExhausted", "RunEnded", "ServerAway", "SessionClosed",
    "Unauthenticated", "Unavailable", "Unimplemented", "Unknown", "extended", "from_rpc_error",
    "from_status", "passing",
]  # fmt: skip

_CLASSES = {
    cls.code: cls for cls in AcpcError.__subclasses__() if cls.__module__ == AcpcError.__module__
}
# What the caller can set here, which the server does not know.
_HINTS = {
    "UNAUTHENTICATED": "give a token (token=, ACPC_TOKEN_FILE or ACPC_API_KEY) or a client "
    "certificate (tls=, ACPC_CLIENT_CERTIFICATE)"
}
_DETAILS_KEY = "grpc-status-details-bin"


class ClientClosed(FailedPrecondition):
    """A call on a client that was closed."""

    default_reason = ""


class SessionClosed(FailedPrecondition):
    """A pool for a planning session that was not entered yet, or has ended."""

    default_reason = ""


class MalformedAnswer(Internal):
    """The server's answer breaks the contract, so no number was taken from it."""

    default_reason = ""


class RunEnded(AcpcError):
    """A wait that ends before what it waits for; nothing is lost at the server."""


class ServerAway(RunEnded, Unavailable):
    """The server was away for too long, or none ever answered.

    Attributes:
        why: The cause in a few words, for example ``"connection refused"``.
        sent: Whether a request may have reached the server; False where no connection came about.
    """

    default_reason = "SERVER_AWAY"

    def __init__(self, message: str, *, why: str, request_id: str = "", sent: bool = True) -> None:
        super().__init__(message, request_id=request_id)
        self.why = why
        self.sent = sent


def passing(error: AcpcError) -> bool:
    """Whether the same call may succeed later, with nothing changed but the time."""
    busy = isinstance(error, ResourceExhausted | Aborted) and error.retry_after is not None
    return busy or isinstance(error, Unavailable | DeadlineExceeded)


def extended(error: AcpcError, words: str) -> AcpcError:
    """The error itself, with more words at the end of its message."""
    error.message = f"{error.message}; {words}"
    error.args = (error.message,)
    return error


_NAMES: dict[int, str] = {status.value[0]: status.name for status in grpc.StatusCode}


def from_status(status: status_pb2.Status) -> AcpcError:
    """The error that a ``google.rpc.Status`` stands for."""
    return _build(_NAMES.get(status.code, "UNKNOWN"), status.message, status, request_id="")


def from_rpc_error(error: grpc.RpcError, request_id: str = "") -> AcpcError:
    """The error behind a failed RPC, sync or asyncio, with the details the server attached."""
    from google.protobuf.message import DecodeError  # noqa: PLC0415 - only where a call failed
    from google.rpc import status_pb2  # noqa: PLC0415

    status = status_pb2.Status()
    metadata: Any = error.trailing_metadata()
    for key, value in metadata or ():
        if key == _DETAILS_KEY:
            with contextlib.suppress(DecodeError):  # a proxy may mangle them; the code still stands
                status = status_pb2.Status.FromString(value)
    code, message = error.code().name, error.details() or status.message
    if code == "CANCELLED" and message in ("", code) and not status.details:
        # The server gives reasons; without one, the connection was given up, and the call with it.
        code, message = "UNAVAILABLE", "the server dropped the call, as one that is stopping does"
    return _build(code, message, status, request_id)


def _build(code: str, message: str, status: status_pb2.Status, request_id: str) -> AcpcError:
    from google.rpc import error_details_pb2  # noqa: PLC0415 - only where a call failed

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
    message = message or f"the server answered {code} without a message"
    return _CLASSES.get(code, Unknown)(
        "; ".join(filter(None, (message, _HINTS.get(code)))),
        reason=info.reason,
        domain=info.domain,
        violations=tuple(FieldViolation(v.field, v.description) for v in request.field_violations),
        retry_after=retry_after,
        request_id=request_info.request_id or request_id,
    )
