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
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import fields
from inspect import cleandoc
from pathlib import Path
from typing import Annotated, Any, ClassVar, dataclass_transform, get_args, get_type_hints

import typer
from acpc import contract
from acpc.console import CommandGroup
from acpc.contract import Frozen, Reading, Wire, WireEnum, bounds_of, did_you_mean, field_from_plain
from acpc_client import Thresholds, load_thresholds
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


class _PlainFlags:
    """Leaves out that a flag is a truth value, which newer releases of typer write."""

    def get_params(self, ctx: Any) -> list[Any]:  # noqa: ANN401 - click's own
        params: list[Any] = super().get_params(ctx)  # type: ignore[misc]
        for param in params:
            if getattr(param, "is_flag", False) and param.metavar is None:
                param.metavar = ""
        return params


class Group(_PlainFlags, CommandGroup):
    """A group of commands."""


class Command(_PlainFlags, TyperCommand):
    """Runs the dataclass that typer makes of the options.

    A command's own options come first in the help, then those of its bases in their order. The
    ``Attributes`` of the docstring describe them, where their declarations do not.
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
            given.help = about(self.declared, param.name or "") or given.help
            if param.default is False:  # a flag that is off needs none to turn it off
                param.secondary_opts = []

    def invoke(self, ctx: Any) -> Any:  # noqa: ANN401 - click's own
        command = super().invoke(ctx)
        render.FORM.set(getattr(command, "form", render.Format.TABLE))
        render.QUIET.set(getattr(command, "quiet", False))
        with reported():
            return ctx.invoke(command)

    def format_help(self, ctx: Any, formatter: Any) -> None:  # noqa: ANN401 - click's own
        super().format_help(ctx, formatter)
        if self.declared.keys:
            typer.echo(" Keys of --protocol, in a YAML file or inline, as '{draws: 3}':\n")
            width = shutil.get_terminal_size().columns - 1
            for name, (record, field) in self.declared.keys.items():
                text = f"{name}: {in_words(record, field)}"
                typer.echo(textwrap.fill(text, width, initial_indent=" ", subsequent_indent="   "))
            typer.echo()


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


def in_words(record: type[Any], name: str) -> str:
    """Describes a field, with its default and the choices of an enum."""
    text = re.sub(r"Range: 0 to \d{20}; default", "Default", about(record, name))
    text = text.replace("None: ", "default: ")
    choices = _choices(record, name)
    if choices:
        text = f"{'|'.join(choices)}. {text}"
    (default,) = (field.default for field in fields(record) if field.name == name)
    values = default if isinstance(default, tuple) else (default,)
    words = [str(x) for x in values if isinstance(x, WireEnum) and x]
    words += [f"{x:g}" for x in values if type(x) in (int, float)]
    if not (text and words) or "default" in text.lower():
        return text
    return f"{text.rstrip('.')} [{','.join(words)}]."


def _choices(record: type[Any], name: str) -> dict[str, WireEnum]:
    """The values of an enum by their words; none of another field."""
    hint = get_type_hints(record)[name]
    kind = (get_args(hint) or (hint,))[0]
    if not (isinstance(kind, type) and issubclass(kind, WireEnum)):
        return {}
    return {str(value): value for value in kind if value}


def sets(record: type[Any], name: str, *flags: str, **more: Any) -> Any:  # noqa: ANN401 - as typer.Option
    """The option of a field of a request: what the contract says of the field is its help.

    It is not sent where it is not given, so that the server's default holds. An enum has a parser;
    its annotation is Any, as typer takes an enum's for a wish to read its values.
    """
    known = _choices(record, name)

    def parse(text: str) -> WireEnum:
        if text not in known:
            raise typer.BadParameter(f"found {text!r}, wanted one of {', '.join(known)}")
        return known[text]

    if known:
        more |= {"parser": parse, "metavar": "|".join(known)}
    bounds = bounds_of(record).get(name)
    if bounds is not None and bounds.max_length is None and math.isfinite(bounds.ge):
        more["min"] = bounds.ge
    return typer.Option(*flags, **{"help": in_words(record, name), **more})


def given(**options: Any) -> dict[str, Any]:  # noqa: ANN401 - whatever options hold
    """Returns the options that were given: not None and not empty."""
    return {name: value for name, value in options.items() if value not in (None, [])}


READINGS = [str(reading) for reading in Reading if reading]
ProtocolOption = Annotated[
    str | None,
    typer.Option(
        metavar="FILE",
        help="How it is measured, by the keys below: a YAML file, the same text inline as '{...}' "
        f"or, where they have a reading, its name ({', '.join(READINGS)}) [paper].",
    ),
]


def keys_of(record: type[Any], names: Iterable[str] = (), section: str = "") -> Keys:
    """Keys that are called as fields of a record; without names as all of them."""
    names = names or [field.name for field in fields(record)]
    return {f"{section}.{name}".lstrip("."): (record, name) for name in names}


def read_protocol(text: str | None, keys: Keys) -> dict[str, Any]:
    """Reads the option: the values by key, those of a section by their field."""
    if text is None:
        return {}
    section = next((x for x in ("protocol", "") if f"{x}.reading".lstrip(".") in keys), None)
    if text in READINGS and section is not None:
        return _read({section or "reading": text}, keys, Path())
    from acpc_lab.sweeps import as_document, read_document  # noqa: PLC0415  slow to import

    try:
        inline = text.lstrip().startswith("{")
        document = as_document(text) if inline else read_document(Path(text))
        try:
            return _read(document.value, keys, Path() if inline else Path(text).parent)
        except ArgumentError as error:
            raise document.error(error.field, error.description) from error
    except ArgumentError as error:
        place = "" if error.field == "sweep file" else f"{error.field}: "
        wrong = f"{'' if inline else f'{text}: '}{place}{error.description}"
        raise ArgumentError("--protocol", wrong) from error


def _read(held: object, keys: Keys, beside: Path, section: str = "") -> dict[str, Any]:
    if not isinstance(held, Mapping):
        wanted = f"found {held!r}, wanted a mapping"
        raise ArgumentError(section, wanted if section else f"wanted the keys {', '.join(keys)}")
    read: dict[str, Any] = {}
    sections: dict[str, dict[str, tuple[type[Any], str]]] = {}
    for key, of in keys.items():
        if "." in key:
            sections.setdefault(key.partition(".")[0], {})[key.partition(".")[2]] = of
    for name, item in held.items():
        if name == "thresholds" and name in sections and isinstance(item, str):
            read[name] = calibrated(beside / item)
        elif name in sections:
            reading = name == "protocol" and isinstance(item, str)
            inner = {"reading": item} if reading else item
            read[name] = _read(inner, sections[name], beside, name)
        elif name in keys:
            record, field = keys[name]
            plain = tuple(item) if isinstance(item, list) else item
            wire = issubclass(record, Wire)
            read[name] = field_from_plain(record, field, item) if wire else plain
        else:
            known = [*(key for key in keys if "." not in key), *sorted(sections)]
            near = did_you_mean(str(name), known, f"known keys: {', '.join(known)}")
            raise ArgumentError(f"{section}.{name}".lstrip("."), f"unknown key; {near}")
    return read


def calibrated(path: Path) -> Thresholds:
    """The thresholds that a study wrote, with their warnings on stderr."""
    try:
        chosen = load_thresholds(path)
    except ArgumentError as error:
        raise ArgumentError("thresholds", error.description) from error
    render.notes(chosen.warnings, f"warning: {path}")
    return chosen.thresholds
