"""A scoring job as the tests of the command line ask for it, and how it ends."""

from typing import Any

from acpc.v1 import scoring_service_pb2 as pb
from client_messages import operation, score_response, sure

NAME = "operations/mine"
SCORE = [
    "score", "trained", "--reference", "plain", "--dataset", "tworoom.h5", "--task", "tworoom",
    "--shift", "gaussian_noise:0.08", "--request-id", "mine",
]  # fmt: skip
UNDECIDED = {"doubt": pb.DOUBT_SR, "anchors_to_decide": 240}


def ended(outcome: int, confident: int | None, **more: Any) -> Any:
    """A job whose screen says one thing by its numbers and another by its intervals."""
    found = None
    if confident is not None:
        found = sure(confident, **more)
        found.notes.append("2 anchors are eligible, fewer than 30")
    response = score_response(
        outcome, sr_passed=outcome != pb.OUTCOME_FAILED, evidence=found,
        with_reference=outcome != pb.OUTCOME_INCONCLUSIVE,
    )  # fmt: skip
    return operation(NAME, 4, state=pb.JOB_STATE_SUCCEEDED, response=response)
