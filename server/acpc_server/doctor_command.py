"""acpc-server doctor: what is installed, whether the device computes, whether roots can be read."""

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


def doctor(
    device: Annotated[
        str, typer.Option(help="cpu, cuda, cuda:1 and so on, xpu, mps, or auto")
    ] = "auto",
    checkpoint_root: Annotated[
        Path | None, typer.Option(envvar="ACPC_CHECKPOINT_ROOT", help="folder to look at")
    ] = None,
    dataset_root: Annotated[
        Path | None, typer.Option(envvar="ACPC_DATASET_ROOT", help="folder to look at")
    ] = None,
) -> None:
    """Print versions, test the device in every numeric mode, and look whether roots can be read.

    A small network made on the spot is set beside float64 on the CPU. Exit code 1 when a mode or a
    root fails.

        acpc-server doctor --device cuda --checkpoint-root checkpoints
    """
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
