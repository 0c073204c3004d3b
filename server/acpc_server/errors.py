"""What the server rejects: the contract's errors (``acpc.contract.errors``), and some of its own.

Packages below ``rpc`` raise these and know nothing of gRPC: ``code`` is the status name, and
``rpc`` turns an error into a google.rpc.Status with BadRequest, ErrorInfo and RetryInfo.
``InvalidArgument(field, description)`` is the contract's ``ArgumentError``: each names its field.

    NotFound
    └── UnknownName      NOT_FOUND             a name of the caller's that nothing has
    FailedPrecondition
    └── UnsafeCheckpoint FAILED_PRECONDITION   a checkpoint folder that is not safe to read
    ResourceExhausted
    └── HostShortage     RESOURCE_EXHAUSTED    the host has no memory, threads or the like left
    Unavailable
    └── DeviceFailed     UNAVAILABLE           the device cannot be trusted; this server leaves
"""

from __future__ import annotations

import errno
import re
import sys
import threading
from collections.abc import Callable, Iterable, Sequence
from contextlib import nullcontext, suppress
from typing import TypeVar

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
    below,
    did_you_mean,
)
from acpc.contract import ArgumentError as InvalidArgument

__all__ = [
    "Aborted", "AcpcError", "AlreadyExists", "Cancelled", "DeadlineExceeded", "DeviceFailed",
    "FailedPrecondition", "FieldViolation", "HostShortage", "InvalidArgument", "NotFound",
    "PermissionDenied", "ResourceExhausted", "Unauthenticated", "Unavailable", "Unimplemented",
    "UnknownName", "UnsafeCheckpoint", "below", "only_one", "parsing", "shortage",
]  # fmt: skip

PARSES = 3  # before an error of Python's parser is believed
_PARSING = threading.Lock()
_MAX_SHOWN = 5
T = TypeVar("T")
_SHORT_OF = frozenset(
    {errno.ENOMEM, errno.EMFILE, errno.ENFILE, errno.EAGAIN, errno.ENOSPC, errno.EDQUOT, errno.EIO}
)
# What torch, oneDNN, C++ and Python say in a RuntimeError when they get no memory or no thread.
_SHORTAGE = re.compile(
    r"can't allocate memory|not enough memory|cannot allocate memory|std::bad_alloc"
    r"|could not create a (primitive|memory)|can't (start|create) new thread"
    r"|resource temporarily unavailable|out of memory",
    re.IGNORECASE,
)
_OF_OTHERS = re.compile("new thread|temporarily unavailable", re.IGNORECASE)


def only_one(name: str, candidates: Sequence[str], what: str, field: str) -> str | None:
    """Return the one candidate that begins with ``name``, or None; InvalidArgument for several."""
    if len(candidates) > 1:
        shown = ", ".join(candidates[:_MAX_SHOWN])
        more = f" and {len(candidates) - _MAX_SHOWN} more" if len(candidates) > _MAX_SHOWN else ""
        raise InvalidArgument(
            field, f"{name} is the beginning of several {what}: {shown}{more}; give more digits"
        )
    return candidates[0] if candidates else None


class UnknownName(NotFound):
    """Nothing has the name that a caller gave. Who may list the names gets the nearest ones.

    ``known`` lists the server's names; ``listed_by`` is the command for it.
    """

    def __init__(
        self, message: str, name: str, known: Callable[[], Iterable[str]], listed_by: str
    ) -> None:
        super().__init__(message)
        self._name = name
        self._known = known
        self._listed_by = listed_by

    def with_names(self) -> NotFound:
        """Return the error with the nearest names, and the command that lists all."""
        guess = ""
        with suppress(AcpcError, OSError):  # a root that cannot be read has no names
            guess = did_you_mean(self._name, self._known())
        listed = f"{self._listed_by} shows all"
        return NotFound("; ".join(filter(None, [self.message, " ".join([guess, listed]).strip()])))


class UnsafeCheckpoint(FailedPrecondition):
    """A checkpoint folder that is broken, unknown or unsafe to read. Nothing in it was executed."""

    default_reason = "CHECKPOINT_REFUSED"


class HostShortage(ResourceExhausted):
    """The host has no memory, threads or the like left; the request is not at fault.

    Of memory it may be: ``of_memory`` tells, as of a request or a job that is larger than the host.
    """

    default_reason = "HOST_SHORTAGE"
    of_memory = False


class DeviceFailed(Unavailable):
    """The device cannot be trusted any more; this server leaves, another one may answer."""

    default_reason = "DEVICE_FAILED"

    def __init__(self, why: str) -> None:
        super().__init__(f"this server restarts, because its device has failed: {why}")


def parsing(work: Callable[[], T]) -> T:
    """Call what parses Python: NumPy does for an array's header, torch for its derivatives.

    Threads of Python 3.11 that parse at once may get a SystemError: they share the count of how
    deep they are. There this keeps such work apart, and tries it again, for others parse too, such
    as whoever logs a traceback.
    """
    with _PARSING if sys.version_info < (3, 12) else nullcontext():
        for _ in range(PARSES - 1):
            with suppress(SystemError):
                return work()
        return work()


def shortage(error: BaseException) -> HostShortage | None:
    """The error to raise in place of ``error`` when the host is short of something; else None."""
    short = (
        isinstance(error, MemoryError)
        or (isinstance(error, OSError) and error.errno in _SHORT_OF)
        or (isinstance(error, RuntimeError) and _SHORTAGE.search(str(error)) is not None)
    )
    if not short:
        return None
    found = HostShortage(
        "the host is short of memory, threads, disk space or open files, or cannot read its disk; "
        "try again later",
        retry_after=1.0,
    )
    found.__cause__ = error
    number = error.errno if isinstance(error, OSError) else errno.ENOMEM
    words = str(error) if isinstance(error, RuntimeError) else ""
    found.of_memory = number == errno.ENOMEM and _OF_OTHERS.search(words) is None
    return found
