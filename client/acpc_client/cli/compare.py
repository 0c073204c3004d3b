"""``acpc compare``."""

from __future__ import annotations

import zipfile
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from numpy.typing import NDArray

from acpc_client.base import DEFAULT_TARGET
from acpc_client.cli import render
from acpc_client.cli.options import Json, Shifts, Target, Timeout, TlsCa, connect, read_shift

_NEEDED = ("history", "action_blocks")
_KNOWN = (*_NEEDED, "observed_future", "views")


def compare(
    *,
    input: Annotated[
        Path,
        typer.Option(exists=True, dir_okay=False, help="NPZ file with the arrays listed above."),
    ],
    checkpoint: Annotated[str, typer.Option(metavar="NAME", help="Checkpoint at the server.")],
    shift: Shifts = [],  # noqa: B006 - typer reads the default, nothing changes it
    draws: Annotated[int, typer.Option(min=1, help="Draws per shift.")] = 1,
    seed: Annotated[int, typer.Option(min=0, help="Seed of the draws.")] = 0,
    target: Target = DEFAULT_TARGET,
    timeout: Timeout = None,
    tls_ca: TlsCa = None,
    as_json: Json = False,
) -> None:
    r"""Do two views of one history lead to the same predicted future?

    The input holds `history` uint8 (h, height, width, 3) and `action_blocks` float32
    (h + H - 1, block width); optional `observed_future` uint8 (H, height, width, 3) adds
    prediction errors; optional `views` uint8 (views, h, height, width, 3) takes the place of
    `--shift`.

    **Examples**

        acpc compare --input pair.npz --checkpoint lewm-pusht \
            --shift gaussian_noise:0.08 --shift blur:15 --draws 5
        acpc compare --input with_views.npz --checkpoint lewm-pusht --json
    """
    perturbations = [read_shift(text) for text in shift]
    arrays = _read(input)
    if bool(shift) == ("views" in arrays):
        found = "both --shift and an array views" if shift else "neither --shift nor an array views"
        raise typer.BadParameter(f"found {found}; give one of them", param_hint="--shift")
    with connect(target, timeout, tls_ca) as client:
        answer = client.compare_pair(
            checkpoint,
            arrays["history"],
            arrays["action_blocks"],
            perturbations=perturbations,
            views=arrays.get("views"),
            draws=draws,
            seed=seed,
            observed_future=arrays.get("observed_future"),
        )
    if as_json:
        render.line(answer.to_json(indent=2))
    else:
        render.comparison(answer, perturbations)


def _read(path: Path) -> dict[str, NDArray[Any]]:
    """The arrays of an NPZ file; objects are never unpickled."""
    try:
        with np.load(path, allow_pickle=False) as archive:
            arrays = {name: archive[name] for name in archive.files}
    except (OSError, ValueError, AttributeError, zipfile.BadZipFile) as error:
        raise typer.BadParameter(f"{path} is not an NPZ file of plain arrays: {error}") from error
    missing = [name for name in _NEEDED if name not in arrays]
    unknown = [name for name in arrays if name not in _KNOWN]
    if missing or unknown:
        wrong = f"missing {', '.join(missing)}" if missing else f"unknown {', '.join(unknown)}"
        wanted = "wanted history, action_blocks and optionally observed_future, views"
        raise typer.BadParameter(f"{path}: {wrong}; {wanted}", param_hint="--input")
    return arrays
