"""What jobs are measured on: the defaults of a dataset, and anchor sets."""

from dataclasses import replace

import grpc
import pytest
from acpc.contract import (
    CemBudget,
    DatasetAnchors,
    DriftStudy,
    GaussianNoise,
    PlannerStudy,
    ScoreProtocol,
)
from acpc.v1 import scoring_service_pb2
from acpc.v1 import study_service_pb2 as pb
from acpc.v1.study_service_pb2_grpc import StudyServiceStub
from acpc_client import AnchorSet
from acpc_client.errors import FailedPrecondition
from acpc_client.sync.client import AcpcClient
from public_dataset import public_columns, write_public_dataset
from served_world import ServedWorld
from waiting import GENEROUS_SECONDS

EPISODES = (70, 64, 1, 66, 90)
SHIFTS = [GaussianNoise(0.05)]
BUDGET = CemBudget(8, 3, 2, 3)


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


SOURCE = DatasetAnchors("sources.h5", "tworoom", count=4, one_per_episode=True)


@pytest.fixture(scope="module")
def stored(client: AcpcClient) -> AnchorSet:
    return client.anchors.create(SOURCE, history=3, horizon=3)


def test_a_set_gives_the_score_of_the_dataset_it_was_made_from(
    client: AcpcClient, stored: AnchorSet
) -> None:
    """All but what a dataset tells besides its anchors: its normaliser, and more misfits."""
    asked = {"reference": "lewm-base", "protocol": ScoreProtocol(draws=2, horizon=3)}
    of_set, of_dataset = (
        client.score_checkpoint("lewm", anchors, SHIFTS[0], **asked).result(GENEROUS_SECONDS)
        for anchors in (stored, SOURCE)
    )
    for side in ("checkpoint", "reference"):
        ours, theirs = (replace(getattr(x, side), fit=None) for x in (of_set, of_dataset))
        assert ours == theirs
    assert of_set.verdict == of_dataset.verdict
    assert of_set.receipt.anchors_digest == of_dataset.receipt.anchors_digest == stored.digest
    told, others = (dict(x.receipt.parameters) for x in (of_set, of_dataset))
    for parameters in (told, others):
        parameters |= {"action": None, "fit": None}
    assert told == others


@pytest.mark.parametrize(
    "study",
    [
        DriftStudy(SHIFTS, groups=2, horizon=3),
        PlannerStudy(SHIFTS, budget=BUDGET, history=3, goal_offset=3),
    ],
    ids=lambda study: type(study).__name__,
)
def test_a_set_gives_the_rows_of_the_dataset_it_was_made_from(
    client: AcpcClient, stored: AnchorSet, study: DriftStudy | PlannerStudy
) -> None:
    of_set, of_dataset = (
        client.run_study("lewm", anchors, study).result(timeout=GENEROUS_SECONDS)
        for anchors in (stored, SOURCE)
    )
    assert of_set.columns.keys() == of_dataset.columns.keys()
    for name, values in of_dataset.columns.items():
        assert of_set.columns[name].tobytes() == values.tobytes(), name
    assert of_set.receipt == of_dataset.receipt
    assert of_set.receipt.anchors_digest == stored.digest
    assert of_set.request["anchors"] == stored.digest
