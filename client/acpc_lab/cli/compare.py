"""``acpc compare``."""

from __future__ import annotations

from typing import Annotated

import typer
from acpc_client import DEFAULT_TARGET

from acpc_lab.cli import render
from acpc_lab.cli.arrays import Input, check_views, read
from acpc_lab.cli.options import Json, Shifts, Target, Timeout, TlsCa, connect, read_grid


def compare(
    *,
    input: Input,
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
    perturbations = read_grid(shift)
    arrays = read(input, ("history", "action_blocks"), ("observed_future", "views"))
    check_views(shift, arrays)
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
