"""How sure a score is: shown beside its numbers, and what a gate makes of it."""

from pathlib import Path
from typing import Any

import pytest
from acpc.v1 import scoring_service_pb2 as pb
from acpc_command import Acpc
from client_counterparty import Counterparty
from client_messages import operation, score_response
from result_documents import checked

NAME = "operations/mine"
SCORE = [
    "score", "trained", "--reference", "plain", "--dataset", "tworoom.h5", "--task", "tworoom",
    "--shift", "gaussian_noise:0.08", "--request-id", "mine",
]  # fmt: skip
WATCH = ["operations", "watch", "mine"]
UNDECIDED = {"doubt": pb.DOUBT_SR, "anchors_to_decide": 240}


def evidence(confident_outcome: int, **more: Any) -> pb.Evidence:  # noqa: ANN401
    """Evidence of that answer; undecided evidence doubts SR."""
    return pb.Evidence(
        **{
            "confidence": 0.95,
            "ir_raw": {"lower": 0.25, "upper": 0.75, "method": "made up"},
            "ir_relative": {"lower": 0.0625, "upper": 0.25, "method": "made up"},
            "sr": {"lower": 0.9, "upper": 0.99, "method": "made up"},
            "confident_outcome": confident_outcome,
            "trajectories": 2,
            "resamples": 2000,
            "notes": ["2 anchors are eligible, fewer than 30"],
            **more,
        }
    )


def ended(outcome: int, confident: int | None, **more: Any) -> Any:  # noqa: ANN401 - a message
    """A job whose screen says one thing by its numbers and another by its intervals."""
    found = None if confident is None else evidence(confident, **more)
    response = score_response(
        outcome, sr_passed=outcome != pb.OUTCOME_FAILED, evidence=found,
        with_reference=outcome != pb.OUTCOME_INCONCLUSIVE,
    )  # fmt: skip
    return operation(NAME, 4, state=pb.JOB_STATE_SUCCEEDED, response=response)


@pytest.mark.parametrize("command", [SCORE, WATCH], ids=["score", "watch"])
@pytest.mark.parametrize(
    ("outcome", "confident", "codes"),
    [
        (pb.OUTCOME_PASSED, pb.OUTCOME_PASSED, (0, 0)),
        (pb.OUTCOME_PASSED, pb.OUTCOME_UNDECIDED, (0, 5)),
        (pb.OUTCOME_FAILED, pb.OUTCOME_UNDECIDED, (3, 5)),
        (pb.OUTCOME_FAILED, pb.OUTCOME_FAILED, (3, 3)),
        (pb.OUTCOME_INCONCLUSIVE, pb.OUTCOME_INCONCLUSIVE, (0, 5)),
        (pb.OUTCOME_INCONCLUSIVE, pb.OUTCOME_UNDECIDED, (0, 5)),
        (pb.OUTCOME_PASSED, pb.OUTCOME_UNSPECIFIED, (0, 1)),
        (pb.OUTCOME_PASSED, None, (0, 1)),
    ],
)
def test_the_gate_decides_the_exit_code(
    command: list[str], outcome: int, confident: int | None, codes: tuple[int, int],
    acpc: Acpc, counterparty: Counterparty,
) -> None:  # fmt: skip
    for gate, code in zip((["--gate", "point"], ["--gate", "confident"]), codes, strict=True):
        counterparty.script.append(ended(outcome, confident))
        acpc(*command, *gate, code=code)


def test_a_server_without_evidence_is_an_error_of_the_confident_gate_and_no_pass(
    acpc: Acpc, counterparty: Counterparty, tmp_path: Path
) -> None:
    """The score is shown and written all the same."""
    counterparty.script.append(ended(pb.OUTCOME_PASSED, None))
    output = tmp_path / "score.json"
    answer = acpc(*SCORE, "--gate", "confident", "--output", output, code=1)
    assert "PASSED: what decided the outcome" in answer.stdout
    assert (
        "error: FAILED_PRECONDITION: this score has no evidence of how sure it is" in answer.stderr
    )
    assert checked(output.read_text())["answer"].get("evidence") is None


def test_intervals_and_notes_stand_beside_the_numbers(
    acpc: Acpc, counterparty: Counterparty
) -> None:
    counterparty.script.append(ended(pb.OUTCOME_PASSED, pb.OUTCOME_UNDECIDED, **UNDECIDED))
    answer = acpc(*SCORE, "--gate", "confident", code=5)
    rows = {line.partition("  ")[0]: line for line in answer.stdout.splitlines()}
    assert "0.0625 to 0.25" in rows["IR relative"]
    assert "0.9 to 0.99" in rows["SR"] and "95 % interval" in answer.stdout
    assert "0.25 to 0.75" in rows["IR raw"]
    assert "PASSED: what decided the outcome" in answer.stdout
    assert "how sure: undecided: 2 anchors are too few, about 240 would probably" in answer.stdout
    assert "the doubt is in SR" in answer.stdout
    assert "warning: 2 anchors are eligible, fewer than 30" in answer.stderr


def test_json_has_the_whole_evidence(acpc: Acpc, counterparty: Counterparty) -> None:
    counterparty.script.append(ended(pb.OUTCOME_PASSED, pb.OUTCOME_UNDECIDED, **UNDECIDED))
    answer = acpc(*SCORE, "--gate", "confident", "--json", code=5)
    found = checked(answer.stdout)["answer"]["evidence"]
    assert (found["confident_outcome"], found["doubt"]) == ("undecided", "sr")
    assert found["anchors_to_decide"] == 240 and found["sr"]["lower"] == 0.9
    assert found["notes"] == ["2 anchors are eligible, fewer than 30"]


@pytest.mark.parametrize(
    ("outcomes", "code"), [(("PASSED", "FAILED"), 3), (("PASSED", "PASSED"), 0)], ids=str
)
def test_a_grid_of_shifts_is_one_table_of_jobs(
    outcomes: tuple[str, str], code: int, acpc: Acpc, counterparty: Counterparty
) -> None:
    found = [getattr(pb, f"OUTCOME_{name}") for name in outcomes]
    counterparty.script += [ended(one, one) for one in found]
    answer = acpc(*SCORE[:-4], "--shift", "blur:5,9", "--request-id", "mine", code=code)
    assert "Of 2 measurements" in " ".join(answer.stdout.split())
    asked = counterparty.requests["ScoreCheckpoint"]
    assert [call.request_id for call in asked] == ["mine-0", "mine-1"]
    acpc(*SCORE, "--shift", "everyday", "--output", "one.json", code=2)
