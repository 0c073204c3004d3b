"""Everything the server refuses, and the status each refusal has on the wire.

    AcpcError
    ├── InvalidArgument      INVALID_ARGUMENT      the request can never work; names each field
    ├── NotFound             NOT_FOUND             no such checkpoint, dataset, operation
    ├── AlreadyExists        ALREADY_EXISTS        the request id was used for another request
    ├── Aborted              ABORTED               another call is at it; try again shortly
    ├── FailedPrecondition   FAILED_PRECONDITION   the named thing exists but cannot be used
    │   └── UnsafeCheckpoint FAILED_PRECONDITION   a checkpoint folder we refuse to read
    ├── PermissionDenied     PERMISSION_DENIED     a path that leaves its configured root
    ├── ResourceExhausted    RESOURCE_EXHAUSTED    over a limit; may say when to retry
    ├── DeadlineExceeded     DEADLINE_EXCEEDED     cannot, or did not, finish in time
    ├── Cancelled            CANCELLED             the caller withdrew the request
    ├── Unavailable          UNAVAILABLE           draining; try another replica
    └── Unimplemented        UNIMPLEMENTED         in the contract, not in this release

Rooms below ``rpc`` raise these and know nothing of gRPC: ``code`` is the status name, and ``rpc``
turns it into a google.rpc.Status with BadRequest, ErrorInfo and RetryInfo.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar


@dataclass(frozen=True)
class FieldViolation:
    """One field of the request and what is wrong with it."""

    field: str
    description: str


class AcpcError(Exception):
    """Base of every error the server answers on purpose.

    Args:
        message: One sentence that says what is wrong and how to mend it.
        reason: UPPER_SNAKE_CASE constant for programs; the class's default when omitted.
        violations: The request fields at fault.
        retry_after: Seconds after which the same call may succeed.
    """

    code: ClassVar[str]
    default_reason: ClassVar[str]

    def __init__(
        self,
        message: str,
        *,
        reason: str | None = None,
        violations: tuple[FieldViolation, ...] = (),
        retry_after: float | None = None,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.reason = reason or self.default_reason
        self.violations = violations
        self.retry_after = retry_after


class InvalidArgument(AcpcError):
    """The request can never work, whatever the state of the server.

    Args:
        field: Path of the request field at fault, for example ``"history.shape"``.
        description: What is wrong with it, with the value found and the value wanted.
    """

    code = "INVALID_ARGUMENT"
    default_reason = "INVALID_FIELD"

    def __init__(self, field: str, description: str, *, reason: str | None = None) -> None:
        super().__init__(
            f"{field}: {description}",
            reason=reason,
            violations=(FieldViolation(field, description),),
        )
        self.field = field
        self.description = description

    def below(self, parent: str) -> InvalidArgument:
        """The same error with ``parent`` put before the field path."""
        path = f"{parent}.{self.field}" if self.field else parent
        return InvalidArgument(path, self.description, reason=self.reason)

    def moved(self, old: str, new: str) -> InvalidArgument:
        """The same error with the field path's head ``old`` replaced by ``new``."""
        head, dot, rest = self.field.partition(".")
        path = f"{new}{dot}{rest}" if head == old else self.field
        return InvalidArgument(path, self.description, reason=self.reason)


class NotFound(AcpcError):
    """The named resource does not exist."""

    code = "NOT_FOUND"
    default_reason = "NOT_FOUND"


class AlreadyExists(AcpcError):
    """The request id belongs to a different request."""

    code = "ALREADY_EXISTS"
    default_reason = "REQUEST_ID_REUSED"


class Aborted(AcpcError):
    """Another call is doing this right now."""

    code = "ABORTED"
    default_reason = "CONCURRENT_CALL"


class FailedPrecondition(AcpcError):
    """The resource exists, but not in a state the call can use."""

    code = "FAILED_PRECONDITION"
    default_reason = "FAILED_PRECONDITION"


class UnsafeCheckpoint(FailedPrecondition):
    """A checkpoint folder that is broken, unknown or unsafe to read. Nothing in it was executed."""

    default_reason = "CHECKPOINT_REFUSED"


class PermissionDenied(AcpcError):
    """A path that leaves the configured root."""

    code = "PERMISSION_DENIED"
    default_reason = "PATH_OUTSIDE_ROOT"


class ResourceExhausted(AcpcError):
    """Over a limit, or no room at the moment."""

    code = "RESOURCE_EXHAUSTED"
    default_reason = "LIMIT_EXCEEDED"


class DeadlineExceeded(AcpcError):
    """The call cannot finish, or has not finished, before its deadline."""

    code = "DEADLINE_EXCEEDED"
    default_reason = "DEADLINE_EXCEEDED"


class Cancelled(AcpcError):
    """The caller withdrew the request."""

    code = "CANCELLED"
    default_reason = "CANCELLED"


class Unavailable(AcpcError):
    """The server is draining."""

    code = "UNAVAILABLE"
    default_reason = "DRAINING"


class Unimplemented(AcpcError):
    """In the contract, not in this release."""

    code = "UNIMPLEMENTED"
    default_reason = "NOT_IN_THIS_RELEASE"
