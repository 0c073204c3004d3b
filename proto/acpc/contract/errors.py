"""The errors of the service, each with its gRPC status; client and server raise the same ones."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from copyreg import __newobj__  # type: ignore[attr-defined]
from dataclasses import asdict, dataclass
from typing import ClassVar


@dataclass(frozen=True)
class FieldViolation:
    """A field of the request and why it is rejected."""

    field: str
    description: str


class AcpcError(Exception):
    """Base of every error of the service.

    Attributes:
        code: Name of the gRPC status.
        message: What is wrong and how to mend it.
        reason: UPPER_SNAKE_CASE constant for programs; None when raised: the class's default;
            empty when the server gave none.
        domain: Who defined ``reason``; empty on the side that raises.
        violations: The request fields at fault.
        retry_after: Seconds after which the same call may succeed; None when unknown.
        request_id: Names the request in the server's logs; empty when it had no id.
        job: The job that ended with it; empty for the error of a call.
    """

    code: ClassVar[str] = "UNKNOWN"
    default_reason: ClassVar[str] = ""
    job: str = ""

    def __init_subclass__(cls, *, code: str = "", reason: str = "") -> None:
        if code:
            cls.code, cls.default_reason = code, reason or code

    def __init__(
        self,
        message: str,
        *,
        reason: str | None = None,
        domain: str = "",
        violations: tuple[FieldViolation, ...] = (),
        retry_after: float | None = None,
        request_id: str = "",
    ) -> None:
        super().__init__(message)
        self.message = message
        self.reason = self.default_reason if reason is None else reason
        self.domain = domain
        self.violations = violations
        self.retry_after = retry_after
        self.request_id = request_id

    def __reduce__(self) -> tuple[object, ...]:
        """Pickles the error for a process pool, whatever the arguments of its class."""
        return __newobj__, (type(self), *self.args), vars(self)

    def to_dict(self) -> dict[str, object]:
        """Plain values, ready for JSON."""
        return {
            "code": self.code,
            "message": self.message,
            "reason": self.reason,
            "domain": self.domain,
            "violations": [asdict(violation) for violation in self.violations],
            "retry_after": self.retry_after,
            "request_id": self.request_id,
        }


class InvalidArgument(AcpcError, code="INVALID_ARGUMENT", reason="INVALID_FIELD"):
    """The request can never work, whatever the state of the server."""


class ArgumentError(InvalidArgument, ValueError):
    """One field that can never work: rejected by the client before it is sent, or by the server.

    Args:
        field: Path of the request field at fault, for example ``"history.shape"``.
        description: What is wrong with it, with the value found and the value wanted.
        reason: UPPER_SNAKE_CASE constant for programs.
    """

    def __init__(self, field: str, description: str, *, reason: str | None = None) -> None:
        super().__init__(
            f"{field}: {description}",
            reason=reason,
            violations=(FieldViolation(field, description),),
        )
        self.field = field
        self.description = description

    def below(self, parent: str) -> ArgumentError:
        """The same error with ``parent`` put before the field path."""
        return ArgumentError(joined(parent, self.field), self.description, reason=self.reason)

    def moved(self, old: str, new: str) -> ArgumentError:
        """The same error with the field path's head ``old`` replaced by ``new``."""
        head, dot, rest = self.field.partition(".")
        path = f"{new}{dot}{rest}" if head == old else self.field
        return ArgumentError(path, self.description, reason=self.reason)


@contextmanager
def below(parent: str) -> Iterator[None]:
    """Puts ``parent`` before the field path of an ArgumentError that the block raises."""
    try:
        yield
    except ArgumentError as error:
        raise error.below(parent) from error


def joined(parent: str, field: str) -> str:
    """A field's path; either part may be empty, and an index follows without a dot."""
    dot = "." if parent and field and not field.startswith("[") else ""
    return f"{parent}{dot}{field}"


class NotFound(AcpcError, code="NOT_FOUND"):
    """The named resource does not exist."""


class AlreadyExists(AcpcError, code="ALREADY_EXISTS", reason="REQUEST_ID_REUSED"):
    """The request id belongs to a different request."""


class FailedPrecondition(AcpcError, code="FAILED_PRECONDITION"):
    """The resource exists, but not in a state the call can use."""


class PermissionDenied(AcpcError, code="PERMISSION_DENIED", reason="PATH_OUTSIDE_ROOT"):
    """The caller may not do this, for example leave the configured root."""


class Unauthenticated(AcpcError, code="UNAUTHENTICATED"):
    """The caller gave no valid credentials."""


class ResourceExhausted(AcpcError, code="RESOURCE_EXHAUSTED", reason="LIMIT_EXCEEDED"):
    """Over a limit, or no room at the moment."""


class DeadlineExceeded(AcpcError, code="DEADLINE_EXCEEDED"):
    """The deadline passed; a call that would be late is RESOURCE_EXHAUSTED when it arrives."""


class Cancelled(AcpcError, code="CANCELLED"):
    """The call or the job was withdrawn."""


class Aborted(AcpcError, code="ABORTED", reason="CONCURRENT_CALL"):
    """Another call is doing this right now."""


class OutOfRange(AcpcError, code="OUT_OF_RANGE"):
    """The call went past the end of something."""


class Unavailable(AcpcError, code="UNAVAILABLE", reason="DRAINING"):
    """There is no server at the target, or it is draining."""


class Unimplemented(AcpcError, code="UNIMPLEMENTED", reason="NOT_IN_THIS_RELEASE"):
    """The server's release does not have this method."""


class DataLoss(AcpcError, code="DATA_LOSS"):
    """The server lost data."""


class Internal(AcpcError, code="INTERNAL"):
    """A fault of the server."""


class Unknown(AcpcError, code="UNKNOWN"):
    """A status without a class of its own."""
