"""Commands whose help shows what most callers need, and names the rest.

A command takes a group of options as one parameter, a dataclass whose fields are options.
"""

from __future__ import annotations

import dataclasses
import functools
import inspect
import shutil
import textwrap
from collections.abc import Callable, Iterator
from typing import Annotated, Any, get_type_hints

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
        folded = [p for p in params if getattr(p, "rich_help_panel", None) in _FOLDED]
        folded = [] if ctx.meta.get(HELP_ALL) else folded
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


def _plain_flags(params: list[Any]) -> None:
    """Leaves out that a flag is a truth value, which newer releases of typer write."""
    for param in params:
        if getattr(param, "is_flag", False) and param.metavar is None:
            param.metavar = ""


def command(
    app: typer.Typer, name: str | None = None, help: str | None = None
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Adds a command whose parameters may be groups of options, which become single options."""

    def add(function: Callable[..., None]) -> Callable[..., None]:
        app.command(name, help=help, cls=Command)(single_options(function))
        return function

    return add


def single_options(function: Callable[..., None]) -> Callable[..., None]:
    """The function with the fields of each dataclass among its parameters as parameters."""
    groups: dict[str, Any] = {}
    parameters: list[inspect.Parameter] = []
    hints = get_type_hints(function, include_extras=True)
    for name, parameter in inspect.signature(function).parameters.items():
        if dataclasses.is_dataclass(hints[name]):
            groups[name] = hints[name]
            parameters += _fields(hints[name])
        else:
            parameters.append(_option(name, parameter.default, hints[name]))
    parameters.append(_option("help_all", False, HelpAll))

    @functools.wraps(function)
    def called(*, help_all: bool = False, **values: Any) -> None:  # noqa: ANN401
        for name, group in groups.items():
            fields = [field.name for field in dataclasses.fields(group)]
            values[name] = group(**{field: values.pop(field) for field in fields})
        function(**values)

    del called.__wrapped__
    called.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    called.__annotations__ = {item.name: item.annotation for item in parameters}
    return called


HelpAll = Annotated[
    bool, typer.Option(HELP_ALL, is_eager=True, callback=show_all, help="Explain every option.")
]


def _option(name: str, default: object, annotation: object) -> inspect.Parameter:
    kind = inspect.Parameter.KEYWORD_ONLY
    return inspect.Parameter(name, kind, default=default, annotation=annotation)


def _fields(group: Any) -> Iterator[inspect.Parameter]:  # noqa: ANN401 - a dataclass
    hints = get_type_hints(group, include_extras=True)
    for field in dataclasses.fields(group):
        default = field.default
        if default is dataclasses.MISSING:
            made = field.default_factory
            default = inspect.Parameter.empty if made is dataclasses.MISSING else made()
        yield _option(field.name, default, hints[field.name])
