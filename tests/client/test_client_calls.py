"""What arrives at the server, and what comes back, on both sides."""

import asyncio
from concurrent import futures
from types import SimpleNamespace
from typing import Any

import grpc
import numpy as np
import pytest
from acpc.contract import (
    CheckpointRef,
    CostReduction,
    DatasetAnchors,
    DatasetFile,
    GaussianBlur,
    GaussianNoise,
    Identity,
    NumericMode,
    ScoreProtocol,
    TaskSummary,
    Thresholds,
)
from acpc.v1 import diagnostic_service_pb2 as diagnostics
from acpc.v1 import receipt_pb2
from acpc.v1 import scoring_service_pb2 as pb
from acpc_client import AcpcClient, AsyncAcpcClient, CheckpointState, JobState, Outcome
from acpc_client.errors import ArgumentError, Internal
from client_counterparty import Counterparty
from client_fixtures import BLOCKS, HISTORY
from client_messages import operation, score_response, tensor

ANCHORS = DatasetAnchors("tworoom.h5", "tworoom", count=20)


def test_compare_pair_sends_bytes_and_specs(side: Any) -> None:
    views = {"perturbations": [GaussianNoise(0.08), GaussianBlur(15)], "draws": 2, "anchor": 7}
    given = {"observed_future": HISTORY[:2], "weights": np.array([0.25, 0.75])}
    given |= {"seed": 2**64 - 1, "numeric_mode": NumericMode.FP32, "request_id": "mine"}
    ref = CheckpointRef("a", "w.pt", "d" * 64)
    answer = side.ask(
        lambda client: client.compare_pair(
            ref, HISTORY, BLOCKS.astype(np.float64), **views, **given
        )
    )
    specs = [{"gaussian_noise": {"sigma": 0.08}}, {"gaussian_blur": {"kernel_size": 15}}]
    (sent,) = side.server.requests["ComparePair"]
    assert sent == diagnostics.ComparePairRequest(
        checkpoint={"name": "a", "weights": "w.pt", "digest": "d" * 64}, request_id="mine",
        history=tensor(HISTORY), action_blocks=tensor(BLOCKS), weights=[0.25, 0.75],
        observed_future=tensor(HISTORY[:2]), numeric_mode=receipt_pb2.NUMERIC_MODE_FP32,
        perturbations={"specs": specs, "draws": 2, "seed": 2**64 - 1, "anchor": 7},
    )  # fmt: skip
    assert [(r.spec_index, r.draw) for r in answer.results] == [(0, 0), (0, 1), (1, 0), (1, 1)]
    assert answer.results[0].step_distances == (1.25, 1.75)
    assert answer.results[0].error_drift.bound == 1.5
    assert answer.timing.compute == 1.5
    assert answer.receipt.numeric_mode is NumericMode.FP32


def test_views_of_the_callers_own_travel_as_frames(side: Any) -> None:
    views = np.stack([HISTORY, 255 - HISTORY])
    answer = side.ask(lambda client: client.compare_pair("a", HISTORY, BLOCKS, views=views))
    (sent,) = side.server.requests["ComparePair"]
    assert sent.explicit_views.data == views.tobytes()
    assert not sent.HasField("observed_future")
    assert [(r.draw, r.error_drift) for r in answer.results] == [(0, None), (1, None)]


@pytest.mark.parametrize(
    ("goal", "kind"),
    [(np.zeros((4, 5, 3), np.uint8), "frame"), (np.zeros(6, np.float32), "latent")],
)
def test_certify_pool(goal: np.ndarray, kind: str, side: Any) -> None:
    candidates = np.ones((5, 3, 2), np.float32)
    answer = side.ask(
        lambda client: client.certify_pool(
            "a", HISTORY, candidates, goal, past_blocks=BLOCKS[:2], elite_count=2,
            perturbations=GaussianNoise(0.08), cost_reduction=CostReduction.MEAN,
            endpoint_tolerance=1e-6,
        )
    )  # fmt: skip
    (sent,) = side.server.requests["CertifyPool"]
    assert sent == diagnostics.CertifyPoolRequest(
        checkpoint={"name": "a"}, history=tensor(HISTORY), past_blocks=tensor(BLOCKS[:2]),
        candidates=tensor(candidates), goal={kind: tensor(goal)}, elite_count=2,
        perturbations={"specs": [{"gaussian_noise": {"sigma": 0.08}}], "draws": 1},
        cost_reduction=CostReduction.MEAN, endpoint_tolerance=1e-6, request_id=sent.request_id,
    )  # fmt: skip
    assert np.array_equal(answer.clean_costs, np.arange(5.0))
    (view,) = answer.views
    assert view.top1.certified
    assert view.elite.margin == 0.5
    assert answer.clean_elites == (0, 1)
    assert answer.certified_severities[0].top1 == 0.08
    assert answer.certified_severities[0].elite is None


def test_a_score_has_verdict_and_values(side: Any) -> None:
    done = operation("operations/mine", 4, response=score_response(pb.OUTCOME_PASSED))
    side.server.script.extend([operation("operations/mine", 1), done])
    score = side.score(
        "trained", ANCHORS, GaussianNoise(0.08), reference="plain", request_id="mine",
        protocol=ScoreProtocol(draws=3, extra_horizons=(1, 4)), thresholds=Thresholds(ir=0.2),
    )  # fmt: skip
    (sent,) = side.server.requests["ScoreCheckpoint"]
    assert sent == pb.ScoreCheckpointRequest(
        checkpoint={"name": "trained"}, reference={"name": "plain"}, request_id="mine",
        dataset={"dataset": "tworoom.h5", "task": "tworoom", "count": 20},
        perturbation={"gaussian_noise": {"sigma": 0.08}}, thresholds={"ir": 0.2},
        protocol={"draws": 3, "extra_horizons": [1, 4]},
    )  # fmt: skip
    assert side.server.requests["WatchOperation"][0].name == "operations/mine"
    assert score.verdict.outcome is Outcome.PASSED
    assert score.checkpoint.anchor_values.partner.tolist() == [1, -1]


def test_progress_is_one_line_of_stderr(
    target: str, counterparty: Counterparty, capsys: pytest.CaptureFixture[str]
) -> None:
    done = operation("operations/mine", 4, response=score_response(pb.OUTCOME_PASSED))
    counterparty.script.extend([operation("operations/mine", 1), done])
    with AcpcClient(target) as client:
        client.score_checkpoint("a", ANCHORS, GaussianNoise(0.08)).result(progress=True)
    shown = capsys.readouterr().err
    assert shown.startswith("\r[") and "] 4/4 done" in shown
    assert shown.endswith("\n") and shown.count("\n") == 1


def test_previews_are_asked_for_by_name_or_by_job(side: Any) -> None:
    name = "operations/mine"
    found = side.ask(lambda client: client.preview_anchors(name, [5, 2], draw=3))
    assert [preview.anchor for preview in found] == [5, 2]
    assert (found[0].clean == 5).all()
    assert (found[1].perturbed == 3).all()
    assert found[0].partner.shape == (1, 2, 4, 3)
    assert found[1].partner is None
    job = side.ask(lambda client: client.operations.get(name))
    side.ask(lambda client: client.preview_anchors(job, np.array([7])))
    first, second = side.server.requests["PreviewAnchors"]
    assert (first.name, list(first.anchors), first.draw) == (name, [5, 2], 3)
    assert (second.name, list(second.anchors), second.draw) == (name, [7], 0)
    with pytest.raises(ArgumentError, match="anchors: found -1"):
        side.ask(lambda client: client.preview_anchors(name, [-1]))


def test_lists_read_every_page(side: Any) -> None:
    listed = side.collect(lambda client: client.checkpoints.list(page_size=2))
    assert [item.name for item in listed] == ["one", "two", "three"]
    assert [request.page_token for request in side.server.requests["ListCheckpoints"]] == ["", "2"]
    listed = side.collect(lambda client: client.operations.list(filter="state=running"))
    assert [item.name for item in listed] == ["operations/first", "operations/second"]
    assert side.server.requests["ListOperations"][1].filter == "state=running"


def test_a_list_is_read_page_by_page_or_as_a_list(target: str, counterparty: Counterparty) -> None:
    with AcpcClient(target) as client:
        listed = client.checkpoints.list(page_size=2)
        assert not counterparty.requests["ListCheckpoints"]
        assert next(iter(listed)).name == "one"
        assert len(counterparty.requests["ListCheckpoints"]) == 1
        assert (len(listed), listed[-1].name) == (3, "three")
        assert [item.name for item in listed[1:]] == ["two", "three"]
        assert [item.name for item in listed] == ["one", "two", "three"]
        assert len(counterparty.requests["ListCheckpoints"]) == 2
        assert "one" in str(listed) and listed.table()["name"] == ["one", "two", "three"]
        assert repr(listed) == "<Listing: 3 records>"


def test_a_list_of_the_asyncio_client_may_be_awaited(target: str) -> None:
    async def names() -> list[str]:
        async with AsyncAcpcClient(target) as client:
            return [item.name for item in await client.checkpoints.list(page_size=2)]

    assert asyncio.run(names()) == ["one", "two", "three"]


def test_datasets_and_tasks_are_listed(side: Any) -> None:
    (found,) = side.collect(lambda client: client.datasets.list(page_size=7))
    assert found == DatasetFile("rooms.h5", 2**20)
    assert side.server.requests["ListDatasets"][0].page_size == 7
    rooms, own = side.collect(lambda client: client.datasets.tasks())
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


def test_operations_get_wait_cancel_delete(side: Any) -> None:
    name = "operations/1"
    assert side.ask(lambda client: client.operations.get(name)).state is JobState.RUNNING
    waited = side.ask(lambda client: client.operations.wait(name, timeout=1.5))
    assert waited.progress.completed == 2
    limit = side.server.requests["WaitOperation"][0].timeout
    assert limit.seconds + limit.nanos * 1e-9 == pytest.approx(1.5)
    side.ask(lambda client: client.operations.cancel(name))
    side.ask(lambda client: client.operations.delete(name))
    assert side.server.requests["CancelOperation"][0].name == name
    assert side.server.requests["DeleteOperation"][0].name == name


def test_every_call_has_a_deadline(side: Any) -> None:
    def deadline(method: str) -> float:
        # gRPC rounds deadlines on the wire by up to three per cent.
        (left,) = side.server.deadlines.pop(method)
        assert left is not None
        return left / 1.03

    side.ask(lambda client: client.compare_pair("a", HISTORY, BLOCKS, perturbations=Identity()))
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
