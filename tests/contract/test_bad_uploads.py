"""Law: whatever is uploaded, the fault is the caller's, a field is named, and nothing is left."""

from pathlib import Path

import anchor_wire
import given_wire
import grpc
import numpy as np
import pytest
import wire
from acpc.v1 import anchor_service_pb2 as pb
from acpc.v1 import tensor_pb2
from acpc.v1.anchor_service_pb2_grpc import AnchorServiceStub
from acpc.v1.scoring_service_pb2_grpc import ScoringServiceStub
from bad_calls import jobs
from bad_uploads import BAD_UPLOADS
from declared import Case
from google.longrunning.operations_pb2 import WaitOperationRequest
from google.longrunning.operations_pb2_grpc import OperationsStub
from served_world import ServedWorld
from test_bad_requests import call, check, faults
from waiting import GENEROUS_SECONDS


def test_uploads(channel: grpc.Channel) -> None:
    def look(case: Case) -> None:
        check(call(channel, case)[0], case.code, case.field)

    assert faults(BAD_UPLOADS, look) == {}


@pytest.mark.parametrize(("anchors", "advice"), [(4, "fewer anchors"), (1, "smaller frames")])
def test_frames_too_large_for_a_shard_are_told_what_helps(
    channel: grpc.Channel, anchors: int, advice: str
) -> None:
    frames = tensor_pb2.Tensor(dtype=1, shape=[anchors, anchor_wire.STEPS, 4096, 4096, 3])
    messages = [anchor_wire.header(), anchor_wire.shard(frames=frames, frame_crc32=0)]
    upload = AnchorServiceStub(channel).UploadAnchors
    found = wire.refusal(lambda: upload(iter(messages), timeout=GENEROUS_SECONDS))
    assert found is not None and found.fields == ("shard.frames.shape",)
    assert advice in found.message


def test_jobs_on_what_a_set_does_not_have(channel: grpc.Channel) -> None:
    stub = AnchorServiceStub(channel)
    stored = stub.UploadAnchors(given_wire.upload(), timeout=GENEROUS_SECONDS).anchor_set.digest
    for case in jobs(stored):
        refused, _ = call(channel, case)
        assert refused is not None, f"{case.id} was queued"
        assert (refused.code, refused.fields) == (case.code, (case.field,)), case.id
    for checkpoint in ("lewm", given_wire.CHECKPOINT):
        fields = {"anchor_set": stored, "perturbation": given_wire.given(), "dataset": None}
        good = wire.score(checkpoint=wire.checkpoint(checkpoint), **fields)
        name = ScoringServiceStub(channel).ScoreCheckpoint(good, timeout=GENEROUS_SECONDS).name
        wanted = WaitOperationRequest(name=name)
        ended = OperationsStub(channel).WaitOperation(wanted, timeout=GENEROUS_SECONDS)
        assert ended.WhichOneof("result") == "response", ended.error


def test_refused_uploads_without_a_name_leave_nothing(
    channel: grpc.Channel, world: ServedWorld
) -> None:
    def stored() -> set[Path]:
        store = world.state_dir / "anchors"
        return {
            item for folder in ("uploads", "trash", "sets") for item in (store / folder).glob("*")
        }

    before = stored()
    refused, _ = call(channel, BAD_UPLOADS[-1])
    assert refused is not None
    assert stored() <= before


def test_a_good_upload_is_still_stored(channel: grpc.Channel) -> None:
    stub = AnchorServiceStub(channel)
    stored = stub.UploadAnchors(anchor_wire.upload(), timeout=GENEROUS_SECONDS).anchor_set
    assert stored.digest == anchor_wire.digest(anchor_wire.anchor_arrays())
    assert (stored.anchors, stored.history, stored.horizon) == (12, 2, 3)
    assert (stored.height, stored.width) == (anchor_wire.HEIGHT, anchor_wire.WIDTH)
    assert (stored.action_block_dim, stored.state_dim) == (4, 2)
    assert stored.expire_time.seconds - stored.create_time.seconds == pytest.approx(90 * 86400, 60)
    assert stub.GetAnchorSet(pb.GetAnchorSetRequest(digest=stored.digest)).anchor_set == stored
    stub.DeleteAnchorSet(pb.DeleteAnchorSetRequest(digest=stored.digest))


def test_trajectories_that_are_not_given_are_each_anchors_own(channel: grpc.Channel) -> None:
    messages = [anchor_wire.header(anchors=8)]
    messages += [anchor_wire.shard(start, start + 4, trajectory_ids=None) for start in (0, 4)]
    stub = AnchorServiceStub(channel)
    stored = stub.UploadAnchors(iter(messages), timeout=GENEROUS_SECONDS).anchor_set
    arrays = {name: array[:8] for name, array in anchor_wire.anchor_arrays().items()}
    arrays["trajectory_ids"] = np.arange(8)
    assert stored.digest == anchor_wire.digest(arrays)
