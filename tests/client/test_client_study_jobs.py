"""Studies from the client: what is sent, what comes back, and what a file keeps."""

import inspect
from typing import Any

import numpy as np
import pytest
from acpc.contract import (
    CemBudget,
    CemReturn,
    CostReduction,
    DatasetAnchors,
    DriftStudy,
    GaussianBlur,
    GaussianNoise,
    GeometryStudy,
    NumericMode,
    PlannerStudy,
    SensitivityStudy,
)
from acpc.v1 import diagnostic_service_pb2 as diagnostic
from acpc.v1 import study_service_pb2 as pb
from acpc_client import JobState
from acpc_client.errors import MalformedAnswer
from acpc_client.results import Operation, StudyResult
from client_messages import study_operation, study_response
from waiting import GENEROUS_SECONDS

ANCHORS = DatasetAnchors("tworoom.h5", "tworoom", count=20, one_per_episode=True)
REQUEST = pb.RunStudyRequest(
    checkpoint={"name": "trained", "digest": "d" * 64},
    dataset={"dataset": "tworoom.h5", "task": "tworoom"},
    geometry={"seed": 2**64 - 1, "draws": 3},
)
COLUMNS = {
    "anchor": np.array([7, 2**62], np.int64),
    "encoder_radius": np.array([0.1, np.nan]),
    "encoder_disjoint": np.array([True, False]),
}


def run(side: Any, *arguments: Any, **options: Any) -> Any:
    return side.ask(lambda client: client.run_study(*arguments, **options))


def test_what_is_silent_is_not_sent(side: Any) -> None:
    """The server fills in the paper's protocol; the client must not guess it."""
    for study in (DriftStudy(), PlannerStudy(), GeometryStudy(), SensitivityStudy()):
        run(side, "m", "a" * 64, study, request_id="mine")
    sent = side.server.requests["RunStudy"]
    assert [message.WhichOneof("study") for message in sent] == [
        "drift", "planner", "geometry", "sensitivity"
    ]  # fmt: skip
    for message in sent:
        assert message.anchor_set == "a" * 64
        assert message.request_id == "mine"
        assert getattr(message, message.WhichOneof("study")).ListFields() == []


def test_everything_given_is_sent(side: Any) -> None:
    numbers = {"draws": 3, "seed": 4, "sampling_seed": 2**63, "history": 3, "goal_offset": 7}
    study = PlannerStudy(
        [GaussianNoise(0.02), GaussianBlur(5)], budget=CemBudget(32, 4, 6, 3),
        cost_reduction=CostReduction.SUM, returns=CemReturn.BEST, **numbers,
    )  # fmt: skip
    job = run(side, "m", ANCHORS, study, numeric_mode=NumericMode.FP32)
    (sent,) = side.server.requests["RunStudy"]
    assert sent.dataset.one_per_episode
    assert sent.dataset.count == 20
    assert sent.planner == pb.PlannerStudy(
        shifts=[{"gaussian_noise": {"sigma": 0.02}}, {"gaussian_blur": {"kernel_size": 5}}],
        budget={"candidates": 32, "elites": 4, "iterations": 6, "horizon": 3},
        cost_reduction=diagnostic.COST_REDUCTION_SUM,
        returns=diagnostic.CEM_RETURN_BEST,
        **numbers,
    )
    assert job.name == f"operations/{sent.request_id}"
    assert job.submitted.checkpoint.name == "m"
    assert (job.submitted.state, job.submitted.attempts) == (JobState.RUNNING, 2)
    run(side, "m", ANCHORS, SensitivityStudy(probes=2, seed=1, horizon=3, step=0.5))
    sensitivity = side.server.requests["RunStudy"][1].sensitivity
    assert sensitivity == pb.SensitivityStudy(probes=2, seed=1, horizon=3, step=0.5)


@pytest.mark.parametrize("told", [False, True], ids=["bar", "function"])
def test_a_job_waits_for_its_rows_and_the_wait_is_shown(
    side: Any, capsys: pytest.CaptureFixture[str], told: bool
) -> None:
    response = study_response(REQUEST, COLUMNS)
    done = study_operation("operations/x", REQUEST, response=response)
    side.server.script.extend([study_operation("operations/x", REQUEST), done])
    seen: list[Operation] = []
    progress = seen.append if told else True

    def ask(client: Any) -> Any:
        job = client.run_study("trained", ANCHORS, GeometryStudy())
        if not inspect.isawaitable(job):
            return job.result(GENEROUS_SECONDS, progress=progress)

        async def wait() -> StudyResult:
            result: StudyResult = await (await job).result(GENEROUS_SECONDS, progress=progress)
            return result

        return wait()

    assert side.ask(ask) == StudyResult.from_message(response)
    shown = capsys.readouterr().err
    if told:
        assert (seen[-1].done, shown) == (True, "")
    else:
        assert shown.startswith("\r[") and shown.rstrip().endswith("0/0 done")
        assert shown.endswith("\n") and shown.count("\n") == 1


def test_columns_of_unequal_length_break_the_contract() -> None:
    columns = {**COLUMNS, "encoder_nearest": np.ones(3)}
    with pytest.raises(MalformedAnswer, match=r"encoder_nearest': \(3,\)"):
        StudyResult.from_message(study_response(REQUEST, columns))
