"""Law: a bad study is refused before it is queued, and names its field."""

from __future__ import annotations

import grpc
import pytest
import wire
from acpc.contract import NumericMode
from acpc.v1.study_service_pb2_grpc import StudyServiceStub
from bad_jobs import MethodCase
from bad_studies import BAD_STUDIES, STUDIES, request
from waiting import GENEROUS_SECONDS


@pytest.mark.parametrize("case", BAD_STUDIES, ids=lambda case: case.id)
def test_a_bad_study(channel: grpc.Channel, case: MethodCase) -> None:
    refused = wire.refusal(
        lambda: StudyServiceStub(channel).RunStudy(case.request, timeout=GENEROUS_SECONDS)
    )
    assert refused is not None, "the study was queued"
    assert (refused.code, refused.fields) == (case.code, (case.field,) if case.field else ())
    assert refused.reason
    assert refused.request_id
    assert not case.field or refused.message.startswith(f"{case.field}: ")


@pytest.mark.parametrize("mode", ["bf16", "fp64"])
def test_the_arithmetic_of_a_sensitivity_study_is_told(channel: grpc.Channel, mode: str) -> None:
    """Float64 has digits enough, so that none may be said to be missing."""
    asked = request("sensitivity", numeric_mode=NumericMode[mode.upper()])
    stub = StudyServiceStub(channel)
    refused = wire.refusal(lambda: stub.RunStudy(asked, timeout=GENEROUS_SECONDS))
    assert refused is not None
    assert refused.message == (
        f"numeric_mode: found {mode}, wanted fp32; a sensitivity study's derivatives are computed "
        "in float32 alone"
    )


@pytest.mark.parametrize("study", STUDIES)
def test_the_good_study_behind_the_bad_ones_is_queued(channel: grpc.Channel, study: str) -> None:
    fields = {"horizon": 4} if study != "planner" else {}
    asked = request(study, fields, request_id=f"good-{study}")
    stub = StudyServiceStub(channel)
    operation = stub.RunStudy(asked, timeout=GENEROUS_SECONDS)
    assert operation.name.startswith("operations/")
    assert stub.RunStudy(asked, timeout=GENEROUS_SECONDS).name == operation.name
    asked.checkpoint.name = "pldm"
    refused = wire.refusal(lambda: stub.RunStudy(asked, timeout=GENEROUS_SECONDS))
    assert refused is not None
    assert refused.code == "ALREADY_EXISTS"
