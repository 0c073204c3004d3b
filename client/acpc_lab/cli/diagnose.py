"""``acpc compare`` and ``acpc certify``."""

from __future__ import annotations

import enum
from typing import Annotated

import typer
from acpc_client import CostReduction, PoolCertificate

from acpc_lab.cli import render
from acpc_lab.cli.options import Exit, Input, Json, Server, Shifts, read_arrays, read_grid

Name = Annotated[str, typer.Option(metavar="NAME", help="Checkpoint at the server.")]
Draws = Annotated[int, typer.Option(min=1, help="Draws per shift.")]
Seed = Annotated[int, typer.Option(min=0, help="Seed of the draws.")]


class Cost(enum.StrEnum):
    """Choices of ``--cost``."""

    SUM = "sum"
    MEAN = "mean"


class Selection(enum.StrEnum):
    """Choices of ``--require``."""

    TOP1 = "top1"
    ELITE = "elite"


def compare(
    *,
    input: Input,
    checkpoint: Name,
    shift: Shifts = [],  # noqa: B006 - typer reads the default, nothing changes it
    draws: Draws = 1,
    seed: Seed = 0,
    server: Server,
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
    needed, optional = ("history", "action_blocks"), ("observed_future", "views")
    arrays = read_arrays(input, needed, optional, shift)
    with server.connect() as client:
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


def certify(
    *,
    input: Input,
    checkpoint: Name,
    shift: Shifts = [],  # noqa: B006 - typer reads the default, nothing changes it
    draws: Draws = 1,
    seed: Seed = 0,
    elites: Annotated[
        int, typer.Option(min=0, help="Size of the elite set; 0: judge the winner only.")
    ] = 0,
    cost: Annotated[
        Cost, typer.Option(help="How the planner reduces the squared distance to the goal.")
    ] = Cost.SUM,
    require: Annotated[
        Selection | None, typer.Option(help="Exit with 3 unless every view is certified.")
    ] = None,
    server: Server,
    as_json: Json = False,
) -> None:
    r"""Can this visual change alter the planner's choice among these candidates?

    The input holds `history` uint8 (h, height, width, 3), `candidates` float32 (candidates, H,
    block width) and `goal`, a frame uint8 (height, width, 3) or a latent float32 (width,);
    `past_blocks` float32 (h - 1, block width) where h is above 1; optional `views` uint8 (views,
    h, height, width, 3) takes the place of `--shift`.

    A certificate is a proof for the views that were drawn: their winner (or elite set) is the
    clean one. Its absence proves nothing: compare it with the winner changes beside it.

    **Examples**

        acpc certify --input pool.npz --checkpoint lewm-pusht \
            --shift gaussian_noise:0.02,0.05,0.08 --draws 5 --elites 30
        acpc certify --input with_views.npz --checkpoint lewm-pusht --json

    A grid of severities, `kind:a,b,c`, also tells the largest one up to which every draw is
    certified. A release can gate on the exit code:

        acpc certify --input pool.npz --checkpoint "$CHECKPOINT" \
            --shift gaussian_noise:0.02 --draws 20 --require top1 || exit 1

    **Exit codes**: 0 done, and certified where required; 3 `--require` was not met; 1 error;
    2 usage.
    """
    if require is Selection.ELITE and elites == 0:
        raise typer.BadParameter("elite needs --elites above 0", param_hint="--require")
    perturbations = read_grid(shift)
    needed = ("history", "candidates", "goal")
    arrays = read_arrays(input, needed, ("past_blocks", "views"), shift)
    with server.connect() as client:
        answer = client.certify_pool(
            checkpoint,
            *(arrays[name] for name in needed),
            past_blocks=arrays.get("past_blocks"),
            perturbations=perturbations,
            views=arrays.get("views"),
            draws=draws,
            seed=seed,
            elite_count=elites,
            cost_reduction=CostReduction[cost.name],
        )
    if as_json:
        render.line(answer.to_json(indent=2))
    else:
        render.pool(answer, perturbations)
    if require is not None and not _met(answer, require):
        render.note(f"not met: --require {require}")
        raise typer.Exit(Exit.NOT_CERTIFIED)


def _met(answer: PoolCertificate, require: Selection) -> bool:
    """Whether there are views and all are certified; an answer without any certifies nothing."""
    chosen = [view.top1 if require is Selection.TOP1 else view.elite for view in answer.views]
    return bool(chosen) and all(view is not None and view.certified for view in chosen)
