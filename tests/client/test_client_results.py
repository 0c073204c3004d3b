"""What answers turn into: arrays, numbers in words, and what a job was asked."""

import json
import math
from dataclasses import replace
from typing import Any

import grpc
import numpy as np
import pytest
from acpc.contract import (
    CheckpointRef,
    PoolCertificate,
    ScoreProtocol,
    beside,
    ends,
    percent,
    read_tensor,
    write_tensor,
)
from acpc.v1 import diagnostic_service_pb2 as diagnostics
from acpc.v1 import perturbation_pb2, tensor_pb2
from acpc.v1 import scoring_service_pb2 as pb
from acpc_client import Interval, JobState, Operation, Outcome, Score, ScoreRequest, SkipReason
from acpc_client.errors import (
    ArgumentError,
    Cancelled,
    FailedPrecondition,
    Internal,
    MalformedAnswer,
)
from acpc_client.results.answers import read_answer
from acpc_lab.evidence import LimitPoint, SeverityLimit
from client_messages import operation, score_response, status, sure
from google.longrunning import operations_pb2
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp


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


pytestmark = pytest.mark.edge

DTYPES = ["uint8", "int32", "int64", "float16", "float32", "float64", "bool"]


@pytest.mark.parametrize("dtype", DTYPES)
@given(st.data(), hnp.array_shapes(min_dims=0, max_dims=5, min_side=0, max_side=4))
def test_a_round_trip_changes_no_bit(dtype: str, data: st.DataObject, shape: hnp.Shape) -> None:
    array = data.draw(hnp.arrays(dtype, shape))
    sent = write_tensor(array, "x").SerializeToString()
    back = read_tensor(tensor_pb2.Tensor.FromString(sent), "x")
    assert back.dtype == array.dtype
    assert back.shape == array.shape
    assert back.tobytes() == array.tobytes()


def test_bytes_are_little_endian_and_c_contiguous_whatever_the_layout() -> None:
    plain = np.array([[1, 2, 3], [4, 5, 6]], dtype="<i4")
    wanted = b"".join(int(v).to_bytes(4, "little") for v in [1, 2, 3, 4, 5, 6])
    strided = np.repeat(plain, 2, 1)[:, ::2]
    for array in (plain, plain.astype(">i4"), np.asfortranarray(plain), strided):
        message = write_tensor(array, "x")
        assert message.data == wanted
        assert list(message.shape) == [2, 3]
        assert message.dtype == tensor_pb2.DTYPE_INT32


@pytest.mark.parametrize("array", [np.zeros(2, complex), np.array(["a"]), np.array([object()])])
def test_a_dtype_without_a_place_on_the_wire_is_refused_by_name(array: np.ndarray) -> None:
    with pytest.raises(ArgumentError, match=r"^history: dtype .* cannot be sent") as caught:
        write_tensor(array, "history")
    assert caught.value.field == "history"
    assert isinstance(caught.value, ValueError)


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"dtype": tensor_pb2.DTYPE_FLOAT64, "shape": [2], "data": b"1" * 15}, "data: 15 bytes"),
        ({"dtype": tensor_pb2.DTYPE_FLOAT64, "shape": [-1]}, "shape: negative"),
        ({"dtype": 99, "shape": [1], "data": b"1"}, r"dtype: found 99; wanted 1 \(uint8\), "),
        ({}, r"dtype: found no tensor, or one without a dtype; wanted 1 \(uint8\), "),
    ],
)
def test_an_answer_that_breaks_the_contract_yields_no_number(
    fields: dict[str, Any], words: str
) -> None:
    with pytest.raises(MalformedAnswer, match=rf"^clean_costs\.{words}"):
        read_answer(PoolCertificate, diagnostics.CertifyPoolResponse(clean_costs=fields))


@pytest.mark.parametrize(
    ("value", "limit", "spec", "text"),
    [
        (113 / 119, 0.95, ".3f", "0.9496"),
        (0.30004, 0.3, ".3f", "0.30004"),
        (0.29999999999, 0.3, ".4g", "0.29999999999"),
        (-0.0004, 0.0, "+.2f", "-0.0004"),
        (-1e-300, 0.0, "+.2f", "-1e-300"),
        (0.95, 0.95, ".3f", "0.950"),
        (0.2, 0.3, ".3f", "0.200"),
        (0.95, None, ".1f", "0.9"),
        (math.inf, 0.3, ".3f", "inf"),
    ],
)
def test_a_number_stays_on_its_side_of_a_limit(
    value: float, limit: float | None, spec: str, text: str
) -> None:
    assert beside(value, limit, spec) == text


@pytest.mark.parametrize(
    ("lower", "upper", "spec", "texts"),
    [
        (0.9496, 0.9996, ".3g", ("0.949", "1")),
        (0.1, 0.15, ".3f", ("0.100", "0.150")),
        (-0.0004, 0.0004, "+.2f", ("-0.01", "+0.01")),
        (0.0, 1e30, ".3g", ("0", "1e+30")),
        (-math.inf, math.inf, ".3f", ("-inf", "inf")),
    ],
)
def test_ends_of_an_interval_are_rounded_outwards(
    lower: float, upper: float, spec: str, texts: tuple[str, str]
) -> None:
    assert ends(lower, upper, spec) == texts


def test_an_interval_in_words_holds_the_interval() -> None:
    assert str(Interval(0.9496, 0.98341, "")) == "0.949 to 0.984"
    assert str(Interval(0.25, math.inf, "")) == "0.25 or more"
    assert str(Interval(-math.inf, math.inf, "")) == "unbounded"
    assert str(Interval(1e-300, 0.3, "")) == "0 to 0.3"


def test_a_table_shows_on_which_side_of_its_thresholds_a_score_lies() -> None:
    score = Score.from_message(score_response(pb.OUTCOME_FAILED, evidence=sure(pb.OUTCOME_FAILED)))
    barely = replace(score, verdict=replace(score.verdict, ir_relative=0.300001, score=-0.00001))
    shown = dict(zip(barely.shown()[""], barely.shown()["trained"], strict=True))
    assert (shown["relative IR"], shown["S"]) == ("0.300001", -0.00001)


def test_nearly_all_is_no_power_of_ten() -> None:
    assert [percent(share) for share in (0.112, 0.95, 0.999, 1.0)] == [
        "11 %", "95 %", "99.9 %", "100 %",
    ]  # fmt: skip


def test_a_limit_in_words_holds_its_interval() -> None:
    limit = SeverityLimit(
        "a", "b", "blur:15", "kernel_size", 0.95, 7.0, 0.05558, 0.06672, "SR", True, ()
    )
    at = LimitPoint("blur:15", 15.0, Outcome.FAILED, Outcome.FAILED, 0.4, 0.9, -0.2, -0.3, -0.1)
    assert replace(limit, points=(at,)).interval == "[0.0555, 0.0668]"
    assert replace(limit, points=(at,), breaks=None).interval == "[0.0555, beyond 15]"
