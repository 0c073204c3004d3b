"""The settings as flags of ``acpc-server serve``, in groups, and what is wrong with them."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from typing import Annotated, Any, get_args, get_origin

import typer
from acpc.console import Console
from pydantic import ValidationError
from pydantic.fields import FieldInfo
from rich.markup import escape

from acpc_server.settings import Settings

# What --help calls the settings from this one on, in the order of the fields.
GROUPS = {
    "checkpoint_root": "Files",
    "jobs_url": "Job record",
    "host": "Addresses",
    "tls_certificate": "Access",
    "device": "Device",
    "max_message_mib": "Load",
    "job_concurrency": "Jobs",
    "anchor_dir": "Anchor sets",
    "lame_duck_seconds": "Stopping",
    "log_level": "Logs",
}
# One line a message, however narrow the terminal or the pipe.
_ERRORS = Console(stderr=True, soft_wrap=True, highlight=False, markup=False)


def with_settings(function: Callable[[Settings], None]) -> Callable[..., None]:
    """The command with every setting as a flag; bad values are a line each, and exit code 2."""

    def called(**flags: Any) -> None:  # noqa: ANN401
        try:
            settings = Settings(**{name: one for name, one in flags.items() if one is not None})
        except ValidationError as error:
            for line in _problems(error):
                _ERRORS.print(line)
            raise typer.Exit(2) from None
        function(settings)

    parameters = list(_flags())
    called.__doc__, called.__name__ = function.__doc__, function.__name__
    called.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    called.__annotations__ = {item.name: item.annotation for item in parameters}
    return called


def _flags() -> Iterator[inspect.Parameter]:
    group = ""
    for name, field in Settings.model_fields.items():
        group = GROUPS.get(name, group)
        dashed = name.replace("_", "-")
        switch = field.annotation is bool
        option = typer.Option(
            f"--{dashed}/--no-{dashed}" if switch else f"--{dashed}",
            help=escape(f"{field.description}{_default(field)}"),
            metavar=None if switch else _metavar(field),
            show_default=False,
            rich_help_panel=group,
        )
        kind: Any = (bool if switch else str) | None
        annotation = Annotated[kind, option]
        keyword = inspect.Parameter.KEYWORD_ONLY
        yield inspect.Parameter(name, keyword, default=None, annotation=annotation)


def _metavar(field: FieldInfo) -> str:
    """Return the placeholder of a flag's value, which pydantic reads like a variable's."""
    if get_origin(field.annotation) is not None:
        choices = [choice for choice in get_args(field.annotation) if isinstance(choice, str)]
        return "|".join(choices) or "PATH"
    names: dict[Any, str] = {int: "INTEGER", float: "NUMBER", str: "TEXT"}
    return names.get(field.annotation, "PATH")


def _default(field: FieldInfo) -> str:
    if field.is_required():
        return " (required)"
    usual = field.default
    if isinstance(usual, bool):
        usual = "on" if usual else "off"
    return "" if usual in (None, "") else f" (default {usual})"


def _problems(error: ValidationError) -> Iterator[str]:
    """Yield a line for each value that is wrong: which it is, and what to give instead."""
    for problem in error.errors():
        what = problem["msg"].removeprefix("Value error, ")
        name = ".".join(str(part) for part in problem["loc"])
        if not name:  # two do not fit together
            name, _, what = what.partition(": ")
        if problem["type"] == "missing":
            what = f"required: {Settings.model_fields[name].description}"
        yield f"--{name.replace('_', '-')} (ACPC_{name.upper()}): {what}"
