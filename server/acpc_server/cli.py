"""acpc-server: serve, keys, health, hosts, doctor and import."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Annotated, Any

import typer
from acpc.console import CommandGroup, Console
from pydantic import ValidationError

from acpc_server.doctor_command import doctor
from acpc_server.encoding import CODE_VERSION
from acpc_server.health_check import health
from acpc_server.hosts_command import hosts
from acpc_server.import_command import answered, import_run
from acpc_server.keys_command import keys
from acpc_server.serve_flags import in_force, problems, with_settings
from acpc_server.serving import serve_until_stopped
from acpc_server.settings import read_settings

app = typer.Typer(
    cls=CommandGroup,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command()(health)
app.command()(doctor)
app.command()(hosts)
app.command("import")(import_run)
app.add_typer(keys, name="keys")
# One line a message, however narrow the terminal or the pipe.
error_console = Console(stderr=True, soft_wrap=True, highlight=False)


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"acpc-server {CODE_VERSION}")
        raise typer.Exit


@app.callback()
def acpc_server(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Serves ACPC diagnostics of frozen world models over gRPC."""


@app.command()
@with_settings
def serve(flags: dict[str, Any], config: Path | None, print_config: bool) -> None:
    """Run the server.

    Every flag is also a variable, --max-queue being ACPC_MAX_QUEUE, and a key of --config, as
    max_queue = 256. Flags win over variables, variables over the file.
    """
    try:
        settings = read_settings(flags, config)
    except ValidationError as error:
        for line in problems(error, flags, config):
            error_console.print(line, markup=False)
        raise typer.Exit(2) from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, RecursionError) as error:
        error_console.print(f"{config}: not TOML ({error})", markup=False)
        raise typer.Exit(2) from None
    if print_config:
        typer.echo("\n".join(in_force(settings, flags, config)))
        raise typer.Exit
    serve_until_stopped(settings)


def main() -> None:
    """Entry point of ``acpc-server``."""
    answered(app)
