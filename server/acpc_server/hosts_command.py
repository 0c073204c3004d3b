"""acpc-server hosts: who is on a job record. Needs no running server."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Annotated

import typer

from acpc_server.errors import FailedPrecondition
from acpc_server.jobs import RECORD_ERRORS, Hosts, Record, first_line
from acpc_server.listing import Printed, print_list
from acpc_server.settings import sqlite_url


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
    printed: Printed = "table",
) -> None:
    """List the servers on a job record: since when, version, device and running jobs.

    A server that stopped stays until another one notices; one that was killed, until its lease
    ends. The record is only read. Exit code 1 when it cannot be.
    """
    file = state_dir / "jobs.sqlite"
    if not jobs_url and not file.is_file():
        raise FailedPrecondition(f"there is no job record {file}; see --jobs-url and --state-dir")
    try:
        record = Record(jobs_url or sqlite_url(file))
    except (*RECORD_ERRORS, ValueError, ImportError) as error:
        raise FailedPrecondition(f"--jobs-url: no database's URL ({first_line(error)})") from error
    try:
        found = sorted(Hosts(record).read().items())
        jobs = Counter(record.held().values())
    except RECORD_ERRORS as error:
        raise FailedPrecondition(f"cannot read the job record ({first_line(error)})") from error
    finally:
        record.close()
    records = []
    for name, host in found:
        about = json.loads(host.about)
        facts = {key: about.get(key) for key in ("since", "version", "device")}
        records.append({"server": name, **facts, "jobs": jobs[name] if host.session else None})
    columns = dict.fromkeys(("server", "since", "version", "device"), lambda fact: fact or "?")
    counts = {"jobs": lambda count: "stopped" if count is None else str(count)}
    print_list(records, columns | counts, printed)
