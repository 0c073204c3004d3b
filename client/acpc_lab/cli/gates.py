"""Reports a gate's decision to a CI system: a JUnit file, which GitLab, Jenkins and others read."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal
from xml.etree import ElementTree as ET

import typer
from acpc_client import Outcome, Score, write_whole

from acpc_lab.cli.options import Gate, require_folder

if TYPE_CHECKING:
    from acpc_lab.sweeps import SweepResults

State = Literal["passed", "failed", "undecided", "error"]


JunitOption = Annotated[
    Path | None,
    typer.Option(
        "--junit",
        metavar="FILE",
        dir_okay=False,
        callback=require_folder,
        help="Also write what the gate decided here, as JUnit XML for a CI system: one test case "
        "per checkpoint and shift; undecided ones are skipped.",
    ),
]

_ELEMENTS = {"failed": "failure", "undecided": "skipped", "error": "error"}
REFERENCE = "the reference: there for comparison, not judged"
"""What is said of a checkpoint that is its own reference."""
# What XML 1.0 cannot hold, escaped or not.
_FORBIDDEN = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


@dataclass(frozen=True)
class Case:
    """One verdict of a gate.

    Attributes:
        name: What was judged.
        state: How it ended; whatever is neither failed, undecided nor in error passed.
        message: Why, in a sentence.
    """

    name: str
    state: State
    message: str


def publish(suite: str, cases: Sequence[Case], junit: Path | None) -> None:
    """Writes the JUnit file, where one is wanted.

    Raises typer.BadParameter: The file cannot be written.
    """
    if junit is not None:
        try:
            write_whole(junit, _junit(suite, cases))
        except OSError as error:
            wrong = f"cannot write {junit}: {error.strerror}"
            raise typer.BadParameter(wrong, param_hint="--junit") from error


def _junit(suite: str, cases: Sequence[Case]) -> bytes:
    counted = Counter(_ELEMENTS.get(case.state, "passed") for case in cases)
    counts = {"failures": "failure", "errors": "error", "skipped": "skipped"}
    numbers = {"tests": str(len(cases))} | {
        name: str(counted[element]) for name, element in counts.items()
    }
    root = ET.Element("testsuites", numbers)
    held = ET.SubElement(root, "testsuite", {"name": suite, **numbers})
    for case in cases:
        name, message = (_FORBIDDEN.sub("\ufffd", text) for text in (case.name, case.message))
        made = ET.SubElement(held, "testcase", {"name": name, "classname": suite})
        if case.state in _ELEMENTS:
            about = {"message": message}
            if case.state != "undecided":
                about["type"] = case.state
            ET.SubElement(made, _ELEMENTS[case.state], about).text = message
        else:
            ET.SubElement(made, "system-out").text = message
    ET.indent(root)
    content: bytes = ET.tostring(root, encoding="utf-8", xml_declaration=True)
    return content + b"\n"


def by_gate(outcome: Outcome, gate: str) -> Outcome:
    """The outcome a gate goes by: the confident one has judged nothing without a reference."""
    unjudged = gate == Gate.CONFIDENT and outcome is Outcome.INCONCLUSIVE
    return Outcome.UNDECIDED if unjudged else outcome


def case_of(name: str, outcome: Outcome, message: str) -> Case:
    """The case of what a gate decided."""
    states: dict[Outcome, State] = {
        Outcome.FAILED: "failed",
        Outcome.DOES_NOT_FIT: "failed",
        Outcome.UNDECIDED: "undecided",
        Outcome.UNSPECIFIED: "error",
    }
    return Case(name, states.get(outcome, "passed"), message)


def reason(score: Score, gate: str | None) -> str:
    """Why a score passes or not, beginning with the verdict that the gate goes by."""
    if gate == Gate.CONFIDENT and score.certainty:
        return f"{score.certainty} ({score.verdict.summary})"
    return score.headline()


def cases_of(results: SweepResults, gate: Gate | None) -> list[Case]:
    """A case per cell, as the gate over all of them counts it; without a gate nothing fails."""
    cases = []
    for item, outcome in zip(results, results.gated(gate or Gate.POINT), strict=True):
        if item.score is None:
            message = f"{item.state.value}: {item.error or 'it has no score'}"
        elif item.is_reference:
            message = REFERENCE
        else:
            message = reason(item.score, gate)
        allowed = gate is None and item.score is not None
        cases.append(case_of(item.cell.title, Outcome.PASSED if allowed else outcome, message))
    return cases
