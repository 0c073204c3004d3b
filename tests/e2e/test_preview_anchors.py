"""PreviewAnchors over the wire: pictures computed independently, and precise refusals."""

import numpy as np
import numpy_reference as metrics
import pair_reference
import pixel_reference as pixels
import pytest
import score_reference
import wire
from acpc.contract import DatasetAnchors, GaussianNoise, Perturbation, ScoreProtocol
from acpc.v1 import scoring_service_pb2 as pb
from acpc_client import AnchorPreview
from acpc_client.errors import InvalidArgument
from acpc_client.sync.client import AcpcClient
from acpc_client.sync.resources import ScoreJob
from job_world import JobCaller, JobWorld, job, metadata
from public_dataset import public_columns, write_public_dataset
from served_world import ServedWorld
from waiting import GENEROUS_SECONDS

COUNT, HORIZON, SEED, DRAWS = 24, 4, 5, 3
CHECKPOINT_SIDE = 28
Pictures = tuple[np.ndarray, np.ndarray, np.ndarray | None]


def levels(images: np.ndarray) -> np.ndarray:
    """Normalised images as the levels a picture shows, before rounding: float64 (h, ..., 3)."""
    return np.clip(images.transpose(0, 2, 3, 1) * pixels.STD + pixels.MEAN, 0, 1) * 255


def same(found: np.ndarray, wanted: np.ndarray) -> bool:
    """Whether a picture is the rounded reference; float32 may round a tie the other way."""
    assert found.dtype == np.uint8
    assert found.shape == wanted.shape
    return bool((np.abs(found - wanted) <= 0.5 + 1e-3).all())


@pytest.fixture(scope="module")
def anchors(world: ServedWorld) -> score_reference.Anchors:
    return score_reference.draw_anchors(
        world.columns, history=3, horizon=HORIZON, count=COUNT, seed=9101, frameskip=5
    )


def submit(client: AcpcClient, shift: Perturbation) -> ScoreJob:
    anchors = DatasetAnchors("tworoom.h5", "tworoom", count=COUNT)
    protocol = ScoreProtocol(draws=DRAWS, seed=SEED, horizon=HORIZON)
    return client.score_checkpoint("lewm", anchors, shift, protocol=protocol)


@pytest.fixture(scope="module")
def scored(client: AcpcClient) -> ScoreJob:
    job = submit(client, GaussianNoise(0.3))
    job.result(timeout=GENEROUS_SECONDS)
    return job


def wanted(
    anchors: score_reference.Anchors, index: int, shift: Perturbation, draw: int
) -> Pictures:
    """Clean, perturbed and the partner's history, from the frames of the file."""

    def history(anchor: int) -> np.ndarray:
        return pixels.model_input(anchors.frames[anchor][:3], CHECKPOINT_SIDE)

    clean = history(index)
    view = pair_reference.perturbed(
        clean, shift.to_spec(), seed=SEED, anchor=anchors.ids[index], draw=draw
    )
    partners, _ = metrics.pairing(anchors.states, anchors.labels)
    partner = partners[index]
    other = None if partner < 0 else levels(history(partner))
    return levels(clean), levels(view), other


def agrees(found: AnchorPreview, reference: Pictures) -> None:
    clean, view, partner = reference
    assert same(found.clean, clean)
    assert same(found.perturbed, view)
    assert (found.partner is None) == (partner is None)
    if found.partner is not None and partner is not None:
        assert same(found.partner, partner)


def test_pictures_of_every_anchor_and_draw(
    client: AcpcClient, scored: ScoreJob, anchors: score_reference.Anchors
) -> None:
    """Noise strong enough to clip; the order asked for, repeats included."""
    for draw in range(DRAWS):
        found = client.preview_anchors(scored, range(COUNT), draw=draw)
        assert [preview.anchor for preview in found] == list(range(COUNT))
        for preview in found:
            agrees(preview, wanted(anchors, preview.anchor, GaussianNoise(0.3), draw))
            assert {0, 255} <= set(preview.perturbed.reshape(-1).tolist())
    found = client.preview_anchors(scored.name, [7, 3, 7])
    assert [preview.anchor for preview in found] == [7, 3, 7]
    assert found[0] == found[2]


@pytest.mark.parametrize(
    ("anchors", "draw", "field", "message"),
    [
        ([], 0, "anchors", "names 0 anchors; give 1 to 32"),
        ([0] * 33, 0, "anchors", "names 33 anchors; give 1 to 32"),
        ([1, COUNT], 0, "anchors[1]", "is 24, but the job has 24 anchors, 0 to 23"),
        ([2**32 - 1], 0, "anchors[0]", "is 4294967295"),
        ([1], DRAWS, "draw", "is 3, but the job has 3 draws, 0 to 2"),
    ],
)
def test_what_is_out_of_range_is_refused(
    client: AcpcClient, scored: ScoreJob, anchors: list[int], draw: int, field: str, message: str
) -> None:
    with pytest.raises(InvalidArgument, match=message.replace("[", r"\[")) as caught:
        client.preview_anchors(scored, anchors, draw=draw)
    assert caught.value.violations[0].field == field


def refused(calls: JobCaller, name: str) -> wire.Refusal:
    request = pb.PreviewAnchorsRequest(name=name, anchors=[0])
    found = wire.refusal(lambda: calls.scoring.PreviewAnchors(request))
    assert found is not None
    return found


def test_only_a_job_that_succeeded_has_pictures(calls: JobCaller) -> None:
    long = job(dataset={"dataset": "rooms.h5", "task": "tworoom", "count": 300})
    running = calls.submit(long).name
    next(o for o in calls.watch(running) if metadata(o).progress.completed)
    queued = calls.submit(job()).name
    for name, state in ((queued, "queued"), (running, "running")):
        found = refused(calls, name)
        assert (found.code, found.reason) == ("FAILED_PRECONDITION", "OPERATION_NOT_SUCCEEDED")
        assert f"{name} is {state}; only a job that succeeded" in found.message
    calls.cancel(running)
    assert "is cancelled" in refused(calls, running).message
    calls.finished(queued)
    preview = pb.PreviewAnchorsRequest(name=queued, anchors=[0])
    assert len(calls.scoring.PreviewAnchors(preview).previews) == 1


def test_a_dataset_that_changed_has_no_pictures_and_a_copy_has(
    calls: JobCaller, job_world: JobWorld
) -> None:
    """What counts is the content: of the states, of the actions, and of the frames shown."""
    name = calls.finished(calls.submit(job()).name).name
    request = pb.PreviewAnchorsRequest(name=name, anchors=[0, 5])
    before = calls.scoring.PreviewAnchors(request)
    job_world.write_dataset(seed=5)
    assert calls.scoring.PreviewAnchors(request) == before
    content = public_columns([150] * 6, side=28, seed=5)
    content.columns["pixels"][:] += 1
    write_public_dataset(job_world.datasets / "rooms.h5", content)
    assert refused(calls, name).reason == "DATASET_CHANGED"
    job_world.write_dataset(seed=6)
    assert refused(calls, name).reason == "DATASET_CHANGED"
    (job_world.datasets / "rooms.h5").unlink()
    assert refused(calls, name).code == "NOT_FOUND"
    job_world.write_dataset(seed=5)
    assert calls.scoring.PreviewAnchors(request) == before
