"""acpc-server keys: makes, lists and revokes API keys. Needs no running server."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from acpc_server.access import Role, create_key, read_keys, revoke_key

keys = typer.Typer(
    no_args_is_help=True,
    help="Make, list and revoke API keys. A running server notices within seconds.\n\n"
    "The file holds no secret that could be used: only who has a key reads it, once, when it is "
    "made. Give the server the same file with --keys-file.",
)
KeysFile = Annotated[
    Path, typer.Option("--file", help="file of the keys", envvar="ACPC_KEYS_FILE", dir_okay=False)
]


@keys.command()
def create(
    name: Annotated[str, typer.Option(help="who gets it: what logs, quotas and audits name")],
    role: Annotated[list[Role], typer.Option(help="what it opens; repeat for several")],
    file: KeysFile = Path("keys.json"),
    tenant: Annotated[
        str, typer.Option(help="whose jobs and anchor sets it sees; default: the common ones")
    ] = "",
    days: Annotated[
        float, typer.Option(min=0, help="time until it expires, days; 0: it does not")
    ] = 0,
) -> None:
    """Make a key and print it, once.

    Its owner puts it into a file and names that with --token-file (ACPC_TOKEN_FILE), or sends it as
    the header "authorization: Bearer <key>":

        acpc-server keys create --name planner --role read --role plan > planner.key
    """
    expires = datetime.now(UTC).replace(microsecond=0) + timedelta(days=days) if days else None
    key = create_key(file, principal=name, tenant=tenant, roles=frozenset(role), expires=expires)
    told = Console(stderr=True, soft_wrap=True, highlight=False)
    told.print(f"made key {key.split('_')[1]} for {name}; it is not shown again", markup=False)
    typer.echo(key)


@keys.command("list")
def list_keys(file: KeysFile = Path("keys.json")) -> None:
    """List keys: id, who has it, tenant, roles, when it was made and when it expires."""
    table = Table("id", "name", "tenant", "roles", "created", "expires", box=None)
    for key in read_keys(file).keys:
        expires = f"{key.expires:%Y-%m-%d %H:%M}" if key.expires else "never"
        if key.expires and key.expires <= datetime.now(UTC):
            expires += " (over)"
        roles = ", ".join(sorted(key.roles))
        created = f"{key.created:%Y-%m-%d %H:%M}"
        table.add_row(key.id, key.principal, key.tenant or "-", roles, created, expires)
    console = Console()
    console.print(table, width=max(console.width, 160), soft_wrap=True)


@keys.command()
def revoke(
    key: Annotated[str, typer.Argument(help="id of the key, from list or its second part")],
    file: KeysFile = Path("keys.json"),
) -> None:
    """Revoke a key: servers that read the file reject it within seconds, open streams included."""
    gone = revoke_key(file, key)
    typer.echo(f"revoked key {gone.id} of {gone.principal}", err=True)
