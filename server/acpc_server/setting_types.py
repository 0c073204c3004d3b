"""Types of settings: folders, files, names of hosts and of Unix sockets."""

from __future__ import annotations

import os
import re
from contextlib import suppress
from pathlib import Path
from typing import Annotated

from pydantic import AfterValidator, BeforeValidator
from pydantic_settings import NoDecode
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


def _split(value: object) -> object:
    given = [value] if isinstance(value, str) else value
    if not isinstance(given, list):
        return value
    return [part.strip() for text in given for part in str(text).split(",") if part.strip()]


def _socket(address: str) -> str:
    """The path of ``unix:/path`` or ``unix:///path``."""
    found = re.fullmatch(r"unix:(?://)?(/[^/].*)", address)
    if found is None:
        raise ValueError(
            f"found {address!r}, wanted unix: and an absolute path, as unix:/run/acpc/acpc.sock; "
            "--host and --port are for TCP"
        )
    if unfit := re.findall(r"[%?#]", found[1]):
        raise ValueError(f"{found[1]} has a {unfit[0]}, which means something else in an address")
    size = len(os.fsencode(found[1]))
    if size > PATH_BYTES:
        raise ValueError(f"{found[1]} has {size} bytes; a socket's path has {PATH_BYTES}")
    return os.path.normpath(found[1])


def _named_once(value: tuple[str, ...]) -> tuple[str, ...]:
    sockets = tuple(f"unix:{_socket(address)}" for address in value)
    if len(set(sockets)) < len(sockets):
        raise ValueError("a socket is named twice")
    return sockets


# In a variable and in one flag with commas between, in several flags, or as an array of the file.
Sockets = Annotated[tuple[str, ...], NoDecode, BeforeValidator(_split), AfterValidator(_named_once)]
Host = Annotated[str, AfterValidator(_host)]
Folder = Annotated[Path, AfterValidator(_folder)]
File = Annotated[Path, AfterValidator(_file)]
