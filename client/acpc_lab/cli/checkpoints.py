"""``acpc checkpoints``."""

from __future__ import annotations

from typing import Annotated

import typer
from acpc_client import Checkpoint, CheckpointRef

from acpc_lab.cli import render
from acpc_lab.cli.commands import Group, command
from acpc_lab.cli.options import OutputOptions, Server
from acpc_lab.cli.parameters import sets
from acpc_lab.cli.table import Format

app = typer.Typer(
    cls=Group, no_args_is_help=True, help="Lists, shows, loads and unloads checkpoints."
)

Name = Annotated[str, typer.Argument(help="Folder below the server's checkpoint root.")]
Weights = Annotated[str, sets(CheckpointRef, "weights", "--weights-file", "--weights", panel=None)]


@command(app, "list")
def list_checkpoints(
    *,
    show_all: Annotated[
        bool,
        typer.Option("--all", help="Also folders that cannot be loaded: why, and what to run."),
    ] = False,
    server: Server,
    form: OutputOptions,
) -> None:
    """Lists every checkpoint below the server's root."""
    with server.connect() as client:
        found = list(client.checkpoints.list(show_all=show_all))
    good = found if form.format is Format.JSON else [one for one in found if not one.problem]
    render.listing(good, render.CHECKPOINTS, form.format)
    if form.format is not Format.JSON:
        for one in found:
            if one.problem:
                command = f"; next: {one.next_command}" if one.next_command else ""
                render.line(f"{one.name}: {one.problem}{command}")


@command(app)
def show(*, name: Name, weights: Weights = "", server: Server, form: OutputOptions) -> None:
    """Shows one checkpoint; its model is known once it is loaded."""
    with server.connect() as client:
        _print(client.checkpoints.get(CheckpointRef(name, weights)), form)


@command(app)
def load(
    *,
    name: Name,
    weights: Weights = "",
    pin: Annotated[bool, typer.Option("--pin", help="Keep it until it is unloaded.")] = False,
    server: Server,
    form: OutputOptions,
) -> None:
    """Reads a checkpoint onto the device."""
    with server.connect() as client:
        loaded = client.checkpoints.load(CheckpointRef(name, weights), pin=pin)
        _print(loaded.checkpoint, form)


@command(app)
def unload(*, name: Name, weights: Weights = "", server: Server, form: OutputOptions) -> None:
    """Frees the device memory of a checkpoint."""
    with server.connect() as client:
        _print(client.checkpoints.unload(CheckpointRef(name, weights)), form)


def _print(checkpoint: Checkpoint, form: OutputOptions) -> None:
    if form.json:
        render.line(checkpoint.to_json(indent=2))
        return
    render.listing([checkpoint], render.CHECKPOINTS, form.format)
    if form.format is not Format.NAME and checkpoint.model is not None:
        card = checkpoint.model
        render.line(f"digest {card.digest}")
        if card.model_digest:
            render.line(f"model  {card.model_digest}")
        render.line(
            f"{card.parameter_count} parameters, {card.image_size} px input, "
            f"latent width {card.latent_dim}, history {card.history}, "
            f"action block width {card.action_block_dim}"
        )
