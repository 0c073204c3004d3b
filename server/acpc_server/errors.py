"""What the server rejects: the contract's errors (``acpc.contract.errors``), and one of its own.

Packages below ``rpc`` raise these and know nothing of gRPC: ``code`` is the status name, and
``rpc`` turns an error into a google.rpc.Status with BadRequest, ErrorInfo and RetryInfo.
``InvalidArgument(field, description)`` is the contract's ``ArgumentError``: each names its field.

    FailedPrecondition
    └── UnsafeCheckpoint FAILED_PRECONDITION   a checkpoint folder that is not safe to read
"""

from __future__ import annotations

from acpc.contract import (
    Aborted,
    AcpcError,
    AlreadyExists,
    Cancelled,
    DeadlineExceeded,
    FailedPrecondition,
    FieldViolation,
    NotFound,
    PermissionDenied,
    ResourceExhausted,
    Unauthenticated,
    Unavailable,
    Unimplemented,
)
from acpc.contract import (
    ArgumentError as InvalidArgument,
)

__all__ = [
    "Aborted",
    "AcpcError",
    "AlreadyExists",
    "Cancelled",
    "DeadlineExceeded",
    "FailedPrecondition",
    "FieldViolation",
    "InvalidArgument",
    "NotFound",
    "PermissionDenied",
    "ResourceExhausted",
    "Unauthenticated",
    "Unavailable",
    "Unimplemented",
    "UnsafeCheckpoint",
]


class UnsafeCheckpoint(FailedPrecondition):
    """A checkpoint folder that is broken, unknown or unsafe to read. Nothing in it was executed."""

    default_reason = "CHECKPOINT_REFUSED"
