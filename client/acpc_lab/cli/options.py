"""Options that every command has, the exit codes, and the connection."""

from __future__ import annotations

import enum
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer
from acpc_client import CHOICES, AcpcClient, Perturbation, Tls, parse, parse_grid
from acpc_client.errors import AcpcError, ArgumentError

from acpc_lab.cli import render
from acpc_lab.tables import FORMATS


class Exit(enum.IntEnum):
    """Exit codes of ``acpc``."""

    OK = 0
    ERROR = 1
    USAGE = 2
    SCREEN_FAILED = 3
    NOT_CERTIFIED = 3
    JOB_ENDED_BADLY = 4
    INTERRUPTED = 130


_PANEL = "Server"
Target = Annotated[
    str,
    typer.Option(
        envvar="ACPC_TARGET", metavar="HOST:PORT", help="The server.", rich_help_panel=_PANEL
    ),
]
Timeout = Annotated[
    float | None,
    typer.Option(
        min=0.001,
        metavar="SECONDS",
        help="Deadline of each call; where the command waits for a job, of the wait.",
        rich_help_panel=_PANEL,
    ),
]
TlsCa = Annotated[
    Path | None,
    typer.Option(
        exists=True,
        dir_okay=False,
        help="PEM file of the certificate authority; turns TLS on.",
        rich_help_panel=_PANEL,
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON on stdout instead of a table.")]


def _has_folder(path: Path | None) -> Path | None:
    if path is not None and not path.parent.is_dir():
        raise typer.BadParameter(f"the folder {path.parent} does not exist")
    return path


def score_format(path: Path | None) -> Path | None:
    """The path, once its suffix is known to be one that a score can be written as."""
    if path is not None and path.suffix not in FORMATS:
        wanted = ", ".join(FORMATS)
        raise typer.BadParameter(f"found {path.name!r}, wanted a name ending in one of {wanted}")
    return _has_folder(path)


ScoreOutput = Annotated[
    Path | None,
    typer.Option(
        dir_okay=False,
        writable=True,
        callback=score_format,
        help="Also write the score here: .json to read; .npz or .parquet to load again exactly.",
    ),
]
_SHIFT = f"The visual change: {', '.join(CHOICES)}."
Shift = Annotated[str, typer.Option(metavar="KIND:SEVERITY", help=_SHIFT)]
Shifts = Annotated[
    list[str],
    typer.Option(
        "--shift",
        metavar="KIND:SEVERITY",
        help=f"{_SHIFT} A grid: KIND:A,B,C or KIND:FIRST..LAST/COUNT. May be repeated.",
    ),
]


def read_shift(text: str) -> Perturbation:
    """The perturbation that ``--shift`` names.

    Raises:
        typer.BadParameter: It names none; the message lists the choices.
    """
    try:
        return parse(text)
    except ArgumentError as error:
        raise typer.BadParameter(error.violations[0].description, param_hint="--shift") from error


def read_grid(texts: Sequence[str]) -> list[Perturbation]:
    """The perturbations of every ``--shift``: ``kind:a,b,c`` or ``kind:a..b/count`` names several.

    Raises:
        typer.BadParameter: One names none; the message lists the choices.
    """
    try:
        return [shift for text in texts for shift in parse_grid(text)]
    except ArgumentError as error:
        raise typer.BadParameter(error.violations[0].description, param_hint="--shift") from error


@contextmanager
def reported() -> Iterator[None]:
    """What is raised within is printed and becomes an exit code."""
    try:
        yield
    except ArgumentError as error:
        render.error(error)
        raise typer.Exit(Exit.USAGE) from error
    except AcpcError as error:
        render.error(error)
        raise typer.Exit(Exit.ERROR) from error


@contextmanager
def connect(target: str, timeout: float | None, tls_ca: Path | None) -> Iterator[AcpcClient]:
    """A client for one command; what it raises is printed and becomes an exit code."""
    with reported():
        tls = None if tls_ca is None else Tls(ca_file=tls_ca)
        with AcpcClient(target, tls=tls, timeout=timeout) as client:
            yield client
