"""acpc-server doctor: whether this machine's device computes what the server says it does."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import torch
import typer
from acpc.console import Console
from rich.table import Table

from acpc_server.engine import (
    UNTRIED,
    DeviceCheck,
    DeviceClient,
    choose_device,
    examine,
)
from acpc_server.errors import FailedPrecondition
from acpc_server.models import FrozenWorldModel, load_checkpoint, sample_model
from acpc_server.observe import Metrics

CPU = torch.device("cpu")


def doctor(
    device: Annotated[
        str, typer.Option(help="cpu, cuda, cuda:1 and so on, xpu, mps, or auto")
    ] = "auto",
    checkpoint: Annotated[
        Path | None,
        typer.Option(
            help="checkpoint folder to try it on; without one, a small network made on the spot",
            exists=True,
            file_okay=False,
        ),
    ] = None,
    fast_path: Annotated[
        bool, typer.Option(help="on an accelerator, also try a captured graph of a pool")
    ] = True,
    json_file: Annotated[
        Path | None, typer.Option("--json", help="file for the same as JSON", dir_okay=False)
    ] = None,
) -> None:
    """Try a device: does it compute what it should, and how fast?

    Every numeric mode is set beside float64 on the CPU, every kind of draw beside the CPU's, and a
    captured graph beside the computation it stands for. Rates of encode and pools
    are set beside the matrix product's, which is what the device can do at best; one that is low is
    printed and fails nothing.

    Exit code 1 when anything fails or could not be tried. Nothing else should compute on the device
    meanwhile: run it before the server, not beside it. With --checkpoint the errors and shares are
    those of your model; without it they are those of a network that fits anywhere.

    acpc-server doctor --device cuda --checkpoint checkpoints/pusht --json doctor.json
    """
    chosen = choose_device(device)
    with _written(json_file):
        if json_file is not None:
            json_file.open("a").close()  # before minutes of work
    engine = DeviceClient(chosen, Metrics())
    try:
        found = list(
            examine(
                engine,
                _model(checkpoint, chosen),
                _model(checkpoint, CPU),
                judged=checkpoint is not None,
                fast_path=fast_path and chosen.type != "cpu",
            )
        )
    finally:
        engine.close()
    _print(found)
    with _written(json_file):
        if json_file is not None:
            json_file.write_text(json.dumps([_plain(one) for one in found], indent=2) + "\n")
    if any(one.failed or one.verdict == UNTRIED for one in found):
        raise typer.Exit(1)


@contextmanager
def _written(path: Path | None) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise FailedPrecondition(
            f"--json {path} cannot be written ({error.strerror}); name another file"
        ) from error


def _model(checkpoint: Path | None, device: torch.device) -> FrozenWorldModel:
    if checkpoint is None:
        return sample_model(device)
    folder = checkpoint.absolute()
    return load_checkpoint(folder.parent, folder.name, device=device)


def _plain(one: DeviceCheck) -> dict[str, str | float | None]:
    """As JSON has it, which knows no NaN."""
    finite = one.value is not None and math.isfinite(one.value)
    return {**asdict(one), "value": one.value if finite else None}


def _print(found: list[DeviceCheck]) -> None:
    table = Table("what", "measured", "expected", "verdict")
    for one in found:
        table.add_row(one.what, one.measured, one.expected, one.verdict)
    console = Console(markup=False, emoji=False, highlight=False)
    console.print(table)
    for one in found:
        if one.advice:
            console.print(f"{one.what}: {one.advice}", soft_wrap=True)
