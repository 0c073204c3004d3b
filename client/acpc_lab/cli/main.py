"""Puts the commands of ``acpc`` together."""

from __future__ import annotations

import os
from importlib import metadata
from typing import Annotated

import typer
from acpc.command_line import reported
from acpc_client.errors import FailedPrecondition

from acpc_lab.cli import anchors, checkpoints, operations, render, study, sweep
from acpc_lab.cli.commands import Group, command
from acpc_lab.cli.diagnose import certify, compare, plan_paired
from acpc_lab.cli.diff import diff
from acpc_lab.cli.init import init
from acpc_lab.cli.limit import limit
from acpc_lab.cli.listed import datasets, tasks
from acpc_lab.cli.report import report
from acpc_lab.cli.score import score
from acpc_lab.cli.shifts import shifts
from acpc_lab.cli.watch import watch

app = typer.Typer(
    name="acpc",
    cls=Group,
    no_args_is_help=True,
    rich_markup_mode="markdown",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
for function in (
    compare, certify, plan_paired, score, limit, diff, watch, report, datasets, init, tasks, shifts,
):  # fmt: skip
    command(app)(function)
app.add_typer(checkpoints.app, name="checkpoints")
app.add_typer(anchors.app, name="anchors")
app.add_typer(operations.app, name="operations")
app.add_typer(sweep.app, name="sweep")
app.add_typer(study.app, name="study")


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"acpc {metadata.version('acpc')}")
        raise typer.Exit


@app.callback()
def acpc(
    target: Annotated[
        str | None,
        typer.Option(metavar="HOST:PORT", help="The server; may also stand after the command."),
    ] = None,
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    r"""Tells whether a frozen world model's predictions survive a visual change.

    Every command talks to a server, at `--target` or `$ACPC_TARGET`.

    **Examples**

        acpc checkpoints list
        acpc compare --input pair.npz --checkpoint lewm-pusht --shift blur:15
        acpc certify --input pool.npz --checkpoint lewm-pusht --shift gaussian_noise:0.02,0.05
        acpc plan-paired --input moment.npz --checkpoint lewm-pusht --shift blur:15
        acpc score lewm-tworooms --reference lewm-tworooms-plain \
            --dataset tworoom.h5 --task tworoom --shift gaussian_noise:0.08
        acpc limit lewm-tworooms --reference lewm-tworooms-plain --anchor-set latest --shift blur
        acpc diff before.json after.json
        acpc init rooms.lance --output rooms.yaml
        acpc anchors upload windows.npz
        acpc sweep run sweep.yaml
        acpc watch /data/checkpoints --sweep sweep.yaml
        acpc operations watch operations/5f0c9a
        acpc study drift --checkpoints checkpoints.csv --out drift/
        acpc report noise.sweep --output noise.html

    **Exit codes**

        0    done; the screen passed, or was inconclusive without a reference
        1    the server rejected the call, or could not answer it
        2    wrong usage
        3    the screen failed, or `certify --require` was not met
        4    the job failed or was cancelled; a cell of the sweep has no score
        5    undecided: with `--gate confident`, the anchors are too few to say
        130  interrupted; a job that was submitted goes on at the server
    """


def main() -> None:
    """Runs the command line; what stdout or a file refuses is one line on stderr."""
    # The C library logs to stderr what the command prints as one typed error.
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")
    with reported(lambda why: render.error(FailedPrecondition(why))):
        app()
