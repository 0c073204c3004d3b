"""Prints what a command lists: as a table, or as JSON for programs."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Annotated, Any, Literal

import typer
from acpc.console import Console
from rich.table import Table

Printed = Annotated[
    Literal["table", "json"], typer.Option("--output", "-o", help="as a table, or as JSON")
]
# Characters of a line, also where the terminal has fewer: cells are not folded.
_WIDTH = 180


def print_list(
    records: Sequence[Mapping[str, Any]], columns: Mapping[str, Callable[[Any], str]], printed: str
) -> None:
    """Print records: as JSON, or as a table with each value as its column's function writes it."""
    if printed == "json":
        typer.echo(json.dumps(records, indent=2, default=datetime.isoformat))
        return
    table = Table(*(name.replace("_", " ") for name in columns), box=None)
    for record in records:
        table.add_row(*(text(record[name]) for name, text in columns.items()))
    width = max(Console().width, _WIDTH)
    Console(markup=False, emoji=False, soft_wrap=True, width=width).print(table)
