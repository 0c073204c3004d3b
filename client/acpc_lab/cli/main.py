"""Puts the commands of ``acpc`` together."""

import os
import sys
from collections.abc import Iterator, Mapping
from importlib import import_module
from typing import Annotated, Any

import typer
from acpc.command_line import reported
from typer.core import TyperCommand

from acpc_lab.cli.command import Command, Group

COMMANDS = {
    "compare": (
        "diagnose.Compare",
        "Do two views of one history lead to the same predicted future?",
    ),
    "certify": (
        "diagnose.Certify",
        "Can this visual change alter the planner's choice among these candidates?",
    ),
    "plan-paired": (
        "diagnose.PlanPaired",
        "Does this visual change alter the plan that CEM returns?",
    ),
    "score": ("score.Score", "Is this checkpoint fit to ship under a visual shift?"),
    "check-fit": ("check_fit.CheckFit", "Does this checkpoint predict these data at all?"),
    "limit": ("limit.Limit", "Up to which severity does this checkpoint pass?"),
    "diff": ("diff.Diff", "Compares two checkpoints that were scored on the same anchors."),
    "watch": ("watch.Watch", "Scores each new checkpoint that appears in a folder, once."),
    "report": ("report.Report", "Writes the report of a sweep or of jobs: one HTML file."),
    "datasets": ("listed.Datasets", "Lists the datasets that --dataset can name."),
    "init": ("init.Init", "Writes a task file for a dataset."),
    "tasks": ("listed.Tasks", "Lists the task presets and files that --task can name."),
    "shifts": ("listed.Shifts", "Lists the visual changes that --shift can name."),
    "checkpoints": ("checkpoints.app", "Lists, shows, loads and unloads checkpoints."),
    "anchors": ("anchors.app", "Anchor sets: upload once, score on the same windows."),
    "operations": ("operations.app", "Lists, shows, watches, cancels and deletes jobs."),
    "sweep": ("sweep.app", "Scores checkpoints x shifts x severities x seeds, from one file."),
    "study": ("study_commands.app", "The paper's studies on your own checkpoints."),
}
"""Where each command lies, a dataclass of its options or a group, and what it is for."""


class _Loaded(Mapping[str, Any]):
    """The commands by name, each imported when it is asked for: an import takes longest."""

    def __getitem__(self, name: str) -> Any:  # noqa: ANN401 - click's own
        module, _, attribute = COMMANDS[name][0].partition(".")
        found = getattr(import_module(f"acpc_lab.cli.{module}"), attribute)
        if isinstance(found, typer.Typer):
            return typer.main.get_command(found)
        alone = typer.Typer(rich_markup_mode="markdown", add_completion=False)
        alone.command(name, cls=Command)(found)
        return typer.main.get_command(alone)

    def __iter__(self) -> Iterator[str]:
        return iter(COMMANDS)

    def __len__(self) -> int:
        return len(COMMANDS)


class Program(Group):
    """The program, whose commands are imported when they are used."""

    def __init__(self, **attributes: Any) -> None:  # noqa: ANN401 - typer's own
        super().__init__(**attributes)
        self.commands = _Loaded()  # type: ignore[assignment]

    def list_commands(self, ctx: Any) -> list[str]:  # noqa: ANN401 - click's own
        """The names of the commands, which are not imported for it."""
        return list(COMMANDS)

    def format_help(self, ctx: Any, formatter: Any) -> None:  # noqa: ANN401 - click's own
        """Prints the help without importing the commands."""
        self.commands = {
            name: TyperCommand(name, help=what) for name, (_, what) in COMMANDS.items()
        }
        super().format_help(ctx, formatter)


app = typer.Typer(
    name="acpc",
    cls=Program,
    no_args_is_help=True,
    rich_markup_mode="markdown",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _version(wanted: bool) -> None:
    if wanted:
        from importlib import metadata  # noqa: PLC0415 - takes longer than the command

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
        acpc check-fit lewm-tworooms --dataset tworoom.h5 --task tworoom
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
        3    the screen failed, the checkpoint does not fit its data, `certify --require` was not
             met, or `diff --gate` found it worse
        4    the job failed or was cancelled; a cell of the sweep has no score
        5    undecided: the anchors are too few to say, or nothing was judged
        130  interrupted; a job that was submitted goes on at the server
    """


def main() -> None:
    """Runs the command line; what stdout or a file refuses is one line on stderr."""
    # The C library logs to stderr what the command prints as one typed error.
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")
    with reported(lambda why: print(f"error: FAILED_PRECONDITION: {why}", file=sys.stderr)):
        app()
