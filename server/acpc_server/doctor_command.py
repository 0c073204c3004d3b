"""acpc-server doctor: whether a checkpoint is one, and whether this machine can serve it."""

from __future__ import annotations

import os
import platform
from pathlib import Path
from typing import Annotated

import torch
import typer
from acpc.console import Console
from rich.table import Table

from acpc_server.encoding import CODE_VERSION
from acpc_server.engine import choose_device, device_name, self_test, software
from acpc_server.models import CheckpointLimits, check_model, load_served
from acpc_server.settings import MEBIBYTE


def doctor(
    checkpoint: Annotated[
        Path | None, typer.Argument(help="checkpoint folder to look at: config.json and weights")
    ] = None,
    weights: Annotated[str, typer.Option(help="weights file, when the folder has several")] = "",
    max_mib: Annotated[int, typer.Option(help="largest weights file to read, MiB")] = 2048,
    conformance: Annotated[
        bool,
        typer.Option("--conformance", help="compute with it: does it keep its promises?"),
    ] = False,
    device: Annotated[str, typer.Option(help="cpu, cuda, cuda:1 and so on, or auto")] = "auto",
    checkpoint_root: Annotated[
        Path | None, typer.Option(envvar="ACPC_CHECKPOINT_ROOT", help="folder to look at")
    ] = None,
    dataset_root: Annotated[
        Path | None, typer.Option(envvar="ACPC_DATASET_ROOT", help="folder to look at")
    ] = None,
) -> None:
    """Look at a checkpoint; without one at this machine.

    Of a checkpoint: whether the server would load it, and what it is. Nothing in the folder is
    executed. With --conformance, random frames and actions go through it, to see that it keeps what
    the server relies on: made for plug-in families.

    Of the machine: versions, the device in every numeric mode (a small network beside float64 on
    the CPU), and whether roots can be read. Exit code 1 when anything fails.

        acpc-server doctor ~/checkpoints/lewm-tworooms

        acpc-server doctor --device cuda --checkpoint-root checkpoints --dataset-root datasets
    """
    if checkpoint is not None:
        _look_at(checkpoint.absolute(), weights, max_mib, conformance)
        return
    chosen = choose_device(device)
    table = Table("what", "found")
    table.add_row("acpc-server", CODE_VERSION)
    table.add_row("python, torch", f"{platform.python_version()}, {torch.__version__}")
    table.add_row("device", f"{device_name(chosen)}; {software(chosen)}")
    failing = {str(mode): why for mode, why in self_test(chosen).items()}
    table.add_row("numeric modes", "all right" if not failing else f"fail: {', '.join(failing)}")
    for name, root in (("checkpoint root", checkpoint_root), ("dataset root", dataset_root)):
        if root is not None:
            readable = root.is_dir() and os.access(root, os.R_OK | os.X_OK)
            table.add_row(name, "readable" if readable else "cannot be read")
            if not readable:
                failing[name] = f"{root} is no folder that this user can read"
    console = Console(markup=False, emoji=False, highlight=False)
    console.print(table)
    for name, why in failing.items():
        console.print(f"{name}: {why}", soft_wrap=True)
    if failing:
        raise typer.Exit(1)


def _look_at(folder: Path, weights: str, max_mib: int, conformance: bool) -> None:
    """Print what a checkpoint is; exit code 1 when it breaks a promise."""
    limits, cpu = CheckpointLimits(weights_bytes=max_mib * MEBIBYTE), torch.device("cpu")
    model, serving = load_served(folder.parent, folder.name, weights, device=cpu, limits=limits)
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
        *((f"serving.{name}", value) for name, value in serving),
    ):
        table.add_row(name, str(value))
    table.columns[1].overflow = "fold"  # a digest must not be cut
    Console(markup=False, emoji=False).print(table)
    findings = check_model(model) if conformance else {}
    console = Console(soft_wrap=True, highlight=False)
    for promise, problem in findings.items():
        told = f"BROKEN  {promise}: {problem}" if problem else f"kept    {promise}"
        console.print(told, markup=False)
    if any(findings.values()):
        raise typer.Exit(1)
