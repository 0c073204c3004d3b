"""``acpc judge``."""

from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer
from acpc.contract import ArgumentError, below, check_score, to_plain
from acpc_client import Outcome, Result, Score, Thresholds, judge_again, load_result
from acpc_client.errors import FailedPrecondition

from acpc_lab.cli import render
from acpc_lab.cli.command import given, sets
from acpc_lab.cli.gates import REFERENCE, Case, JunitOption, judged, settle
from acpc_lab.cli.options import Gate, GateOption, Printed
from acpc_lab.cli.protocol import calibrated


class Judge(Printed):
    """What do stored scores say under other thresholds?

    Compares the numbers and intervals of stored scores (`--out`, `-o json`, a sweep's results) with
    thresholds, as the server does. No server is asked, and no values per anchor are needed. The
    intervals keep their confidence: for another one, or for how many anchors would decide it, score
    again. Among several, a checkpoint that is its own reference does not count.

    **Examples**

        acpc judge score.json --t-ir 0.2
        acpc judge noise.sweep/results/*.npz --thresholds thresholds.json --gate confident

    Attributes:
        sources: Scores, as .json or .npz.
        t_ir: Relative IR at most [the file's].
        t_sr: SR at least [the file's].
        thresholds: Those that `acpc study run thresholds --thresholds` wrote.
    """

    sources: Annotated[list[str], typer.Argument(metavar="RESULT...")]
    t_ir: Annotated[float | None, sets(Thresholds, "ir", "--t-ir", help=None)] = None
    t_sr: Annotated[float | None, sets(Thresholds, "sr", "--t-sr", help=None)] = None
    thresholds: Annotated[
        Path | None, typer.Option(metavar="FILE", exists=True, dir_okay=False)
    ] = None
    gate: GateOption = Gate.POINT
    junit: JunitOption = None

    def __call__(self) -> None:
        read = {} if self.thresholds is None else vars(calibrated(self.thresholds))
        limits = read | given(ir=self.t_ir, sr=self.t_sr)
        found, cases = [], []
        for source in self.sources:
            try:
                found.append(one := _judged(source, limits))
                cases.append(judged(source, one.answer, self.gate))
            except FailedPrecondition as error:  # of the file, as no server is asked
                raise ArgumentError("RESULT", f"{source}: {error.message}") from error
        compared = [one.answer.is_reference for one in found]
        if all(compared):  # as in a sweep, a reference is there for the others
            compared = [False] * len(found)
        cases = [
            Case(source, Outcome.PASSED, REFERENCE) if alone else case
            for source, case, alone in zip(self.sources, cases, compared, strict=True)
        ]
        if self.json:
            render.result(*found)
        elif len(found) == 1:
            render.score(found[0].answer, wide=self.wide)
        else:
            titles = ("file", "checkpoint", "relative IR", "SR", "verdict", "how sure")
            render.table(titles, map(_row, self.sources, found, compared))
        raise typer.Exit(settle("acpc judge", cases, self.junit))


def _judged(source: str, limits: dict[str, Any]) -> Result:
    """A stored score by thresholds, of which those that are not given are its own.

    Raises ArgumentError: The file holds no score, or a number that no measurement gives.
    """
    held = load_result(source)
    score = held.answer
    if not isinstance(score, Score):
        wanted = "wanted a score, as acpc score and acpc show job write it with --out"
        raise ArgumentError("RESULT", f"{source} holds a result of kind {held.kind}, {wanted}")
    with below(source):
        check_score(score)
    wanted_limits = replace(score.verdict.thresholds, **limits)
    score = judge_again(score, wanted_limits)
    request = {**held.request, "thresholds": to_plain(wanted_limits)}
    return replace(held, answer=score, request=request)


def _row(source: str, held: Result, compared: bool) -> tuple[str, ...]:
    score = held.answer
    verdict, found = score.verdict, score.evidence
    numbers = (render.near(verdict, "ir_relative", verdict.ir_relative),
               render.near(verdict, "sr", score.checkpoint.sr))  # fmt: skip
    sure = found.confident_outcome.name if found else "-"
    name = score.checkpoint.checkpoint.name
    said = ("reference", "reference") if compared else (verdict.outcome.name, sure)
    return (source, name, *numbers, *said)
