"""What gates write for CI systems: JUnit of the common shape."""

from collections.abc import Sequence
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest
from acpc.contract import Outcome
from acpc.v1 import scoring_service_pb2 as pb
from acpc_command import Acpc
from acpc_lab.cli.gates import Case, settle
from client_counterparty import Counterparty
from client_messages import operation, status
from grpc import StatusCode
from score_scripts import SCORE, UNDECIDED, ended

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


def test_a_case_that_did_not_pass_says_why(tmp_path: Path) -> None:
    assert settle("acpc score", PLAIN, tmp_path / "gate.xml") == 4
    root = read(tmp_path / "gate.xml")
    tags = ["system-out", "failure", "skipped", "error"]
    assert outcomes(tmp_path / "gate.xml") == list(zip([c.name for c in PLAIN], tags, strict=True))
    assert [case[0].text for case in root.iter("testcase")] == [case.message for case in PLAIN]


def test_names_and_messages_cannot_leave_their_place(tmp_path: Path) -> None:
    hostile = 'a"><failure/>&\x00\x1b[31m\ud800]]>'
    settle("s", [Case(hostile, Outcome.FAILED, hostile)], tmp_path / "gate.xml")
    (case,) = read(tmp_path / "gate.xml").iter("testcase")
    wanted = 'a"><failure/>&\ufffd\ufffd[31m\ufffd]]>'
    assert (case.attrib["name"], case[0].text) == (wanted, wanted)


@pytest.mark.parametrize(
    ("command", "outcome", "confident", "tag", "code"),
    [
        (SCORE, pb.OUTCOME_PASSED, pb.OUTCOME_PASSED, "system-out", 0),
        (SCORE, pb.OUTCOME_FAILED, pb.OUTCOME_FAILED, "failure", 3),
        (SCORE, pb.OUTCOME_PASSED, pb.OUTCOME_UNDECIDED, "skipped", 5),
        (SCORE, pb.OUTCOME_DOES_NOT_FIT, pb.OUTCOME_DOES_NOT_FIT, "failure", 3),
        (["show", "job", "mine", "--wait"], pb.OUTCOME_PASSED, pb.OUTCOME_UNSPECIFIED, "error", 1),
    ],
)
def test_a_score_is_a_case(
    command: Sequence[str], outcome: int, confident: int, tag: str, code: int,
    acpc: Acpc, counterparty: Counterparty, tmp_path: Path,
) -> None:  # fmt: skip
    counterparty.script.append(ended(outcome, confident, **UNDECIDED))
    acpc(*command, "--gate", "confident", "--junit", tmp_path / "gate.xml", code=code)
    name = "trained under gaussian_noise:0.08" if command is SCORE else "trained"
    assert outcomes(tmp_path / "gate.xml") == [(name, tag)]


def test_a_job_that_fails_is_an_error_of_the_file_too(
    acpc: Acpc, counterparty: Counterparty, tmp_path: Path
) -> None:
    lost = status(StatusCode.DATA_LOSS, "the dataset is gone")
    failed = operation("operations/mine", 1, state=pb.JOB_STATE_FAILED, error=lost)
    counterparty.script.append(failed)
    acpc(*SCORE, "--junit", tmp_path / "gate.xml", code=4)
    (case,) = read(tmp_path / "gate.xml").iter("testcase")
    assert (case[0].tag, case[0].text) == ("error", "DATA_LOSS: the dataset is gone")
    acpc(*SCORE, "--no-wait", "--junit", tmp_path / "gate.xml", code=2)
    acpc(*SCORE, "--junit", tmp_path / "no" / "gate.xml", code=2)


@pytest.mark.parametrize(("option", "name"), [("--junit", "gate.xml"), ("--out", "score.json")])
def test_a_file_that_cannot_be_written_is_refused_before_anything_is_asked(
    acpc: Acpc, counterparty: Counterparty, option: str, name: str
) -> None:
    counterparty.script.append(ended(pb.OUTCOME_PASSED, pb.OUTCOME_PASSED, **UNDECIDED))
    # Nobody may write there, nor root.
    answer = acpc(*SCORE, "-o", "json", option, f"/proc/{name}", code=2)
    assert answer.stdout == ""
    assert f"cannot write /proc/{name}" in answer.stderr
    assert len(counterparty.script) == 1
