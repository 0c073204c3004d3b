"""``acpc checkpoints``."""

from __future__ import annotations

import json
from typing import Annotated

import typer
from acpc_client import DEFAULT_TARGET, Checkpoint, CheckpointRef

from acpc_lab.cli import render
from acpc_lab.cli.options import Json, Target, Timeout, TlsCa, connect

app = typer.Typer(no_args_is_help=True, help="Lists, shows, loads and unloads checkpoints.")

Name = Annotated[str, typer.Argument(help="Folder below the server's checkpoint root.")]
Weights = Annotated[str, typer.Option(help="Weights file, when the folder holds several.")]


@app.command("list")
def list_checkpoints(
    target: Target = DEFAULT_TARGET,
    timeout: Timeout = None,
    tls_ca: TlsCa = None,
    as_json: Json = False,
) -> None:
    """Lists every checkpoint below the server's root."""
    with connect(target, timeout, tls_ca) as client:
        listed = list(client.checkpoints.list())
    if as_json:
        render.line(json.dumps([item.to_dict() for item in listed], indent=2))
    else:
        render.checkpoints(listed)


@app.command()
def show(
    *,
    name: Name,
    weights: Weights = "",
    target: Target = DEFAULT_TARGET,
    timeout: Timeout = None,
    tls_ca: TlsCa = None,
    as_json: Json = False,
) -> None:
    """Shows one checkpoint; its model is known once it is loaded."""
    with connect(target, timeout, tls_ca) as client:
        _print(client.checkpoints.get(CheckpointRef(name, weights)), as_json)


@app.command()
def load(
    *,
    name: Name,
    weights: Weights = "",
    pin: Annotated[bool, typer.Option("--pin", help="Keep it until it is unloaded.")] = False,
    target: Target = DEFAULT_TARGET,
    timeout: Timeout = None,
    tls_ca: TlsCa = None,
    as_json: Json = False,
) -> None:
    """Reads a checkpoint onto the device."""
    with connect(target, timeout, tls_ca) as client:
        loaded = client.checkpoints.load(CheckpointRef(name, weights), pin=pin)
        _print(loaded.checkpoint, as_json)


@app.command()
def unload(
    *,
    name: Name,
    weights: Weights = "",
    target: Target = DEFAULT_TARGET,
    timeout: Timeout = None,
    tls_ca: TlsCa = None,
    as_json: Json = False,
) -> None:
    """Frees the device memory of a checkpoint."""
    with connect(target, timeout, tls_ca) as client:
        _print(client.checkpoints.unload(CheckpointRef(name, weights)), as_json)


def _print(checkpoint: Checkpoint, as_json: bool) -> None:
    if as_json:
        render.line(checkpoint.to_json(indent=2))
        return
    render.checkpoints([checkpoint])
    if checkpoint.model is not None:
        card = checkpoint.model
        render.line(f"digest {card.digest}")
        render.line(
            f"{card.parameter_count} parameters, {card.image_size} px input, "
            f"latent width {card.latent_dim}, history {card.history}, "
            f"action block width {card.action_block_dim}"
        )
