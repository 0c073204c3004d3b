"""Commands whose help shows what most callers need, and names the rest."""

from __future__ import annotations

import shutil
import textwrap
from typing import Any

import typer
from typer.core import TyperCommand, TyperGroup

HELP_ALL = "--help-all"
PROTOCOL = "Protocol (defaults: the paper's)"
CHECKPOINT = "Checkpoint"
SERVER = "Server"
_FOLDED = (CHECKPOINT, PROTOCOL, SERVER)


class Group(TyperGroup):
    """A group of commands; its help says nothing of the type of a flag."""

    def format_help(self, ctx: Any, formatter: Any) -> None:  # noqa: ANN401 - click's own
        """Prints the help."""
        _plain_flags(list(self.get_params(ctx)))
        super().format_help(ctx, formatter)


class Command(TyperCommand):
    """A command that shows the options of some panels with ``--help-all`` alone."""

    def format_help(self, ctx: Any, formatter: Any) -> None:  # noqa: ANN401 - click's own
        """Prints the help: in full, or with the names of the options that are left out."""
        params: list[Any] = list(self.get_params(ctx))
        _plain_flags(params)
        folded = [] if ctx.meta.get(HELP_ALL) else [p for p in params if _panel(p) in _FOLDED]
        for param in folded:
            param.hidden = True
        super().format_help(ctx, formatter)
        for param in folded:
            param.hidden = False
        if folded:
            names = ", ".join(param.opts[0] for param in folded)
            text = f"More options, explained by {HELP_ALL}: {names}"
            width = shutil.get_terminal_size().columns - 1
            lines = textwrap.wrap(text, width, break_on_hyphens=False)
            typer.echo(textwrap.indent("\n".join(lines), " ") + "\n")


def show_all(ctx: typer.Context, wanted: bool) -> None:
    """Prints the help with every option, and ends the command."""
    if wanted:
        ctx.meta[HELP_ALL] = True
        typer.echo(ctx.get_help())
        raise typer.Exit


def _panel(param: Any) -> str | None:  # noqa: ANN401 - an option or an argument
    return getattr(param, "rich_help_panel", None)


def _plain_flags(params: list[Any]) -> None:
    """Leaves out that a flag is a truth value, which newer releases of typer write."""
    for param in params:
        if getattr(param, "is_flag", False) and param.metavar is None:
            param.metavar = ""
