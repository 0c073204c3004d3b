"""Commands as dataclasses: the fields are the options, ``run`` is what the command does.

Commands that share options inherit them from one dataclass. This module is read at run time by
typer, and so are those that declare options: their annotations are no strings.
"""

import inspect
import math
import re
import shutil
import textwrap
from collections.abc import Mapping
from dataclasses import dataclass, fields
from inspect import cleandoc
from pathlib import Path
from typing import Annotated, Any, get_args, get_origin, get_type_hints

import typer
from acpc import contract
from acpc.console import CommandGroup
from acpc.contract import Objective, Wire, WireEnum, bounds_of, check, from_json
from typer.core import TyperCommand

HELP_ALL = "--help-all"
PROTOCOL = "Protocol (defaults: the paper's)"
CHECKPOINT = "Checkpoint"
SERVER = "Server"
VIEWS = "Views of the history"
PLANNER = "Planner"
_FOLDED = (CHECKPOINT, PROTOCOL, SERVER)


class Group(CommandGroup):
    """A group of commands; its help says nothing of the type of a flag."""

    def format_help(self, ctx: Any, formatter: Any) -> None:  # noqa: ANN401 - click's own
        """Prints the help."""
        _plain_flags(list(self.get_params(ctx)))
        super().format_help(ctx, formatter)


class Command(TyperCommand):
    """Runs the dataclass that typer makes of the options; ``--help-all`` shows all of these.

    A command's own options come first in the help, then those of its bases in their order.
    """

    def __init__(self, *arguments: Any, **attributes: Any) -> None:  # noqa: ANN401 - typer's own
        super().__init__(*arguments, **attributes)
        kinds: Any = getattr(self.callback, "__wrapped__").__mro__  # noqa: B009 - mypy
        depth = {name: at for at, kind in reversed([*enumerate(kinds)]) for name in _declared(kind)}
        self.params.sort(key=lambda param: depth[param.name or ""])

    def invoke(self, ctx: Any) -> Any:  # noqa: ANN401 - click's own
        """Reads the options, then runs the command."""
        return ctx.invoke(super().invoke(ctx).run)

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


def _declared(kind: type) -> Mapping[str, object]:
    return inspect.get_annotations(kind)


def _plain_flags(params: list[Any]) -> None:
    """Leaves out that a flag is a truth value, which newer releases of typer write."""
    for param in params:
        if getattr(param, "is_flag", False) and param.metavar is None:
            param.metavar = ""


def _show_all(ctx: typer.Context, wanted: bool) -> None:
    if wanted:
        ctx.meta[HELP_ALL] = True
        typer.echo(ctx.get_help())
        raise typer.Exit


@dataclass(frozen=True, kw_only=True)
class Options:
    """Base of every command, and of options that several commands share."""

    help_all: Annotated[
        bool,
        typer.Option(HELP_ALL, is_eager=True, callback=_show_all, help="Explain every option."),
    ] = False

    def run(self) -> None:
        """Does what the command is for."""
        raise NotImplementedError


def group(name: str, help: str) -> typer.Typer:
    """A group whose commands are added by ``app.command(name, cls=Command)``."""
    return typer.Typer(
        name=name,
        cls=Group,
        no_args_is_help=True,
        rich_markup_mode="markdown",
        add_completion=False,
        help=help,
    )


def about(record: type[Any], name: str) -> str:
    """What the contract says of a field; of a record of the lab, its line in the docstring."""
    if issubclass(record, Wire):
        return contract.about(record, name)
    for cls in record.__mro__:
        text = cleandoc(cls.__dict__.get("__doc__") or "").partition("Attributes:\n")[2]
        found = re.search(rf"^    {name}: (.*(?:\n {{6,}}.*)*)", text, re.MULTILINE)
        if found:
            return re.sub(r"\s+", " ", found[1]).replace("``", "`")
    return ""


def _default_of(record: type[Any], name: str) -> str:
    """The default of a field in words; empty when it has none, or leaves it to the server."""
    (value,) = (f.default for f in fields(record) if f.name == name)
    if isinstance(value, WireEnum):
        return str(value) if value else ""
    numbers = value if isinstance(value, tuple) else (value,)
    if not all(isinstance(item, int | float) and not isinstance(item, bool) for item in numbers):
        return ""
    return ",".join(f"{item:g}" for item in numbers)


def in_words(record: type[Any], name: str) -> str:
    """Describes a field, with its default; empty without a description."""
    text, default = about(record, name), _default_of(record, name)
    text = re.sub(r"Range: 0 to \d{20}; default", "Default", text)
    silent = text and default and "default" not in text.lower()
    return f"{text.rstrip('.')} [{default}]." if silent else text


def sets(
    record: type[Any],
    name: str,
    *flags: str,
    panel: str | None = PROTOCOL,
    **more: Any,  # noqa: ANN401 - as typer.Option
) -> Any:  # noqa: ANN401
    """The option of a field of a request: what the contract says of the field is its help.

    It is read as the field's type wants it, and is not sent where it is not given, so that the
    server's default holds. An enum, a tuple or an objective has a parser; its annotation is Any,
    as typer takes an enum's for a wish to read its values. ``more`` goes to typer as it is.
    """
    hint = get_type_hints(record)[name]
    kind = (get_args(hint) or (hint,))[0]
    if isinstance(kind, type) and issubclass(kind, WireEnum):
        known = {str(value): value for value in kind if value}
        more |= {"parser": lambda text: _one_of(text, known), "metavar": "|".join(known)}
    elif get_origin(hint) is tuple:
        more |= {"parser": lambda text: read_numbers(text, kind), "metavar": "A,B,..."}
    elif kind is Objective:
        more |= {"parser": _objective, "metavar": "FILE"}
    bounds = bounds_of(record).get(name)
    if bounds is not None and bounds.max_length is None and math.isfinite(bounds.ge):
        more["min"] = bounds.ge
    more.setdefault("help", in_words(record, name).replace("None: ", "default: "))
    return typer.Option(*flags, rich_help_panel=panel, **more)


def _one_of(text: str, known: Mapping[str, WireEnum]) -> WireEnum:
    if text not in known:
        raise typer.BadParameter(f"found {text!r}, wanted one of {', '.join(known)}")
    return known[text]


def _objective(path: str) -> Objective:
    try:
        found = from_json(Objective, Path(path).read_bytes())
        check(found)
    except (OSError, ValueError) as error:  # an ArgumentError is a ValueError
        raise typer.BadParameter(f"{path}: {error}") from error
    return found


def read_numbers(text: str, kind: Any, option: str | None = None) -> tuple[Any, ...]:  # noqa: ANN401 - int or float
    """The numbers of an option like ``1,2``.

    Raises typer.BadParameter: The text holds something else.
    """
    try:
        return tuple(kind(item) for item in text.split(","))
    except ValueError as error:
        wrong = f"found {text!r}, wanted numbers like 1,2"
        raise typer.BadParameter(wrong, param_hint=option) from error


def given(**options: Any) -> dict[str, Any]:  # noqa: ANN401 - whatever options hold
    """Returns the options that were given: not None and not empty."""
    return {name: value for name, value in options.items() if value not in (None, [])}
