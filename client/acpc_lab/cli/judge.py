"""``acpc judge``."""

from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer
from acpc.contract import ArgumentError, below, check_score, to_plain
from acpc_client import Result, Score, Thresholds, judge_again, load_result
from acpc_client.errors import FailedPrecondition

from acpc_lab.cli import render
from acpc_lab.cli.command import given, sets
from acpc_lab.cli.gates import JunitOption, conclude
from acpc_lab.cli.options import Gate, GateOption, Printed
from acpc_lab.cli.protocol import calibrated
from acpc_lab.cli.sweep import cells_of, results_table
from acpc_lab.evidence import Correction


class Judge(Printed):
    """What do stored scores say under other thresholds?

    Compares the numbers and intervals of stored scores (`--out`, `-o json`, a sweep's results) with
    thresholds, as the server does. No server is asked, and no values per anchor are needed. The
    intervals keep their confidence: for another one, or for how many anchors would decide it, score
    again. Among several, a checkpoint that is its own reference does not count.

    **Examples**

        acpc judge score.json --t-ir 0.2
        acpc judge noise.sweep/results/*.npz --thresholds thresholds.json

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
        found = []
        for source in self.sources:
            try:
                found.append(one := _judged(source, limits))
                one.answer.gated(self.gate)
            except FailedPrecondition as error:  # of the file, as no server is asked
                raise ArgumentError("RESULT", f"{source}: {error.message}") from error
        requests = [one.score_request for one in found]
        cells = [
            replace(cell, name=source)
            for source, cell in zip(
                self.sources, cells_of(found, requests, Correction.NONE), strict=True
            )
        ]
        if self.json:
            render.result(*found)
        elif len(found) == 1:
            render.score(found[0].answer, wide=self.wide)
        else:
            results_table(cells, self.form, first="file", correction=Correction.NONE)
        conclude("acpc judge", [(cell.name, cell) for cell in cells], self.gate, self.junit)


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
