"""Follows a job to its end: live progress, verdict, exit code."""

from collections.abc import Collection, Iterator
from contextlib import contextmanager
from pathlib import Path

import typer
from acpc_client import (
    AcpcClient,
    Operation,
    Outcome,
    Progress,
    StudyResult,
    save_result,
)
from acpc_client.errors import ServerAway, extended

from acpc_lab.cli import render
from acpc_lab.cli.gates import Case, JunitOption, by_gate, case_of, publish, reason
from acpc_lab.cli.options import (
    Exit,
    Followed,
    Gate,
    GateOption,
    ScoreOut,
    interruptible,
)
from acpc_lab.cli.progress import counted


class ScoreOptions(Followed):
    """What is done with the score of a job that is followed."""

    gate: GateOption = Gate.POINT
    junit: JunitOption = None
    out: ScoreOut = None


@contextmanager
def submitting(request_id: str) -> Iterator[str]:
    """Says how to find the job again, where its submission ends without an answer.

    Raises typer.Exit: It was interrupted; ServerAway: The server was away for too long.
    """
    again = f"it may have the job: give the same command with --request-id {request_id}"
    try:
        with interruptible(f"interrupted before the server answered; {again}"):
            yield request_id
    except ServerAway as away:
        if away.sent:
            raise extended(away, again) from None
        raise


def follow(client: AcpcClient, name: str, *, timeout: float | None, out: Path | None) -> Operation:
    """Shows a job until it ends, keeps its answer in a file, and returns it.

    Raises typer.Exit: It was interrupted; AcpcError: The job cannot be watched, or ``timeout``
    passed.
    """
    try:
        with counted("waiting") as show:
            for last in client.operations.watch(name, timeout=timeout):
                name, progress = last.name, last.progress
                phase = progress.phase or last.state.name.lower()
                show(phase, progress.completed, progress.total, _left(progress))
    except KeyboardInterrupt as interrupt:
        render.note(f"interrupted: {name} goes on at the server")
        render.note(f"  follow it: acpc show job {name} --wait")
        render.note(f"  cancel it: acpc cancel {name}")
        raise typer.Exit(Exit.INTERRUPTED) from interrupt
    if out is not None and last.error is None:
        save_result(last, out)
    return last


def finish(operation: Operation, form: ScoreOptions, name: str = "") -> None:
    """Prints how a job ended, and exits accordingly; ``name`` stands for the checkpoint.

    Raises typer.Exit: Always; AcpcError: The job ended with an answer that cannot be read.
    """
    name = name or operation.checkpoint.name or operation.name
    gate, junit = form.gate, form.junit
    if form.json:
        render.result(operation)
    if operation.error is not None:
        failure = f"{operation.error.code}: {operation.error.message}"
        publish("acpc score", [Case(name, "error", failure)], junit)
        render.error(operation.error)
        render.note(f"  {operation.name} {operation.state.name.lower()}")
        raise typer.Exit(Exit.JOB_ENDED_BADLY)
    if operation.study is not None:
        if not form.json:
            render.prose(study_line(operation.study))
        raise typer.Exit(Exit.OK)
    score = operation.result()
    if not form.json:
        render.score(score, asked=render.asked(operation), wide=form.wide)
    outcome = by_gate(score.gated(gate), gate)
    publish("acpc score", [case_of(name, outcome, reason(score, gate))], junit)
    if outcome is Outcome.UNDECIDED and score.verdict.outcome is Outcome.INCONCLUSIVE:
        render.note("undecided: nothing passes without a reference; name one: --reference")
    if outcome is Outcome.UNSPECIFIED:
        render.problem("the server gave no outcome this client knows; update the client")
        raise typer.Exit(Exit.ERROR)
    raise typer.Exit(exit_of([outcome]))


def exit_of(outcomes: Collection[Outcome]) -> Exit:
    """The exit code of the worst of some outcomes; one without a score counts as no outcome."""
    for outcome, code in (
        (Outcome.UNSPECIFIED, Exit.JOB_ENDED_BADLY),
        (Outcome.FAILED, Exit.SCREEN_FAILED),
        (Outcome.DOES_NOT_FIT, Exit.SCREEN_FAILED),
        (Outcome.UNDECIDED, Exit.UNDECIDED),
    ):
        if outcome in outcomes:
            return code
    return Exit.OK


def study_line(study: StudyResult) -> str:
    """A study in one line."""
    names = ", ".join(study.columns)
    return f"{study.kind} study of {study.checkpoint.name}: {study.rows} rows of {names}"


def _left(progress: Progress) -> str:
    seconds = progress.seconds_left
    if seconds is None:
        return ""
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest} s left" if minutes else f"{rest} s left"
