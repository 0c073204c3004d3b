"""acpc-server keys: makes, lists, rotates and revokes API keys. Needs no running server."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Annotated, Any

import typer

from acpc_server.access import Role, create_key, last_uses, read_keys, revoke_key, rotate_key
from acpc_server.listing import Printed, print_list

keys = typer.Typer(
    no_args_is_help=True,
    help="Make, list, rotate and revoke API keys. A running server notices within seconds.\n\n"
    "The file holds no secret that could be used: only who has a key reads it, once, when it is "
    "made. Give the server the same file with --keys-file.",
)
MAX_TIME = 1_000_000  # days, or hours; Python's dates end with the year 9999
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
        float, typer.Option(min=0, max=MAX_TIME, help="time until it expires, days; 0: it does not")
    ] = 0,
) -> None:
    """Make a key and print it, once.

    Its owner puts it into a file and names that with --token-file (ACPC_TOKEN_FILE), or sends it as
    the header "authorization: Bearer <key>":

        acpc-server keys create --name planner --role read --role plan > planner.key
    """
    expires = datetime.now(UTC).replace(microsecond=0) + timedelta(days=days) if days else None
    key = create_key(file, principal=name, tenant=tenant, roles=frozenset(role), expires=expires)
    typer.echo(f"made key {key.split('_')[1]} for {name}; it is not shown again", err=True)
    typer.echo(key)


@keys.command("list")
def list_keys(
    file: KeysFile = Path("keys.json"),
    state_dir: Annotated[
        Path, typer.Option(help="the server's, which has the last uses", envvar="ACPC_STATE_DIR")
    ] = Path("acpc-state"),
    printed: Printed = "table",
) -> None:
    """List keys: id, who has it, tenant, roles, when it was made, last used, and when it expires.

    The last use is that at the servers of --state-dir, to the minute; - where they know of none.
    """
    used = last_uses(state_dir)
    records = [
        {
            "id": key.id,
            "name": key.principal,
            "tenant": key.tenant,
            "roles": sorted(key.roles),
            "created": key.created,
            "last_used": used.get(key.id),
            "expires": key.expires,
        }
        for key in read_keys(file).keys
    ]
    columns: dict[str, Callable[[Any], str]] = {
        "id": str,
        "name": str,
        "tenant": lambda tenant: tenant or "-",
        "roles": ", ".join,
        "created": _minute,
        "last_used": lambda at: _minute(at) if at else "-",
        "expires": _expiry,
    }
    print_list(records, columns, printed)


def _minute(at: datetime) -> str:
    return f"{at:%Y-%m-%d %H:%M}"


def _expiry(at: datetime | None) -> str:
    if at is None:
        return "never"
    return _minute(at) + " (over)" * (at <= datetime.now(UTC))


KeyId = Annotated[str, typer.Argument(help="id of the key, from list or its second part")]


@keys.command()
def rotate(
    key: KeyId,
    file: KeysFile = Path("keys.json"),
    overlap_hours: Annotated[
        float, typer.Option(min=0, max=MAX_TIME, help="time the old key still counts, hours")
    ] = 24.0,
) -> None:
    """Make a new key for the owner of another, and print it, once; the old one ends after a time.

    The new one has the same name, tenant and roles, and lasts as long as the old one was made for.
    """
    old, text = rotate_key(file, key, timedelta(hours=overlap_hours))
    new = f"made key {text.split('_')[1]} for {old.principal}; it is not shown again"
    typer.echo(f"{new}; key {old.id} counts until {old.expires:%Y-%m-%d %H:%M} UTC", err=True)
    typer.echo(text)


@keys.command()
def revoke(key: KeyId, file: KeysFile = Path("keys.json")) -> None:
    """Revoke a key: servers that read the file reject it within seconds, open streams included."""
    gone = revoke_key(file, key)
    typer.echo(f"revoked key {gone.id} of {gone.principal}", err=True)
