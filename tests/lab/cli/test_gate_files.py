"""Gates: the exit code is that of the worst, and CI systems get JUnit of the common shape."""

from collections import deque
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import pytest
from acpc.contract import Outcome
from acpc.v1 import scoring_service_pb2 as pb
from acpc_command import acpc_command
from acpc_lab.cli.follow import Case, settle
from client_messages import score_response, status, sure
from grpc import StatusCode
from job_counterparty import FAILED, PASSED, JobParty

PLAIN = [
    Case("a under blur:15", Outcome.PASSED, "it holds"),
    Case("b", Outcome.FAILED, "SR 0.5 < 0.95"),
    Case("c", Outcome.UNDECIDED, "25 anchors are too few"),
    Case("d", Outcome.UNSPECIFIED, "INTERNAL: lost"),
]
# The elements and attributes that Jenkins, GitLab and the JUnit 10 schema have in common.
ALLOWED = {
    "testsuites": ({"tests", "failures", "errors", "skipped"}, {"testsuite"}),
    "testsuite": ({"name", "tests", "failures", "errors", "skipped"}, {"testcase"}),
    "testcase": ({"name", "classname"}, {"failure", "error", "skipped", "system-out"}),
    "failure": ({"message", "type"}, set()),
    "error": ({"message", "type"}, set()),
    "skipped": ({"message"}, set()),
    "system-out": (set(), set()),
}


def read(path: Path) -> ET.Element:
    """The root, every element of which has the common shape, with counts that are true."""
    assert path.read_bytes().startswith(b"<?xml version='1.0' encoding='utf-8'?>")
    root = ET.fromstring(path.read_text())  # noqa: S314 - written by the test
    for element in root.iter():
        attributes, children = ALLOWED[element.tag]
        assert set(element.attrib) == attributes
        assert {child.tag for child in element} <= children
    cases = root.findall("testsuite/testcase")
    counted = {"failures": "failure", "errors": "error", "skipped": "skipped"}
    for holder in (root, root[0]):
        assert int(holder.attrib["tests"]) == len(cases)
        for name, tag in counted.items():
            assert int(holder.attrib[name]) == sum(case.find(tag) is not None for case in cases)
    return root


def outcomes(path: Path) -> list[tuple[str, str]]:
    cases = read(path).findall("testsuite/testcase")
    return [(case.attrib["name"], case[0].tag) for case in cases]


def test_a_case_that_did_not_pass_says_why() -> None:
    assert settle("acpc score", PLAIN, Path("gate.xml")) == 4
    root = read(Path("gate.xml"))
    tags = ["system-out", "failure", "skipped", "error"]
    assert outcomes(Path("gate.xml")) == list(zip([c.name for c in PLAIN], tags, strict=True))
    assert [case[0].text for case in root.iter("testcase")] == [case.message for case in PLAIN]


def test_names_and_messages_cannot_leave_their_place() -> None:
    hostile = 'a"><failure/>&\x00\x1b[31m\ud800]]>'
    settle("s", [Case(hostile, Outcome.FAILED, hostile)], Path("gate.xml"))
    (case,) = read(Path("gate.xml")).iter("testcase")
    wanted = 'a"><failure/>&\ufffd\ufffd[31m\ufffd]]>'
    assert (case.attrib["name"], case[0].text) == (wanted, wanted)


def of(outcome: int, confident: int, **evidence: Any) -> Any:
    found = sure(confident, **evidence)
    return score_response(outcome, sr_passed=outcome == PASSED, evidence=found)


SURELY, BARELY = (of(PASSED, PASSED, p_passed=p) for p in (0.001, 0.04))
FAILS, NEARLY = (of(FAILED, FAILED, p_failed=p) for p in (0.001, 0.04))
OPEN = of(PASSED, pb.OUTCOME_UNDECIDED, p_passed=0.3, doubt=pb.DOUBT_SR, anchors_to_decide=240)
UNFIT = status(StatusCode.FAILED_PRECONDITION, "it does not fit")
CONFIDENT = ("--gate", "confident")
OK, FAILURE, SKIPPED = "system-out", "failure", "skipped"
SWEEP, WATCH = ("sweep", "run", "mine.yaml"), ("watch", "run", "--sweep", "gate.yaml", "--once")
# What the two jobs of a command end with, its options, exit code, and the elements of the cases.
MANY: list[tuple[tuple[str, ...], list[Any], tuple[str, ...], int, list[str]]] = [
    *(
        (command, fates, (), code, elements)
        for command in (SWEEP, WATCH)
        for fates, code, elements in (
            ([], 0, [OK, OK]),
            ([FAILED], 3, [FAILURE, OK]),
            ([UNFIT], 4, ["error", OK]),
            ([UNFIT, FAILED], 4, ["error", FAILURE]),
        )
    ),
    (SWEEP, [FAILED], ("--no-gate",), 0, [OK, OK]),
    (SWEEP, [UNFIT, FAILED], ("--no-gate",), 4, ["error", OK]),
    (SWEEP, [SURELY, BARELY], CONFIDENT, 0, [OK, OK]),  # that all pass needs no correction
    (SWEEP, [SURELY, OPEN], CONFIDENT, 5, [OK, SKIPPED]),
    (SWEEP, [OPEN, FAILS], CONFIDENT, 3, [SKIPPED, FAILURE]),
    (SWEEP, [OPEN, FAILS], (*CONFIDENT, "--no-gate"), 0, [OK, OK]),
    (SWEEP, [OPEN, NEARLY], CONFIDENT, 5, [SKIPPED, SKIPPED]),  # that one of two fails does
    (SWEEP, [OPEN, NEARLY], (*CONFIDENT, "--correction", "none"), 3, [SKIPPED, FAILURE]),
    (SWEEP, [SURELY], CONFIDENT, 1, []),  # the second has no evidence
    (WATCH, [OPEN, NEARLY], CONFIDENT, 3, [SKIPPED, FAILURE]),
    (WATCH, [], CONFIDENT, 1, []),
]


@pytest.mark.parametrize(("command", "fates", "options", "code", "elements"), MANY)
def test_the_exit_code_is_that_of_the_worst(
    command: tuple[str, ...], fates: list[Any], options: tuple[str, ...], code: int,
    elements: list[str], many: JobParty,
) -> None:  # fmt: skip
    many.fates["a" if command is SWEEP else "run"] = deque(fates)
    answer = acpc_command()(*command, *options, "--junit", "gate.xml", code=code)
    assert ("no evidence" in answer.stderr) == (code == 1)
    assert code == 1 or [tag for _, tag in outcomes(Path("gate.xml"))] == elements
    assert (UNFIT in fates) == ("it does not fit" in answer.stdout + answer.stderr)
    if command is SWEEP:
        assert ("undecided: score more anchors" in answer.stderr) == (code == 5)
