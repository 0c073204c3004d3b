"""acpc-server: serve, keys, health, hosts, doctor, check-checkpoint, import, pull and others."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Annotated, Any

import torch
import typer
from acpc.console import CommandGroup, Console
from pydantic import ValidationError
from rich.table import Table

from acpc_server.doctor_command import doctor
from acpc_server.encoding import CODE_VERSION
from acpc_server.errors import FailedPrecondition
from acpc_server.health_check import health
from acpc_server.hosts_command import hosts
from acpc_server.import_command import answered, import_run
from acpc_server.keys_command import keys
from acpc_server.models import (
    CheckpointLimits,
    Container,
    DtypeName,
    FrozenWorldModel,
    check_model,
    convert_weights,
    load_checkpoint,
)
from acpc_server.pull_command import pull
from acpc_server.serve_flags import in_force, problems, with_settings
from acpc_server.serving import serve_until_stopped
from acpc_server.settings import MEBIBYTE, read_settings

app = typer.Typer(
    cls=CommandGroup,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
)
app.command()(health)
app.command()(doctor)
app.command()(hosts)
app.command("import")(import_run)
app.command()(pull)
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


@app.command("check-checkpoint")
def check_checkpoint(
    folder: Annotated[Path, typer.Argument(help="checkpoint folder: config.json and weights")],
    weights: Annotated[str, typer.Option(help="weights file, when the folder has several")] = "",
    max_mib: Annotated[int, typer.Option(help="largest weights file to read, MiB")] = 2048,
    conformance: Annotated[
        bool, typer.Option("--conformance", help="also compute with it: does it keep its promises?")
    ] = False,
) -> None:
    """Say whether the server would load a checkpoint, and what it is.

    Nothing in the folder is executed. Exit code 1 when the server would reject it. With
    --conformance, random frames and actions go through it, to see that it keeps what the server
    relies on; exit code 1 when it does not. Made for plug-in families.
    """
    folder = folder.absolute()
    model = load_checkpoint(
        folder.parent,
        folder.name,
        weights,
        device=torch.device("cpu"),
        limits=CheckpointLimits(weights_bytes=max_mib * MEBIBYTE),
    )
    card = model.card
    table = Table(title=f"{folder.name}: the server accepts this checkpoint", show_header=False)
    for name, value in (
        ("family", card.family),
        ("digest", card.digest),
        *((("model digest", card.model_digest),) if card.model_digest else ()),
        ("image size", f"{card.image_size} px"),
        ("latent width", card.latent_dim),
        ("history", f"{card.history} frames"),
        ("action block width", f"{card.action_block_dim} (frameskip x action_dim)"),
        ("parameters", f"{card.parameter_count:,}"),
        *((("proprioception width", card.proprio_dim),) if card.proprio_dim else ()),
        *((("tokens of a latent", card.latent_tokens),) if card.latent_tokens else ()),
    ):
        table.add_row(name, str(value))
    table.columns[1].overflow = "fold"  # a digest must not be cut
    Console(markup=False, emoji=False).print(table)
    if conformance:
        _show_conformance(model)


def _show_conformance(model: FrozenWorldModel) -> None:
    """One line a promise; exit code 1 when one is broken."""
    findings = check_model(model)
    console = Console(soft_wrap=True, highlight=False)
    for finding in findings:
        sign = "kept  " if finding.kept else "BROKEN"
        why = "" if finding.kept else f": {finding.problem}"
        console.print(f"{sign}  {finding.promise}{why}", markup=False)
    if not all(finding.kept for finding in findings):
        raise typer.Exit(1)


@app.command()
def convert(
    source: Annotated[Path, typer.Argument(exists=True, file_okay=False, help="checkpoint folder")],
    target: Annotated[Path, typer.Argument(help="folder to write; must not exist")],
    weights: Annotated[str, typer.Option(help="weights file, when the folder has several")] = "",
    dtype: Annotated[DtypeName, typer.Option(help="stored precision of the weights")] = "float32",
    container: Annotated[Container, typer.Option(help="format of the weights file")] = "pt",
) -> None:
    """Rewrite a checkpoint folder in another precision or container. Runs offline."""
    try:
        card = convert_weights(
            source.absolute(), target, weights=weights, dtype=dtype, container=container
        )
    except OSError as error:
        raise FailedPrecondition(f"{target}: cannot be written: {error.strerror}") from error
    wrote = f"wrote {target} ({card.family}, digest {card.digest})"
    Console(soft_wrap=True).print(wrote, markup=False)


def main() -> None:
    """Entry point of ``acpc-server``."""
    answered(app)
