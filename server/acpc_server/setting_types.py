"""Types of settings: folders, files, and names of hosts."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path
from typing import Annotated

from pydantic import AfterValidator
from sqlalchemy.engine import URL, make_url

from acpc_server.errors import FailedPrecondition

# Longest path of a socket.
PATH_BYTES = 107


def _folder(path: Path) -> Path:
    if not os.path.isdir(path):  # noqa: PTH112 - Path.is_dir raises of a name that is too long
        raise ValueError(f"{_shown(path)} is not a folder")
    return path.resolve()


def _file(path: Path) -> Path:
    if not os.path.isfile(path):  # noqa: PTH113
        raise ValueError(f"{_shown(path)} is not a file")
    return path


def _shown(path: Path) -> str:
    """A path as text that any error may hold: bytes that are no UTF-8 are escaped."""
    return str(path).encode(errors="backslashreplace").decode()


def _host(name: str) -> str:
    if name.startswith("unix:"):
        if len(os.fsencode(name.removeprefix("unix:"))) > PATH_BYTES:
            raise ValueError(f"the path of a socket has at most {PATH_BYTES} bytes")
        return name
    try:
        name.encode("idna")
    except UnicodeError:
        raise ValueError(f"found {name!a}, wanted the name or the address of a host") from None
    return name


def sqlite_url(file: Path) -> str:
    """The URL of a database in a file, whose path may hold what means something in a URL.

    Raises FailedPrecondition: One that a URL cannot tell: no UTF-8, or ? before SQLAlchemy 2.1.
    """
    path, url = str(file.resolve()), ""
    with suppress(UnicodeEncodeError):
        url = URL.create("sqlite", database=path).render_as_string()
    if not url or make_url(url).database != path:
        raise FailedPrecondition(
            f"no URL can tell the path of the job record, {_shown(file)}; choose another "
            "--state-dir"
        )
    return url


Host = Annotated[str, AfterValidator(_host)]
Folder = Annotated[Path, AfterValidator(_folder)]
File = Annotated[Path, AfterValidator(_file)]
