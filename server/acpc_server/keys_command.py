"""acpc-server keys: makes, lists and revokes API keys. Needs no running server."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Annotated, Literal

import typer
from acpc.console import Console
from rich.table import Table

from acpc_server.access import Role, create_key, read_keys, revoke_key, set_certificate_role

keys = typer.Typer(
    no_args_is_help=True,
    help="Make, list and revoke API keys. A running server notices within seconds.\n\n"
    "The file holds no secret that could be used: only who has a key reads it, once, when it is "
    "made. Give the server the same file with --keys-file.",
)
# Characters of a line, also where the terminal has fewer: cells are not folded.
WIDTH = 180
MAX_DAYS = 1_000_000  # Python's dates end with the year 9999
KeysFile = Annotated[
    Path, typer.Option("--file", help="file of the keys", envvar="ACPC_KEYS_FILE", dir_okay=False)
]


@keys.command()
def create(
    name: Annotated[str, typer.Option(help="who gets it: what logs and limits name")],
    role: Annotated[Role, typer.Option(help="what it opens; each role includes those before it")],
    file: KeysFile = Path("keys.json"),
    days: Annotated[
        float, typer.Option(min=0, max=MAX_DAYS, help="days until it expires; 0: it does not")
    ] = 0,
) -> None:
    """Make a key and print it, once.

    Its owner puts it into a file and names that with ACPC_TOKEN_FILE or in a profile of acpc, or
    sends it as the header `authorization: Bearer <key>`:

        acpc-server keys create --name planner --role compute > planner.key
    """
    expires = datetime.now(UTC).replace(microsecond=0) + timedelta(days=days) if days else None
    key = create_key(file, name, role, expires)
    typer.echo(f"made key {key.split('_')[1]} for {name}; it is not shown again", err=True)
    typer.echo(key)


@keys.command("list")
def list_keys(
    file: KeysFile = Path("keys.json"),
    output: Annotated[
        Literal["table", "json"], typer.Option("--output", "-o", help="as a table, or as JSON")
    ] = "table",
) -> None:
    """List keys, and client certificates of a role of their own: who has which role."""
    known = read_keys(file)
    found, certificates = known.keys, known.certificates.items()
    if output == "json":
        records = [key.model_dump(exclude={"sha256"}) for key in found]
        records += [
            {"id": "certificate", "name": name, "role": role} for name, role in certificates
        ]
        typer.echo(json.dumps(records, indent=2, default=datetime.isoformat))
        return
    table = Table("id", "name", "role", "created", "expires", box=None)
    for key in found:
        expires = f"{key.expires:%Y-%m-%d %H:%M}" if key.expires else "never"
        expires += " (over)" * key.over()
        table.add_row(key.id, key.name, key.role, f"{key.created:%Y-%m-%d %H:%M}", expires)
    for name, role in certificates:
        table.add_row("certificate", name, role, "-", "-")
    width = max(Console().width, WIDTH)
    Console(markup=False, emoji=False, soft_wrap=True, width=width).print(table)


@keys.command()
def certificate(
    name: Annotated[str, typer.Option(help="its SPIFFE id, else first DNS name, else common name")],
    role: Annotated[Role, typer.Option(help="what it opens")],
    file: KeysFile = Path("keys.json"),
) -> None:
    """Give the client certificates of a name another role than compute."""
    set_certificate_role(file, name, role)
    typer.echo(f"client certificates of {name} have the role {role}", err=True)


@keys.command()
def revoke(
    key: Annotated[str, typer.Argument(help="id of the key, from list or its second part")],
    file: KeysFile = Path("keys.json"),
) -> None:
    """Revoke a key: servers that read the file reject it within seconds, open streams included."""
    gone = revoke_key(file, key)
    typer.echo(f"revoked key {gone.id} of {gone.name}", err=True)
