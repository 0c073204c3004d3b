"""``acpc diff``: what is printed of two scores, and what is refused."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from acpc.contract import ScoreProtocol, to_plain
from acpc.v1 import scoring_service_pb2 as pb
from acpc_client import Operation, Score, save_result
from acpc_command import Acpc
from client_messages import operation
from report_samples import judged, side


def score(name: str, push: float, **receipt: object) -> Score:
    made = judged(side(f"two-{name}", push, 2.0), side("two-base", 2.0, 2.0), shift="noise")
    parameters = {"protocol": to_plain(ScoreProtocol())}
    return replace(made, receipt=replace(made.receipt, parameters=parameters, **receipt))


def job(found: Score) -> Any:
    response = found.to_message()
    return operation("operations/b", 4, state=pb.JOB_STATE_SUCCEEDED, response=response)


@pytest.fixture
def before(tmp_path: Path) -> Path:
    save_result(Operation.from_message(job(score("before", 0.6))), tmp_path / "before.json")
    return tmp_path / "before.json"


def test_a_file_and_a_job_are_compared(acpc: Acpc, before: Path) -> None:
    acpc.server.script.append(job(score("after", 0.3)))
    answer = acpc("diff", before, "b", "--protocol", "{confidence: 0.9}")
    assert acpc.server.requests["GetOperation"][0].name == "operations/b"
    for text in ("A: two-before", "B: two-after", "90 % interval", "relative IR", "lower"):
        assert text in answer.stdout
    assert "SR: share of anchors still apart" in answer.stdout
    assert "on 100 anchors, at 90 % of new trajectories like these: IR is lower" in answer.stdout
    assert "warning: trajectories are not known" in answer.stderr


def test_two_files_need_no_server(acpc: Acpc, before: Path, tmp_path: Path) -> None:
    save_result(score("after", 0.3), tmp_path / "after.npz")
    answer = acpc(
        "diff", before, tmp_path / "after.npz", "-o", "json", "--protocol", "{resamples: 300}"
    )
    found = json.loads(answer.stdout)
    assert (found["first"], found["second"]) == ("two-before", "two-after")
    assert found["ir_raw"]["change"] < 0 and found["ir_raw"]["interval"]["upper"] < 0
    assert not acpc.server.requests


def test_what_cannot_be_compared_is_wrong_usage(acpc: Acpc, before: Path, tmp_path: Path) -> None:
    save_result(score("after", 0.3, anchors_digest="b" * 64), tmp_path / "after.json")
    answer = acpc("diff", before, tmp_path / "after.json", code=2)
    assert "these scores cannot be compared: anchors of a is" in answer.stderr
    answer = acpc("diff", before, tmp_path / "gone.json", code=2)
    assert "gone.json" in answer.stderr


@pytest.mark.parametrize(
    ("push", "code", "words"),
    [
        (0.3, 0, ""),
        (0.6, 5, "undecided: two-after may be worse than two-before, or may not"),
        (0.9, 3, "two-after is surely worse than two-before"),
    ],
    ids=["better", "alike", "worse"],
)
def test_a_gate_lets_pass_what_is_surely_no_worse(
    push: float, code: int, words: str, acpc: Acpc, before: Path, tmp_path: Path
) -> None:
    save_result(score("after", push), tmp_path / "after.npz")
    asked = ("diff", before, tmp_path / "after.npz", "--gate", "no-worse")
    answer = acpc(*asked, "--junit", tmp_path / "gate.xml", code=code)
    assert words in answer.stderr
    assert ('failures="0"' in (tmp_path / "gate.xml").read_text()) == (code != 3)
