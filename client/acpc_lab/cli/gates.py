"""Gates: what is judged, the exit code that follows, and a JUnit file for CI systems."""

import re
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NamedTuple, NoReturn
from xml.etree import ElementTree as ET

import typer
from acpc_client import Outcome, Score, write_whole

from acpc_lab.cli import render
from acpc_lab.cli.command import Exit
from acpc_lab.cli.options import Followed, Gate, GateOption, ScoreOut, require_folder

if TYPE_CHECKING:
    from acpc_lab.sweeps import CellResult

JunitOption = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE",
        dir_okay=False,
        callback=require_folder,
        help="Also write the verdicts as a JUnit file for the CI system, a test case each; "
        "undecided ones are skipped.",
    ),
]


class ScoreOptions(Followed):
    """What is done with the score of a job that is followed."""

    gate: GateOption = Gate.POINT
    junit: JunitOption = None
    out: ScoreOut = None


REFERENCE = "the reference: there for comparison, not judged"
"""What is said of a checkpoint that is its own reference."""
# The element of JUnit and the exit code of what did not pass, the worst first.
_ENDS = {
    Outcome.UNSPECIFIED: ("error", Exit.JOB_ENDED_BADLY),
    Outcome.FAILED: ("failure", Exit.SCREEN_FAILED),
    Outcome.DOES_NOT_FIT: ("failure", Exit.SCREEN_FAILED),
    Outcome.UNDECIDED: ("skipped", Exit.UNDECIDED),
}
_COUNTS = {"failures": "failure", "errors": "error", "skipped": "skipped"}
_TYPES = {"failure": {"type": "failed"}, "error": {"type": "error"}}
# What XML 1.0 cannot hold, escaped or not.
_FORBIDDEN = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


class Case(NamedTuple):
    """One verdict of a gate: of what, which, and why; without a score it is UNSPECIFIED."""

    name: str
    outcome: Outcome
    message: str


def settle(suite: str, cases: Sequence[Case], junit: Path | None) -> Exit:
    """Writes the JUnit file, where one is wanted; returns the exit code of the worst case.

    Raises typer.BadParameter: The file cannot be written.
    """
    if junit is not None:
        try:
            write_whole(junit, _junit(suite, cases))
        except OSError as error:
            wrong = f"cannot write {junit}: {error.strerror}"
            raise typer.BadParameter(wrong, param_hint="--junit") from error
    outcomes = {case.outcome for case in cases}
    return next((code for outcome, (_, code) in _ENDS.items() if outcome in outcomes), Exit.OK)


def _junit(suite: str, cases: Sequence[Case]) -> bytes:
    elements = [_ENDS.get(case.outcome, ("system-out", Exit.OK))[0] for case in cases]
    counted = Counter(elements)
    numbers = {"tests": str(len(cases))}
    numbers |= {name: str(counted[element]) for name, element in _COUNTS.items()}
    root = ET.Element("testsuites", numbers)
    held = ET.SubElement(root, "testsuite", {"name": suite, **numbers})
    for case, element in zip(cases, elements, strict=True):
        name, message = (_FORBIDDEN.sub("\ufffd", text) for text in (case.name, case.message))
        made = ET.SubElement(held, "testcase", {"name": name, "classname": suite})
        about = {"message": message} if element in _COUNTS.values() else {}
        ET.SubElement(made, element, about | _TYPES.get(element, {})).text = message
    ET.indent(root)
    content: bytes = ET.tostring(root, encoding="utf-8", xml_declaration=True)
    return content + b"\n"


def conclude(
    suite: str, named: "Sequence[tuple[str, CellResult]]", gate: Gate | None, junit: Path | None
) -> NoReturn:
    """Judges cells by a gate, writes the JUnit file, and exits with the code of the worst.

    A reference among others is there for comparison. Without a gate nothing that has a score fails.
    Of several the numbers decide while some have no score.

    Raises typer.Exit: Always; FailedPrecondition: The confident gate, where a score has no
    evidence.
    """
    cells, by = [cell for _, cell in named], gate
    if len(cells) > 1 and not all(cell.score for cell in cells):
        by = gate and Gate.POINT
    alone = all(cell.is_reference for cell in cells)
    cases = [Case(name, _outcome(cell, by, alone), _why(cell, gate, alone)) for name, cell in named]
    code = settle(suite, cases, junit)
    counts = Counter(case.outcome for case in cases)
    missing = sum(cell.score is None for cell in cells)
    if counts[Outcome.UNSPECIFIED] > missing:
        render.problem("the server gave no outcome this client knows; update the client")
        code = Exit.ERROR
    elif missing:
        render.note(f"{missing} of {len(cases)} have no score")
    elif code is Exit.SCREEN_FAILED and len(cases) > 1:
        surely = "surely " if gate is Gate.CONFIDENT else ""
        passed = counts[Outcome.PASSED] + counts[Outcome.UNDECIDED]
        render.note(f"{len(cases) - passed} of {len(cases)} {surely}fail the screen")
    elif code is Exit.UNDECIDED:
        judged = [cell.score for cell in cells if cell.score and (alone or not cell.is_reference)]
        bare = any(score.verdict.outcome is Outcome.INCONCLUSIVE for score in judged)
        more = "nothing passes without a reference; name one" if bare else "score more anchors"
        render.note(f"{counts[Outcome.UNDECIDED]} of {len(cases)} undecided: {more}")
    raise typer.Exit(code)


def _outcome(cell: "CellResult", gate: Gate | None, alone: bool) -> Outcome:
    """What a gate makes of a cell; the confident one has judged nothing without a reference."""
    if cell.score is None or gate is None:
        return Outcome.PASSED if cell.score else Outcome.UNSPECIFIED
    if cell.among is not None or (cell.is_reference and not alone):
        return cell.gated(gate)
    found = cell.score.gated(gate)
    unjudged = gate is Gate.CONFIDENT and found is Outcome.INCONCLUSIVE
    return Outcome.UNDECIDED if unjudged else found


def _why(cell: "CellResult", gate: Gate | None, alone: bool) -> str:
    if cell.score is None:
        return cell.problem or f"{cell.state.value}: it has no score"
    return REFERENCE if cell.is_reference and not alone else reason(cell.score, gate)


def reason(score: Score, gate: str | None) -> str:
    """Why a score passes or not, beginning with the verdict that the gate goes by."""
    if gate == Gate.CONFIDENT and score.certainty:
        return f"{score.certainty} ({score.verdict.summary})"
    return score.headline()
