"""What jobs are measured on: the defaults of a dataset, and anchor sets."""

import grpc
import pytest
from acpc.contract import (
    DatasetAnchors,
    DriftStudy,
    GaussianNoise,
)
from acpc.v1 import scoring_service_pb2
from acpc.v1 import study_service_pb2 as pb
from acpc.v1.study_service_pb2_grpc import StudyServiceStub
from acpc_client.errors import FailedPrecondition
from acpc_client.sync.client import AcpcClient
from public_dataset import public_columns, write_public_dataset
from served_world import ServedWorld
from waiting import GENEROUS_SECONDS

EPISODES = (70, 64, 1, 66, 90)
SHIFTS = [GaussianNoise(0.05)]


@pytest.fixture(scope="module", autouse=True)
def dataset(world: ServedWorld) -> None:
    columns = public_columns(EPISODES, side=36, seed=9)
    write_public_dataset(world.dataset_root / "sources.h5", columns)


def accepted(channel: grpc.Channel, **study: object) -> pb.RunStudyRequest:
    """The request as the server took it, from the operation's metadata."""
    asked = {"dataset": {"dataset": "sources.h5", "task": "tworoom"}, **study}
    operation = StudyServiceStub(channel).RunStudy(
        pb.RunStudyRequest(checkpoint={"name": "lewm"}, **asked), timeout=GENEROUS_SECONDS
    )
    metadata = pb.RunStudyMetadata()
    assert operation.metadata.Unpack(metadata)
    assert metadata.state == scoring_service_pb2.JOB_STATE_QUEUED or metadata.attempts
    return metadata.request


def test_defaults_are_the_papers_and_are_said(channel: grpc.Channel) -> None:
    few = {"dataset": "sources.h5", "task": "tworoom", "count": 4}
    drift = accepted(channel, dataset=few, drift={"groups": 2})
    assert drift.dataset.one_per_episode
    assert (drift.dataset.seed, drift.dataset.count) == (9101, 4)
    assert len(drift.checkpoint.digest) == 64
    assert [shift.gaussian_noise.sigma for shift in drift.drift.shifts] == [0.02, 0.05, 0.08]
    assert (drift.drift.draws, drift.drift.horizon) == (2, 8)
    planner = accepted(channel, dataset=few, planner={})
    assert planner.dataset.one_per_episode
    assert planner.planner == pb.PlannerStudy(
        shifts=drift.drift.shifts, draws=1, seed=0, sampling_seed=0, cost_reduction=2, returns=1,
        budget={"candidates": 64, "elites": 8, "iterations": 8, "horizon": 5},
        history=1, goal_offset=5, reading=1,
    )  # fmt: skip
    geometry = accepted(channel, geometry={"horizon": 1})
    assert (geometry.dataset.count, geometry.dataset.one_per_episode) == (128, False)
    assert [shift.gaussian_noise.sigma for shift in geometry.geometry.shifts] == [0.01, 0.04, 0.08]
    assert geometry.geometry.draws == 6
    sensitivity = accepted(channel, dataset=few, sensitivity={"horizon": 1})
    assert not sensitivity.dataset.one_per_episode
    assert sensitivity.sensitivity == pb.SensitivityStudy(probes=8, seed=0, horizon=1, step=0.001)


def test_anchors_of_too_few_trajectories_fail_the_job(client: AcpcClient) -> None:
    """Only the job reads which trajectories the anchors come from."""
    source = DatasetAnchors("sources.h5", "tworoom", count=8, one_per_episode=False)
    job = client.run_study("lewm", source, DriftStudy(SHIFTS, groups=6, horizon=2))
    with pytest.raises(FailedPrecondition, match="trajectories, too few for 6 groups") as caught:
        job.result(timeout=GENEROUS_SECONDS)
    assert caught.value.reason == "TOO_FEW_TRAJECTORIES"
