"""``acpc judge``."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer
from acpc.contract import ArgumentError, below, check_score, to_plain
from acpc_client import Result, Score, Thresholds, judge_again, load_result
from acpc_client.errors import FailedPrecondition

from acpc_lab.cli import render
from acpc_lab.cli.command import given, sets
from acpc_lab.cli.follow import exit_of
from acpc_lab.cli.gates import REFERENCE, Case, JunitOption, by_gate, case_of, publish, reason
from acpc_lab.cli.options import Gate, GateOption, Printed, reported
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

    def run(self) -> None:
        """Judges each, and exits for the worst."""
        with reported():
            read = {} if self.thresholds is None else vars(calibrated(self.thresholds))
            limits = read | given(ir=self.t_ir, sr=self.t_sr)
            found, outcomes = [], []
            for source in self.sources:
                try:
                    found.append(one := _judged(source, limits))
                    outcomes.append(by_gate(one.answer.gated(self.gate), self.gate))
                except FailedPrecondition as error:  # of the file, as no server is asked
                    raise ArgumentError("RESULT", f"{source}: {error.message}") from error
        if self.json:
            for one in found:
                render.result(one)
        elif len(found) == 1:
            render.score(found[0].answer, wide=self.wide)
        else:
            titles = ("file", "checkpoint", "relative IR", "SR", "verdict", "how sure")
            pairs = zip(self.sources, found, strict=True)
            render.table(titles, [_row(*pair, _only_compared(pair[1], found)) for pair in pairs])
        cases = [
            Case(name, "passed", REFERENCE)
            if _only_compared(one, found)
            else case_of(name, outcome, reason(one.answer, self.gate))
            for name, outcome, one in zip(self.sources, outcomes, found, strict=True)
        ]
        publish("acpc judge", cases, self.junit)
        judged = zip(outcomes, found, strict=True)
        raise typer.Exit(exit_of([is_ for is_, one in judged if not _only_compared(one, found)]))


def _judged(source: str, limits: dict[str, Any]) -> Result:
    """A stored score by thresholds, of which those that are not given are its own.

    Raises ArgumentError: The file holds no score, or a number that no measurement gives.
    """
    held = load_result(source)
    score = held.answer
    if not isinstance(score, Score):
        wanted = "wanted a score, as acpc score and acpc show job write it with --out"
        raise ArgumentError("RESULT", f"{source} holds a {held.kind}, {wanted}")
    with below(source):
        check_score(score)
    wanted_limits = replace(score.verdict.thresholds, **limits)
    score = judge_again(score, wanted_limits)
    request = {**held.request, "thresholds": to_plain(wanted_limits)}
    return replace(held, answer=score, request=request)


def _only_compared(one: Result, found: Sequence[Result]) -> bool:
    """Whether a score is of a reference, and others with it are not, as in a sweep."""
    return one.answer.is_reference and not all(other.answer.is_reference for other in found)


def _row(source: str, held: Result, compared: bool) -> tuple[str, ...]:
    score = held.answer
    verdict, found = score.verdict, score.evidence
    numbers = (render.near(verdict, "ir_relative", verdict.ir_relative),
               render.near(verdict, "sr", score.checkpoint.sr))  # fmt: skip
    sure = found.confident_outcome.name if found else "-"
    name = score.checkpoint.checkpoint.name
    said = ("reference", "reference") if compared else (verdict.outcome.name, sure)
    return (source, name, *numbers, *said)
