"""The settings as flags of ``acpc-server serve``, in groups, and what is wrong with them."""

from __future__ import annotations

import inspect
import json
import math
import os
import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, get_args, get_origin

import typer
from pydantic import ValidationError
from pydantic.fields import FieldInfo
from rich.markup import escape

from acpc_server.settings import Settings, read_toml

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

Config = Annotated[
    Path | None,
    typer.Option(
        exists=True,
        dir_okay=False,
        envvar="ACPC_CONFIG",
        metavar="FILE",
        help="TOML file with any of the settings below, as max_queue = 256",
    ),
]
PrintConfig = Annotated[
    bool,
    typer.Option(
        "--print-config",
        help="Print every setting as TOML, and whether it comes from a flag, the environment, the "
        "file or a default; do not serve. Passwords in URLs are hidden.",
    ),
]


def with_settings(function: Callable[..., None]) -> Callable[..., None]:
    """The command with every setting as a flag; it is given the values of those that were set."""

    def called(config: Path | None = None, print_config: bool = False, **flags: Any) -> None:  # noqa: ANN401
        function(flags, config, print_config)

    parameters = [
        inspect.Parameter("config", _KEYWORD, default=None, annotation=Config),
        inspect.Parameter("print_config", _KEYWORD, default=False, annotation=PrintConfig),
    ]
    parameters += _flags()
    called.__doc__, called.__name__ = function.__doc__, function.__name__
    called.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    called.__annotations__ = {item.name: item.annotation for item in parameters}
    return called


_KEYWORD = inspect.Parameter.KEYWORD_ONLY


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
        yield inspect.Parameter(name, _KEYWORD, default=None, annotation=annotation)


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


def in_force(settings: Settings, flags: Mapping[str, Any], config: Path | None) -> Iterator[str]:
    """Every setting as a line of TOML that says where its value comes from, without secrets."""
    file, variables = read_toml(config), {name.upper() for name in os.environ}
    for name, value in settings.model_dump(mode="json").items():
        source = "default"
        if flags.get(name) is not None:
            source = f"flag --{name.replace('_', '-')}"
        elif f"ACPC_{name.upper()}" in variables:
            source = f"environment ACPC_{name.upper()}"
        elif name in file:
            source = f"file {config}"
        shown = json.dumps(_without_secrets(value), ensure_ascii=False)
        shown = "inf" if value == math.inf else shown  # JSON has no word for it
        line = f"# {name}: not set" if value is None else f"{name} = {shown}  # {source}"
        yield line.encode(errors="backslashreplace").decode()  # a path may be no UTF-8


def _without_secrets(value: Any) -> Any:  # noqa: ANN401 - of whichever type the setting is
    """A URL without who logs in, and without parameters that name a secret."""
    if not isinstance(value, str) or "://" not in value:
        return value
    value = re.sub(r"://.*@", "://***@", value)
    return re.sub(r"(?i)([?&][^=&]*(?:pass|secret|token|key)[^=&]*=)[^&]*", r"\1***", value)


def problems(error: ValidationError, flags: Mapping[str, Any], config: Path | None) -> list[str]:
    """A line for each value that is wrong: where it was given, and what to give instead."""
    written = read_toml(config)
    lines = []
    for problem in error.errors():
        what = problem["msg"].removeprefix("Value error, ")
        name = ".".join(str(part) for part in problem["loc"])
        if not name and what.partition(":")[0] in Settings.model_fields:  # two do not fit together
            name, _, what = what.partition(": ")
        if problem["type"] == "missing":
            what = f"required: {Settings.model_fields[name].description}"
        flag, variable = f"--{name.replace('_', '-')}", f"ACPC_{name.upper()}"
        given = f"{flag} ({variable})"
        if not name or (name in written and flags.get(name) is None and variable not in os.environ):
            given = ": ".join(filter(None, (str(config), name)))
        lines.append(f"{given}: {what}")
    return lines
