"""Reads the files that say who may call, and rejects those that others could read or change."""

from __future__ import annotations

import os
import shlex
from pathlib import Path

from acpc_server.errors import FailedPrecondition

# Far above any file of keys or certificates; a large revocation list has a few MiB.
MAX_FILE_BYTES = 64 * 1024 * 1024


def read_public(path: Path) -> bytes:
    """The bytes of a file that decides who may call, but holds no secret.

    Raises:
        FailedPrecondition: It cannot be read, or everyone may write it.
    """
    data, status = _read(path)
    if status.st_mode & 0o002:
        raise _exposed(path, status, "decides who may call and can be changed by anyone", "o-w")
    return data


def read_secret(path: Path) -> bytes:
    """The bytes of a file that holds a secret.

    A group may read the file when root owns it and this process is not root: so do Kubernetes
    (``fsGroup``) and Debian (``ssl-cert``) hand a secret to one service.

    Raises:
        FailedPrecondition: It cannot be read, or others than its owner can; names the command
            that mends it.
    """
    data, status = _read(path)
    group, others = status.st_mode & 0o070, status.st_mode & 0o007
    handed = status.st_uid == 0 != os.geteuid() and group == 0o040
    if others or (group and not handed):
        raise _exposed(path, status, "holds a secret that others can read or change", "600")
    return data


def _exposed(path: Path, status: os.stat_result, what: str, mode: str) -> FailedPrecondition:
    return FailedPrecondition(
        f"{path} {what} (mode {status.st_mode & 0o777:04o}); run: "
        f"chmod {mode} {shlex.quote(str(path))}",
        reason="FILE_EXPOSED",
    )


def _read(path: Path) -> tuple[bytes, os.stat_result]:
    try:
        with path.open("rb") as file:
            status = os.fstat(file.fileno())
            data = file.read(MAX_FILE_BYTES + 1)
    except OSError as error:
        raise FailedPrecondition(f"cannot read {path} ({error.strerror})") from error
    if len(data) > MAX_FILE_BYTES:
        raise FailedPrecondition(f"{path} is larger than {MAX_FILE_BYTES} bytes")
    return data, status
