"""Views that an anchor set brings: jobs measure a group of them as any shift."""

import asyncio
import dataclasses
import json
from collections.abc import Iterator

import numpy as np
import pytest
import torch
from acpc.contract import (
    CemBudget,
    DriftStudy,
    GivenViews,
    Perturbation,
    PlannerStudy,
    RandomShift,
    ScoreProtocol,
)
from acpc_client import AnchorArrays, AnchorSet, Score
from acpc_client.aio.client import AsyncAcpcClient
from acpc_client.errors import FailedPrecondition, InvalidArgument, NotFound
from acpc_client.sync.client import AcpcClient
from acpc_command import acpc_command
from acpc_server.numerics import to_model_input, to_pixels
from acpc_server.perturb import perturb_frames
from anchor_wire import anchor_arrays
from job_world import JobWorld
from server_process import ServerProcess

HISTORY, HORIZON, SIDE, COUNT = 3, 8, 28, 20
DRAWS, VIEWS, SEED = 3, 4, 7
SHIFT, GROUP = RandomShift(4), GivenViews("moved:4")
PROTOCOL = ScoreProtocol(draws=DRAWS, seed=SEED)


def make_anchors(count: int = COUNT) -> AnchorArrays:
    form = {"steps": HISTORY + HORIZON, "size": (SIDE, SIDE), "block": 10}
    return AnchorArrays(history=HISTORY, **anchor_arrays(count, 3, **form))


def moved(anchors: AnchorArrays, seed: int) -> np.ndarray:
    """What the server would draw, as pixels, which hold a shift by whole pixels exactly."""
    views = np.empty((len(anchors), VIEWS, HISTORY, SIDE, SIDE, 3), np.uint8)
    for row, identity in enumerate(anchors.anchor_ids.tolist()):
        history = to_model_input(torch.from_numpy(anchors.frames[row, :HISTORY]), SIDE)
        for draw in range(VIEWS):
            drawn = perturb_frames(history, SHIFT, seed=seed, anchor=identity, draw=draw)
            views[row, draw] = to_pixels(drawn).numpy()
    return views


@pytest.fixture(scope="module")
def client(job_server: ServerProcess) -> Iterator[AcpcClient]:
    with AcpcClient(job_server.address) as opened:
        yield opened


@pytest.fixture(scope="module")
def anchors() -> AnchorArrays:
    return make_anchors()


@pytest.fixture(scope="module")
def views(anchors: AnchorArrays) -> np.ndarray:
    return moved(anchors, SEED)


@pytest.fixture(scope="module")
def stored(client: AcpcClient, anchors: AnchorArrays, views: np.ndarray) -> AnchorSet:
    groups = {GROUP.group: views, "once": views[:, :1]}
    return client.anchors.upload(dataclasses.replace(anchors, views=groups))


def score(client: AcpcClient, stored: AnchorSet, shift: Perturbation, **options: object) -> Score:
    given = {"reference": "base", "protocol": PROTOCOL, **options}
    return client.score_checkpoint("model", stored, shift, **given).result()


def test_a_group_scores_as_the_draws_that_it_holds(client: AcpcClient, stored: AnchorSet) -> None:
    assert stored.groups == {GROUP.group: VIEWS, "once": 1}
    drawn, given = score(client, stored, SHIFT), score(client, stored, GROUP)
    assert given.checkpoint == drawn.checkpoint  # IR, SR, every anchor's numbers, every bit
    assert given.reference == drawn.reference
    assert given.verdict == drawn.verdict
    assert given.receipt.anchors_digest == drawn.receipt.anchors_digest == stored.digest
    assert given.receipt.perturbation_digest != drawn.receipt.perturbation_digest
    (digest,) = (x.digest for x in stored.extras if x.name == f"views/{GROUP.group}")
    assert given.receipt.parameters["given_views"] == {GROUP.group: digest}
    assert "given_views" not in drawn.receipt.parameters


@pytest.mark.parametrize(
    "study",
    [
        DriftStudy(shifts=(SHIFT,), draws=DRAWS, seed=SEED, groups=4),
        PlannerStudy(shifts=(SHIFT,), draws=1, seed=SEED, budget=CemBudget(8, 2, 2)),
    ],
    ids=lambda study: study.kind,
)
def test_studies_take_a_group(client: AcpcClient, stored: AnchorSet, study: object) -> None:
    drawn = client.run_study("model", stored, study).result()
    given = client.run_study("model", stored, dataclasses.replace(study, shifts=(GROUP,))).result()
    assert set(given.columns) == set(drawn.columns)
    for name, column in drawn.columns.items():
        np.testing.assert_array_equal(given.columns[name], column, err_msg=name)
    assert given.receipt.perturbation_digest != drawn.receipt.perturbation_digest


def test_a_picture_of_a_group_is_its_frames(
    client: AcpcClient, stored: AnchorSet, views: np.ndarray, anchors: AnchorArrays
) -> None:
    job = client.score_checkpoint("model", stored, GROUP, protocol=PROTOCOL)
    job.result()
    for picture in client.preview_anchors(job, [0, 7], draw=2):
        np.testing.assert_array_equal(picture.perturbed, views[picture.anchor, 2])
        np.testing.assert_array_equal(picture.clean, anchors.frames[picture.anchor, :HISTORY])


def test_states_and_labels_of_a_set_are_told(
    job_server: ServerProcess, client: AcpcClient, stored: AnchorSet, anchors: AnchorArrays
) -> None:
    found = client.anchors.contents(stored)
    for name in ("endpoint_states", "labels", "anchor_ids"):
        np.testing.assert_array_equal(getattr(found, name), getattr(anchors, name))
    states = anchors.endpoint_states
    apart = [np.linalg.norm(a - b) for i, a in enumerate(states) for b in states[i + 1 :]]
    assert found.radius == pytest.approx(np.quantile(apart * 2, 0.35), rel=1e-12)

    async def at(quantile: float) -> float | None:
        async with AsyncAcpcClient(job_server.address) as other:
            return (await other.anchors.contents(stored, neighbourhood=quantile)).radius

    assert asyncio.run(at(1.0)) == pytest.approx(max(apart), rel=1e-12)
    with pytest.raises(InvalidArgument) as caught:
        client.anchors.contents(stored, neighbourhood=1.5)
    assert [v.field for v in caught.value.violations] == ["neighbourhood"]
    acpc = acpc_command("show", "anchor-set", stored.digest, "--contents", "--target")
    assert "states apart" in acpc(job_server.address).stdout
    listed = json.loads(acpc(job_server.address, "-o", "json").stdout)
    assert listed["contents"]["labels"] == anchors.labels.tolist()


def test_a_damaged_or_lost_set_fails_its_jobs_by_name(
    job_world: JobWorld, client: AcpcClient, anchors: AnchorArrays, views: np.ndarray
) -> None:
    """Views are checked when they are read: a job on what is whole beside them has its score."""
    stored = client.anchors.upload(
        dataclasses.replace(anchors, views={"hurt": views[::-1]}), compress=False
    )
    (folder,) = (job_world.root / "state").rglob(stored.digest)
    shard = folder / "00000000.npz"
    data = shard.read_bytes()
    view = views[-1].tobytes()
    assert data.count(view) == 1, "views are stored as they were sent"
    shard.write_bytes(data.replace(view, bytes([view[0] ^ 1]) + view[1:]))
    assert score(client, stored, SHIFT).checkpoint.anchors == COUNT
    with pytest.raises(FailedPrecondition, match="delete the set and upload it again") as caught:
        score(client, stored, GivenViews("hurt"))
    assert caught.value.reason == "ANCHOR_SET_DAMAGED"
    client.anchors.delete(stored)
    with pytest.raises(NotFound):
        score(client, stored, GivenViews("hurt"))
    again = client.anchors.upload(dataclasses.replace(anchors, views={"hurt": views[::-1]}))
    assert again.digest == stored.digest
    assert score(client, again, GivenViews("hurt")).receipt.anchors_digest == again.digest
