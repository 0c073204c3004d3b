"""What answers turn into, and what a job was asked, read back from its metadata."""

import itertools
import json
from typing import Any

import grpc
import numpy as np
import pytest
from acpc.contract import (
    CheckpointRef,
    DatasetAnchors,
    GaussianBlur,
    GaussianNoise,
    Identity,
    NumericMode,
    Registered,
    Resize,
    ScoreProtocol,
    Thresholds,
)
from acpc.v1 import perturbation_pb2
from acpc.v1 import scoring_service_pb2 as pb
from acpc_client import JobState, Operation, Outcome, Score, ScoreRequest, SkipReason
from acpc_client.errors import Cancelled, FailedPrecondition, Internal, MalformedAnswer
from client_messages import operation, score_response, status
from google.longrunning import operations_pb2


def score() -> Score:
    return Score.from_message(score_response(pb.OUTCOME_PASSED))


def test_nan_is_null_in_json_and_nan_in_the_array() -> None:
    answer = score()
    values = answer.checkpoint.anchor_values
    assert np.isnan(values.different_state_distance[1])
    plain = json.loads(answer.to_json())
    assert plain["checkpoint"]["anchor_values"]["different_state_distance"] == [3.0, None]
    assert plain["verdict"]["outcome"] == "passed"
    assert plain["verdict"]["delta_score"] is None
    assert plain["receipt"]["numeric_mode"] == "fp32"


def test_each_anchor_says_how_far_each_step_goes_and_why_it_was_skipped() -> None:
    values = score().checkpoint.anchor_values
    assert values.skip_reasons == (SkipReason.UNSPECIFIED, SkipReason.NONE_IN_REACH)
    assert values.step_radius.tolist() == [[0.125, 0.375], [0.5, 0.5]]
    older = score_response(pb.OUTCOME_PASSED)
    older.checkpoint.anchor_values.ClearField("step_radius")
    without = Score.from_message(older).checkpoint.anchor_values
    assert without.step_radius is None
    assert without.trajectory_ids is None


def test_an_enum_value_of_a_newer_server_reads_as_unspecified() -> None:
    assert Outcome(77) is Outcome.UNSPECIFIED
    assert JobState(77) is JobState.UNSPECIFIED
    assert str(JobState.RUNNING) == "running"


def test_a_running_operation_has_progress_and_no_result() -> None:
    running = Operation.from_message(operation("operations/1", 3))
    assert running.state is JobState.RUNNING
    assert (running.progress.completed, running.progress.total) == (3, 4)
    assert running.progress.seconds_left == 75.0
    with pytest.raises(FailedPrecondition, match="operations/1 has not ended; it is running"):
        running.result()


def test_a_listed_operation_says_that_its_answer_was_left_out() -> None:
    metadata = pb.ScoreCheckpointMetadata(
        state=pb.JOB_STATE_SUCCEEDED,
        progress=pb.Progress(completed=4, total=4, steps_per_second=2.5),
    )
    message = operations_pb2.Operation(name="operations/1", done=True)
    message.metadata.Pack(metadata)
    listed = Operation.from_message(message)
    assert listed.done
    assert listed.progress.steps_per_second == 2.5
    with pytest.raises(FailedPrecondition, match="operations/1 was listed without its answer"):
        listed.result()


@pytest.mark.parametrize(
    ("code", "kind", "state"),
    [
        (grpc.StatusCode.CANCELLED, Cancelled, JobState.CANCELLED),
        (grpc.StatusCode.INTERNAL, Internal, JobState.FAILED),
    ],
)
def test_an_operation_that_ended_badly_raises_its_error(
    code: grpc.StatusCode, kind: type[Exception], state: JobState
) -> None:
    ended = Operation.from_message(operation("operations/1", state=0, error=status(code, "why")))
    assert ended.state is state
    with pytest.raises(kind, match="why"):
        ended.result()


def test_an_answer_of_another_type_is_refused() -> None:
    message = operation("operations/1")
    message.done = True
    message.response.Pack(pb.Verdict())
    with pytest.raises(MalformedAnswer, match=r"acpc\.v1\.Verdict"):
        Operation.from_message(message)


PROTOCOL = ScoreProtocol(5, 7, 8, 0.9, 0.1, (0.25, 0.75), (1, 4), (0.5,))
SHIFTS = [
    GaussianNoise(0.08), GaussianBlur(15), Resize(0.25), Identity(),
    Registered("fog", {"density": 0.5}),
]  # fmt: skip
ANCHORS = ["a" * 64, DatasetAnchors("d.h5", "t", 50, 3, 5, True)]
REFERENCES = [None, CheckpointRef("base", "w.pt", "d" * 64)]


def test_what_was_sent_is_what_is_read(side: Any) -> None:
    """A request survives the wire and the metadata of its operation."""
    for shift, anchors, reference in itertools.product(SHIFTS, ANCHORS, REFERENCES):
        given = {"reference": reference, "protocol": PROTOCOL, "thresholds": Thresholds(0.3, 0.95)}
        given |= {"numeric_mode": NumericMode.FP32, "request_id": "r"}
        ref = CheckpointRef("trained")
        asked = (ref, anchors, shift)
        side.ask(lambda client, asked=asked, given=given: client.score_checkpoint(*asked, **given))
        sent = side.server.requests["ScoreCheckpoint"][-1]
        read = Operation.from_message(operation("operations/r", request=sent)).request
        assert read == ScoreRequest(checkpoint=ref, anchors=anchors, shift=shift, **given)
        assert read is not None and read.shift == shift and read.protocol == PROTOCOL


def test_a_shift_of_a_newer_server_is_none_and_the_rest_is_read() -> None:
    request = pb.ScoreCheckpointRequest(perturbation=perturbation_pb2.PerturbationSpec())
    read = ScoreRequest.from_message(request)
    assert read.shift is None
    assert read.protocol == ScoreProtocol()


def _wider() -> perturbation_pb2.PerturbationSpec:
    """What a newer server may accept: this client knows sigma up to 1."""
    return perturbation_pb2.PerturbationSpec(gaussian_noise={"sigma": 2.0})


def test_a_request_out_of_the_known_ranges_is_none_and_the_operation_is_read() -> None:
    asked = {"perturbation": _wider(), "anchor_set": "a" * 64}
    read = Operation.from_message(operation("operations/r", request=asked))
    assert read.request is None
    assert (read.checkpoint, read.attempts) == (CheckpointRef("trained"), 1)
