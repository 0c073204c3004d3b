"""Commands as dataclasses: the fields are the options, a call does what the command is for.

Every class below ``Options`` is one, without a decorator. Commands that share options inherit them
from one class. This module is read at run time by typer, and so are those that declare options:
their annotations are no strings.
"""

import enum
import inspect
import math
import re
import shutil
import textwrap
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import fields
from inspect import cleandoc
from typing import Any, ClassVar, dataclass_transform, get_args, get_type_hints

import typer
from acpc import contract
from acpc.console import CommandGroup
from acpc.contract import Frozen, Wire, WireEnum, bounds_of
from acpc_client.errors import AcpcError, ArgumentError, FailedPrecondition
from typer.core import TyperCommand

from acpc_lab.cli import render

SERVER = "Server"
Keys = Mapping[str, tuple[type[Any], str]]
"""What a ``--protocol`` file may say: a key, or ``section.key``, for a field of a record."""


class Exit(enum.IntEnum):
    """Exit codes of ``acpc``."""

    OK = 0
    ERROR = 1
    USAGE = 2
    SCREEN_FAILED = 3
    JOB_ENDED_BADLY = 4
    UNDECIDED = 5
    INTERRUPTED = 130


@contextmanager
def reported() -> Iterator[None]:
    """Prints errors that are raised within, and exits with their code."""
    try:
        yield
    except AcpcError as error:
        render.error(error)
        code = Exit.USAGE if isinstance(error, ArgumentError) else Exit.ERROR
        code = Exit.JOB_ENDED_BADLY if error.job else code
        raise typer.Exit(code) from error
    except OSError as error:
        if error.filename is None:  # of stdout, which ``main`` reports
            raise
        render.error(FailedPrecondition(f"{error.filename}: {error.strerror}"))
        raise typer.Exit(Exit.ERROR) from error


class Group(CommandGroup):
    """A group of commands; its help says nothing of the type of a flag."""

    def format_help(self, ctx: Any, formatter: Any) -> None:  # noqa: ANN401 - click's own
        _plain_flags(list(self.get_params(ctx)))
        super().format_help(ctx, formatter)


class Command(TyperCommand):
    """Runs the dataclass that typer makes of the options.

    A command's own options come first in the help, then those of its bases in their order. What
    says no help of its own is described by the ``Attributes`` of the docstring.
    """

    def __init__(self, *arguments: Any, **attributes: Any) -> None:  # noqa: ANN401 - typer's own
        super().__init__(*arguments, **attributes)
        kinds: Any = getattr(self.callback, "__wrapped__").__mro__  # noqa: B009 - mypy
        depth = {name: at for at, kind in reversed([*enumerate(kinds)])
                 for name in inspect.get_annotations(kind)}  # fmt: skip
        self.params.sort(key=lambda param: depth[param.name or ""])
        self.declared: type[Options] = kinds[0]
        self.help = (self.help or "").partition("\n\nAttributes:")[0]
        for param in self.params:
            given: Any = param
            given.help = given.help or about(self.declared, param.name or "") or None
            if param.default is False:  # a flag that is off needs none to turn it off
                param.secondary_opts = []

    def invoke(self, ctx: Any) -> Any:  # noqa: ANN401 - click's own
        command = super().invoke(ctx)
        with reported():
            return ctx.invoke(command)

    def format_help(self, ctx: Any, formatter: Any) -> None:  # noqa: ANN401 - click's own
        _plain_flags(list(self.get_params(ctx)))
        super().format_help(ctx, formatter)
        keys = self.declared.keys
        if keys:
            typer.echo(" Keys of --protocol, in a YAML file or inline, as '{draws: 3}':\n")
            width = shutil.get_terminal_size().columns - 1
            for name, (record, field) in keys.items():
                text = f"{name}: {in_words(record, field)}"
                typer.echo(textwrap.fill(text, width, initial_indent=" ", subsequent_indent="   "))
            typer.echo()


def _plain_flags(params: list[Any]) -> None:
    """Leaves out that a flag is a truth value, which newer releases of typer write."""
    for param in params:
        if getattr(param, "is_flag", False) and param.metavar is None:
            param.metavar = ""


@dataclass_transform(frozen_default=True, kw_only_default=True)
class Options(Frozen, kw_only=True):
    """Base of every command, and of options that several commands share.

    Attributes:
        keys: What a ``--protocol`` file of the command may say.
    """

    keys: ClassVar[Keys] = {}


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
    (value,) = (f.default for f in fields(record) if f.name == name)
    if isinstance(value, WireEnum):
        return str(value) if value else ""
    numbers = value if isinstance(value, tuple) else (value,)
    if not all(isinstance(item, int | float) and not isinstance(item, bool) for item in numbers):
        return ""
    return ",".join(f"{item:g}" for item in numbers)


def in_words(record: type[Any], name: str) -> str:
    """Describes a field, with its default and the choices of an enum."""
    text, default = about(record, name), _default_of(record, name)
    text = re.sub(r"Range: 0 to \d{20}; default", "Default", text).replace("None: ", "default: ")
    kind = _kind_of(record, name)
    if isinstance(kind, type) and issubclass(kind, WireEnum):
        text = f"{'|'.join(str(value) for value in kind if value)}. {text}"
    silent = text and default and "default" not in text.lower()
    return f"{text.rstrip('.')} [{default}]." if silent else text


def _kind_of(record: type[Any], name: str) -> Any:  # noqa: ANN401 - a type
    hint = get_type_hints(record)[name]
    return (get_args(hint) or (hint,))[0]


def sets(record: type[Any], name: str, *flags: str, **more: Any) -> Any:  # noqa: ANN401 - as typer.Option
    """The option of a field of a request: what the contract says of the field is its help.

    It is not sent where it is not given, so that the server's default holds. An enum has a parser;
    its annotation is Any, as typer takes an enum's for a wish to read its values.
    """
    kind = _kind_of(record, name)
    if isinstance(kind, type) and issubclass(kind, WireEnum):
        known = {str(value): value for value in kind if value}
        more |= {"parser": lambda text: _one_of(text, known), "metavar": "|".join(known)}
    bounds = bounds_of(record).get(name)
    if bounds is not None and bounds.max_length is None and math.isfinite(bounds.ge):
        more["min"] = bounds.ge
    more.setdefault("help", in_words(record, name))
    return typer.Option(*flags, **more)


def _one_of(text: str, known: Mapping[str, WireEnum]) -> WireEnum:
    if text not in known:
        raise typer.BadParameter(f"found {text!r}, wanted one of {', '.join(known)}")
    return known[text]


def given(**options: Any) -> dict[str, Any]:  # noqa: ANN401 - whatever options hold
    """Returns the options that were given: not None and not empty."""
    return {name: value for name, value in options.items() if value not in (None, [])}
