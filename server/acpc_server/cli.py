"""acpc-server: serve, keys, health, doctor and import."""

from __future__ import annotations

from typing import Annotated

import typer

from acpc_server.app import serve_until_stopped
from acpc_server.doctor_command import doctor
from acpc_server.encoding import CODE_VERSION
from acpc_server.health_check import health
from acpc_server.import_command import PROGRAM, answered, import_run
from acpc_server.keys_command import keys
from acpc_server.serve_flags import with_settings
from acpc_server.settings import Settings

app = typer.Typer(**PROGRAM, no_args_is_help=True)
app.command()(health)
app.command()(doctor)
app.command("import")(import_run)
app.add_typer(keys, name="keys")


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
def serve(settings: Settings) -> None:
    """Run the server.

    Every flag is also a variable, --state-dir being ACPC_STATE_DIR; flags win over variables.
    """
    serve_until_stopped(settings)


def main() -> None:
    """Entry point of ``acpc-server``."""
    answered(app)
