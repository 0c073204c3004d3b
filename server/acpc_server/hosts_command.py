"""acpc-server hosts: who is on a job record. Needs no running server."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from acpc_server.errors import FailedPrecondition
from acpc_server.jobs import RECORD_ERRORS, Hosts, Record, first_line


def hosts(
    jobs_url: Annotated[
        str,
        typer.Option(
            help="database of the job record; default: SQLite in the state folder",
            envvar="ACPC_JOBS_URL",
        ),
    ] = "",
    state_dir: Annotated[
        Path, typer.Option(help="the server's state folder", envvar="ACPC_STATE_DIR")
    ] = Path("acpc-state"),
) -> None:
    """List the servers on a job record: since when, version, device and running jobs.

    A server that stopped stays until another one notices; one that was killed, until its lease
    ends. The record is only read. Exit code 1 when it cannot be.
    """
    file = state_dir / "jobs.sqlite"
    if not jobs_url and not file.is_file():
        raise FailedPrecondition(f"there is no job record {file}; see --jobs-url and --state-dir")
    record = Record(jobs_url or f"sqlite:///{file.resolve()}")
    try:
        found = sorted(Hosts(record).read().items())
    except RECORD_ERRORS as error:
        raise FailedPrecondition(f"cannot read the job record ({first_line(error)})") from error
    finally:
        record.close()
    table = Table("server", "since", "version", "device", "jobs", box=None)
    for name, host in found:
        about = json.loads(host.about)
        running = str(len(json.loads(host.running))) if host.session else "stopped"
        table.add_row(
            name, *(about.get(key, "?") for key in ("since", "version", "device")), running
        )
    Console(markup=False, emoji=False, soft_wrap=True).print(table)
