"""What arrives at the server, and what comes back, on both sides."""

import inspect
from collections.abc import Callable
from concurrent import futures
from types import SimpleNamespace
from typing import Any

import grpc
import numpy as np
import pytest
from acpc.contract import (
    CemBudget,
    CemReturn,
    CheckpointRef,
    CostReduction,
    DatasetAnchors,
    DatasetFile,
    DriftStudy,
    GaussianBlur,
    GaussianNoise,
    GeometryStudy,
    NumericMode,
    PlannerStudy,
    ScoreProtocol,
    SensitivityStudy,
    TaskSummary,
    Thresholds,
)
from acpc.v1 import anchor_service_pb2, receipt_pb2, study_service_pb2
from acpc.v1 import diagnostic_service_pb2 as diagnostics
from acpc.v1 import scoring_service_pb2 as pb
from acpc_client import (
    CheckpointState,
    JobState,
    Operation,
    StudyResult,
)
from acpc_client.errors import ArgumentError, Internal, MalformedAnswer
from client_fixtures import BLOCKS, HISTORY
from client_messages import study_operation, study_response, tensor
from google.longrunning import operations_pb2
from waiting import GENEROUS_SECONDS

ANCHORS = DatasetAnchors("tworoom.h5", "tworoom", count=20)
SOURCE = anchor_service_pb2.DatasetAnchors(dataset="tworoom.h5", task="tworoom", count=20)
NOISE, SIGMA = GaussianNoise(0.08), {"gaussian_noise": {"sigma": 0.08}}
BLUR = {"gaussian_blur": {"kernel_size": 15}}
POOL, LATENT = np.ones((5, 3, 2), np.float32), np.zeros(6, np.float32)
NAME, SET = "operations/mine", "a" * 64
A, MINE = {"checkpoint": {"name": "a"}}, {"request_id": "mine"}
BUDGET = {"candidates": 32, "elites": 4, "iterations": 6, "horizon": 3}


def pool(goal: np.ndarray, kind: str) -> tuple[Any, str, Any]:
    return (
        lambda client: client.certify_pool(
            "a", HISTORY, POOL, goal, past_blocks=BLOCKS[:2], elite_count=2, perturbations=NOISE,
            cost_reduction=CostReduction.MEAN, endpoint_tolerance=1e-6, **MINE,
        ),
        "CertifyPool",
        diagnostics.CertifyPoolRequest(
            **A, history=tensor(HISTORY), past_blocks=tensor(BLOCKS[:2]), candidates=tensor(POOL),
            goal={kind: tensor(goal)}, elite_count=2, cost_reduction=CostReduction.MEAN,
            perturbations={"specs": [SIGMA], "draws": 1}, endpoint_tolerance=1e-6, **MINE,
        ),
    )  # fmt: skip


def study(asked: Any, name: str, **fields: Any) -> tuple[Any, str, Any]:
    """A study; of one that is silent nothing is sent: the server fills in the paper's protocol."""
    return (
        lambda client: client.run_study("a", SET, asked, **MINE),
        "RunStudy",
        study_service_pb2.RunStudyRequest(**A, anchor_set=SET, **{name: fields}, **MINE),
    )


# A call, its method, and the message that arrives.
SENT: dict[str, tuple[Callable[[Any], Any], str, Any]] = {
    "pair": (
        lambda client: client.compare_pair(
            CheckpointRef("a", "w.pt", "d" * 64), HISTORY, BLOCKS.astype(np.float64),
            perturbations=[NOISE, GaussianBlur(15)], draws=2, anchor=7, seed=2**64 - 1,
            observed_future=HISTORY[:2], weights=np.array([0.25, 0.75]),
            numeric_mode=NumericMode.FP32, **MINE,
        ),
        "ComparePair",
        diagnostics.ComparePairRequest(
            checkpoint={"name": "a", "weights": "w.pt", "digest": "d" * 64}, **MINE,
            history=tensor(HISTORY), action_blocks=tensor(BLOCKS), weights=[0.25, 0.75],
            observed_future=tensor(HISTORY[:2]), numeric_mode=receipt_pb2.NUMERIC_MODE_FP32,
            perturbations={"specs": [SIGMA, BLUR], "draws": 2, "seed": 2**64 - 1, "anchor": 7},
        ),
    ),
    "pool, goal a frame": pool(np.zeros((4, 5, 3), np.uint8), "frame"),
    "pool, goal a latent": pool(LATENT, "latent"),
    "paired plans": (
        lambda client: client.plan_paired(
            "a", HISTORY, LATENT, perturbations=NOISE, budget=CemBudget(32, 4, 6, 3), draws=2,
            past_blocks=BLOCKS[:2], sampling_seed=11, returns=CemReturn.BEST, **MINE,
        ),
        "PlanPaired",
        diagnostics.PlanPairedRequest(
            **A, history=tensor(HISTORY), goal={"latent": tensor(LATENT)}, budget=BUDGET,
            past_blocks=tensor(BLOCKS[:2]), perturbations={"specs": [SIGMA], "draws": 2},
            sampling_seed=11, returns=CemReturn.BEST, **MINE,
        ),
    ),
    "score": (
        lambda client: client.score_checkpoint(
            "trained", ANCHORS, NOISE, reference="plain", thresholds=Thresholds(ir=0.2),
            protocol=ScoreProtocol(draws=3, extra_horizons=(1, 4)), **MINE,
        ),
        "ScoreCheckpoint",
        pb.ScoreCheckpointRequest(
            checkpoint={"name": "trained"}, reference={"name": "plain"}, dataset=SOURCE,
            perturbation=SIGMA, thresholds={"ir": 0.2},
            protocol={"draws": 3, "extra_horizons": [1, 4]}, **MINE,
        ),
    ),
    "previews": (
        lambda client: client.preview_anchors(NAME, [5, 2], draw=3),
        "PreviewAnchors", pb.PreviewAnchorsRequest(name=NAME, anchors=[5, 2], draw=3),
    ),
    "cancel": (
        lambda client: client.operations.cancel(NAME),
        "CancelOperation", operations_pb2.CancelOperationRequest(name=NAME),
    ),
    "delete": (
        lambda client: client.operations.delete(NAME),
        "DeleteOperation", operations_pb2.DeleteOperationRequest(name=NAME),
    ),
    "drift": study(DriftStudy(), "drift"),
    "geometry": study(GeometryStudy(), "geometry"),
    "planner": study(PlannerStudy(), "planner"),
    "sensitivity": study(SensitivityStudy(), "sensitivity"),
    "study of a dataset": (
        lambda client: client.run_study(
            "a", ANCHORS, GeometryStudy(), numeric_mode=NumericMode.FP32, **MINE
        ),
        "RunStudy",
        study_service_pb2.RunStudyRequest(
            **A, dataset=SOURCE, geometry={}, numeric_mode=receipt_pb2.NUMERIC_MODE_FP32, **MINE
        ),
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", SENT)
def test_what_is_asked_arrives(case: str, side: Any) -> None:
    call, method, message = SENT[case]
    side.ask(call)
    assert side.server.requests[method] == [message]


def test_previews_are_read_by_name_or_by_job(side: Any) -> None:
    found = side.ask(SENT["previews"][0])
    assert [preview.anchor for preview in found] == [5, 2]
    assert (found[0].clean == 5).all() and (found[1].perturbed == 3).all()
    assert found[0].partner.shape == (1, 2, 4, 3) and found[1].partner is None
    job = side.ask(lambda client: client.operations.get(NAME))
    side.ask(lambda client: client.preview_anchors(job, np.array([7])))
    sent = side.server.requests["PreviewAnchors"][1]
    assert (sent.name, list(sent.anchors), sent.draw) == (NAME, [7], 0)
    with pytest.raises(ArgumentError, match="anchors: found -1"):
        side.ask(lambda client: client.preview_anchors(NAME, [-1]))


ROWS = study_service_pb2.RunStudyRequest(
    checkpoint={"name": "trained", "digest": "d" * 64}, dataset=SOURCE,
    geometry={"seed": 2**64 - 1, "draws": 3},
)  # fmt: skip
COLUMNS = {
    "anchor": np.array([7, 2**62], np.int64),
    "encoder_radius": np.array([0.1, np.nan]),
    "encoder_disjoint": np.array([True, False]),
}


@pytest.mark.parametrize("told", [False, True], ids=["bar", "function"])
def test_a_job_waits_for_its_rows_and_the_wait_is_shown(
    side: Any, capsys: pytest.CaptureFixture[str], told: bool
) -> None:
    response = study_response(ROWS, COLUMNS)
    done = study_operation(NAME, ROWS, response=response)
    side.server.script.extend([study_operation(NAME, ROWS), done])
    seen: list[Operation] = []
    progress = seen.append if told else True

    def ask(client: Any) -> Any:
        job = client.run_study("trained", ANCHORS, GeometryStudy(), **MINE)
        if not inspect.isawaitable(job):
            assert job.name == NAME and job.submitted.checkpoint.name == "trained"
            assert (job.submitted.state, job.submitted.attempts) == (JobState.RUNNING, 2)
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
        StudyResult.from_message(study_response(ROWS, columns))


def test_lists_read_every_page(side: Any) -> None:
    listed = side.ask(lambda client: client.checkpoints.list(show_all=True))
    assert [item.name for item in listed] == ["one", "two", "three"] and type(listed) is list
    asked = side.server.requests["ListCheckpoints"]
    assert [(one.page_token, one.show_all) for one in asked] == [("", True), ("2", True)]
    listed = side.ask(lambda client: client.operations.list(filter="state=running"))
    assert [item.name for item in listed] == ["operations/first", "operations/second"]
    assert side.server.requests["ListOperations"][1].filter == "state=running"
    (found,) = side.ask(lambda client: client.datasets.list())
    assert found == DatasetFile("rooms.h5", 2**20)
    rooms, own = side.ask(lambda client: client.datasets.tasks())
    assert rooms == TaskSummary("rooms", "Rooms.", state="pose", frameskip=5, history=3)
    assert own == TaskSummary("own.yaml")


def test_checkpoints_load_and_unload(side: Any) -> None:
    loaded = side.ask(lambda client: client.checkpoints.load("a", pin=True))
    assert loaded.checkpoint.pinned
    assert loaded.checkpoint.state is CheckpointState.LOADED
    assert loaded.checkpoint.model.family == "lewm"
    unloaded = side.ask(lambda client: client.checkpoints.unload(CheckpointRef("a")))
    assert unloaded.state is CheckpointState.AVAILABLE
    assert unloaded.model is None


def test_a_job_is_looked_at_and_waited_for(side: Any) -> None:
    assert side.ask(lambda client: client.operations.get(NAME)).state is JobState.RUNNING
    waited = side.ask(lambda client: client.operations.wait(NAME, timeout=1.5))
    assert waited.progress.completed == 2
    limit = side.server.requests["WaitOperation"][0].timeout
    assert limit.seconds + limit.nanos * 1e-9 == pytest.approx(1.5)


def test_every_call_has_a_deadline(side: Any) -> None:
    def deadline(method: str) -> float:
        # gRPC rounds deadlines on the wire by up to three per cent.
        (left,) = side.server.deadlines.pop(method)
        assert left is not None
        return left / 1.03

    side.ask(SENT["pair"][0])
    assert 5 < deadline("ComparePair") <= 30
    side.ask(lambda client: client.checkpoints.get("a"), timeout=700)
    assert 600 < deadline("GetCheckpoint") <= 700
    side.ask(lambda client: client.checkpoints.get("a", timeout=300), timeout=700)
    assert 200 < deadline("GetCheckpoint") <= 300
    side.collect(lambda client: client.compare_pairs("a", []))
    assert 500 < deadline("ComparePairs") <= 600


def test_an_answer_that_is_no_such_message_is_a_typed_error(side_of: Any) -> None:
    def garbage(_: grpc.HandlerCallDetails) -> grpc.RpcMethodHandler:
        return grpc.unary_unary_rpc_method_handler(lambda request, context: b"\xff\xff")

    server = grpc.server(futures.ThreadPoolExecutor(1))
    server.add_generic_rpc_handlers((SimpleNamespace(service=garbage),))
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    try:
        with pytest.raises(Internal):
            side_of(f"127.0.0.1:{port}").ask(lambda client: client.checkpoints.get("a"))
    finally:
        server.stop(None).wait()
