"""Resolves file names from callers below a root folder."""

import stat
from pathlib import Path, PurePosixPath

from acpc_server.errors import FailedPrecondition, InvalidArgument, NotFound, PermissionDenied


def resolve_below(root: Path, name: str, *, field: str) -> Path:
    """The regular file ``name`` below ``root``.

    The root itself may be a link, for it is the operator's; nothing below it may be.

    Raises:
        InvalidArgument: ``name`` is empty or holds a NUL or a backslash.
        PermissionDenied: ``name`` is absolute, has a ``.`` or ``..`` part, or passes a link.
        NotFound: There is no such file.
        FailedPrecondition: It is not a regular file.
    """
    if not name or "\0" in name or "\\" in name:
        raise InvalidArgument(field, f"is {name!r}; give a file path relative to the server's root")
    parts = name.split("/")
    if PurePosixPath(name).is_absolute() or any(part in ("", ".", "..") for part in parts):
        raise PermissionDenied(
            f"{field} {name!r} must be a plain relative path, without '.', '..' or empty parts"
        )
    path = root
    for part in parts:
        path = path / part
        try:
            mode = path.lstat().st_mode
        except (FileNotFoundError, NotADirectoryError) as error:
            raise NotFound(f"{field} {name!r} does not exist") from error
        except OSError as error:
            raise FailedPrecondition(
                f"{field} {name!r} cannot be read: {error.strerror}"
            ) from error
        if stat.S_ISLNK(mode):
            raise PermissionDenied(f"{field} {name!r} passes the symbolic link {part!r}")
    if not stat.S_ISREG(mode):
        raise FailedPrecondition(f"{field} {name!r} is not a regular file")
    return path
