"""Puts the commands of ``acpc`` together."""

import os
import sys
import warnings
from collections import UserDict
from typing import Annotated, Any

import typer
from acpc.command_line import reported
from acpc.extras import load_command
from typer.core import TyperCommand

from acpc_lab.cli.command import Command, Group

COMMANDS = {
    "compare": "diagnose.Compare: Do two views of one history lead to the same predicted future?",
    "certify": "diagnose.Certify: "
    "Can this visual change alter the planner's choice among these candidates?",
    "plan-paired": "diagnose.PlanPaired: Does this visual change alter the plan that CEM returns?",
    "score": "score.Score: Is this checkpoint fit to ship under a visual shift?",
    "check-fit": "score.CheckFit: Does this checkpoint predict these data at all?",
    "limit": "score.Limit: Up to which severity does this checkpoint pass?",
    "judge": "stored.Judge: What do stored scores say under other thresholds?",
    "verify": "stored.Verify: Does a stored result come out again? A study, or a job's result.",
    "diff": "stored.Diff: Compares two checkpoints that were scored on the same anchors.",
    "sweep": "sweep.app: Scores checkpoints x shifts x severities x seeds, from one file.",
    "watch": "sweep.Watch: Scores each new checkpoint that appears in a folder, once.",
    "report": "report.Report: Writes the report of a sweep or of jobs: one HTML file.",
    "study": "study.app: The paper's studies on your own checkpoints.",
    "list": "jobs.List: Lists checkpoints, datasets, tasks, shifts, anchor sets or jobs.",
    "show": "jobs.Show: Shows a checkpoint, an anchor set or a job, or follows a job.",
    "cancel": "jobs.Cancel: Cancels a job, or every job of a sweep.",
    "delete": "jobs.Delete: Removes an anchor set, or forgets a job.",
    "load": "jobs.Load: Reads a checkpoint onto the device, or frees its memory.",
    "anchors": "anchors.app: Makes anchor sets, on which many checkpoints are scored.",
    "init": "init.Init: Writes a task file for a dataset, or a sweep file.",
    "config": "connection.Config: Keeps connections to servers as profiles.",
}
"""Where each command lies, a dataclass of its options or a group, and what it is for."""


_ELSEWHERE = {
    "operations": "list jobs, acpc show job, acpc cancel, acpc delete job",
    "jobs": "list jobs",
    "job": "show job",
    "checkpoints": "list checkpoints, acpc show checkpoint, acpc load",
    **{name: f"list {name}" for name in ("datasets", "tasks", "shifts", "anchor-sets")},
}
"""What somebody may mean who names a thing where a command belongs."""


class _Loaded(UserDict[str, Any]):
    """The commands by name, each imported when it is asked for: an import takes longest."""

    def __getitem__(self, name: str) -> Any:  # noqa: ANN401 - click's own
        module, attribute = COMMANDS[name].partition(": ")[0].split(".")
        found = getattr(load_command("acpc", f"acpc_lab.cli.{module}", "lab"), attribute)
        if isinstance(found, typer.Typer):
            return typer.main.get_command(found)
        alone = typer.Typer(rich_markup_mode="markdown", add_completion=False)
        alone.command(name, cls=Command)(found)
        return typer.main.get_command(alone)


class Program(Group):
    """The program, whose commands are imported when they are used."""

    def __init__(self, **attributes: Any) -> None:  # noqa: ANN401 - typer's own
        super().__init__(**attributes)
        self.commands = _Loaded(COMMANDS)

    def list_commands(self, ctx: Any) -> list[str]:  # noqa: ANN401 - click's own
        return list(COMMANDS)

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:  # noqa: ANN401 - click's own
        """The command that is meant; of a thing, the error names the commands that take it."""
        meant = _ELSEWHERE.get(args[0])
        if meant:
            ctx.fail(f"No such command '{args[0]}'. Did you mean acpc {meant}?")
        return super().resolve_command(ctx, args)

    def format_help(self, ctx: Any, formatter: Any) -> None:  # noqa: ANN401 - click's own
        self.commands = {
            name: TyperCommand(name, help=about.partition(": ")[2])
            for name, about in COMMANDS.items()
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

    Every command talks to a server: `--target`, `$ACPC_TARGET`, or a profile of `acpc config`.

    **Examples**

        acpc list checkpoints
        acpc compare lewm-pusht --input pair.npz --shift blur:15
        acpc certify lewm-pusht --input pool.npz --shift gaussian_noise:0.02,0.05
        acpc score lewm-tworooms --reference lewm-tworooms-plain \
            --dataset tworoom.h5 --task tworoom --shift gaussian_noise:0.08
        acpc check-fit lewm-tworooms --dataset tworoom.h5 --task tworoom
        acpc diff before.json after.json
        acpc judge before.json --t-ir 0.2
        acpc verify before.json
        acpc sweep run sweep.yaml
        acpc show job latest --wait
        acpc report noise.sweep --out noise.html

    **Exit codes** of every command

        0    done; what was judged passed, or had no reference to be judged by
        1    the server rejected the call or was away for too long; a folder is
             damaged, full or in use; verify: something differs
        2    wrong usage, a wrong file, scores that cannot be compared
        3    the screen failed, or the checkpoint does not fit its data;
             certify, plan-paired: what was required is not met;
             limit: the weakest severity fails; diff --gate: B is surely worse
        4    a job failed or was cancelled; a cell of a sweep has no score
        5    undecided: too few anchors to say, or nothing was judged
        130  interrupted; jobs that were submitted go on at the server
    """


def main() -> None:
    """Runs the command line; what stdout or a file refuses is one line on stderr."""
    # The C library logs to stderr what the command prints as one typed error.
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")
    warnings.showwarning = lambda text, *_: print(f"warning: {text}", file=sys.stderr)
    with reported(lambda why: print(f"error: FAILED_PRECONDITION: {why}", file=sys.stderr)):
        app()
