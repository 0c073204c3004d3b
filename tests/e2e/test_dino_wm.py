"""A real server with a PreJEPA checkpoint whose frames come with proprioception."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import numpy_reference as metrics
import pair_reference
import pixel_reference as pixels
import pytest
from acpc.arrays import NDArray
from acpc.contract import (
    ApplyTo,
    DatasetAnchors,
    GaussianBlur,
    GaussianNoise,
    NumericMode,
    ScoreProtocol,
    SensitivityStudy,
)
from acpc_client.errors import InvalidArgument
from acpc_client.sync.client import AcpcClient
from loaded_model import LoadedModel
from planning_world import certify
from public_checkpoint import public_config, write_checkpoint
from public_dataset import public_columns, write_public_dataset
from public_prejepa import TINY, public_prejepa, write_prejepa
from served_world import served
from waiting import GENEROUS_SECONDS

TASK = """
name: tiny
state: pos_agent
proprio: body
frameskip: 3
labels: [{rule: coordinates, of: [0]}]
"""
SIDE = 30
RANDOM = np.random.default_rng(3)
PROTOCOL = ScoreProtocol(horizon=2, draws=2)
NOISE = GaussianNoise(0.1)
SOURCE = DatasetAnchors("rooms.h5", "tiny.yaml", count=12)


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[AcpcClient]:
    root = tmp_path_factory.mktemp("dino")
    write_prejepa(root / "checkpoints/dino", TINY, public_prejepa(TINY))
    write_checkpoint(root / "checkpoints/lewm", public_config(block_dim=6))
    body = np.random.default_rng(1).normal(5.0, 2.0, (150, 4)).astype(np.float32)
    (root / "data").mkdir()
    columns = public_columns((40, 50, 60), side=SIDE)
    write_public_dataset(root / "data/rooms.h5", columns, override={"body": body})
    (root / "data/tiny.yaml").write_text(TASK)
    (root / "data/bare.yaml").write_text(TASK.replace("proprio: body\n", ""))
    with served(root / "checkpoints", root / "data", root / "state") as client:
        yield client


def frames(*count: int) -> NDArray[np.uint8]:
    return RANDOM.integers(0, 256, (*count, SIDE, SIDE, 3), dtype=np.uint8)


def normal(*shape: int) -> NDArray[np.float32]:
    return RANDOM.standard_normal(shape).astype(np.float32)


def test_a_pair_and_a_certificate_are_the_papers(client: AcpcClient, tmp_path: Path) -> None:
    write_prejepa(tmp_path / "dino", TINY, public_prejepa(TINY))
    model = LoadedModel.of(tmp_path / "dino")
    history, view, proprio = frames(2), frames(1, 2), normal(2, 4)
    blocks, goal, goal_proprio = normal(1 + 3, 6), frames(), normal(4)
    seen = model.beside(proprio)
    inputs = pixels.model_input(view[0], model.image_size)
    (wanted,) = pair_reference.compare(seen, history, blocks, [inputs])
    compared = client.compare_pair("dino", history, blocks, views=view, proprio=proprio)
    (found,) = compared.results
    assert found.acpc == pytest.approx(wanted.acpc, rel=1e-4)
    assert found.step_distances == pytest.approx(wanted.step_distances, rel=1e-4)
    assert found.encoder_shift == pytest.approx(wanted.encoder_shift, rel=1e-4)
    given = {"views": view, "proprio": proprio + 1}
    moved = client.compare_pair("dino", history, blocks, **given)
    assert moved.results[0].acpc != pytest.approx(found.acpc, rel=1e-4)
    assert moved.receipt.anchors_digest != compared.receipt.anchors_digest

    pool = normal(4, 3, 6)
    latents = [seen.encode(pixels.model_input(x, model.image_size)) for x in (history, view[0])]
    actions = [np.concatenate([blocks[:1], one]).astype(np.float64) for one in pool]
    clean, other = (np.stack([model.rollout(x, one) for one in actions]) for x in latents)
    at_goal, image = (
        model.beside(goal_proprio[None]),
        pixels.model_input(goal[None], model.image_size),
    )
    (aim,) = at_goal.encode(image)
    expected = certify(clean, other, (aim, aim), mean=False, weights=metrics.uniform(3))
    answer = client.certify_pool(
        "dino", history, pool, goal, past_blocks=blocks[:1], views=view, proprio=proprio,
        goal_proprio=goal_proprio,
    )  # fmt: skip
    np.testing.assert_allclose(answer.clean_costs, expected.clean_costs, rtol=1e-4)
    for name in ("perturbed_costs", "displacements", "bounds", "chained_bounds", "acpc"):
        np.testing.assert_allclose(
            getattr(answer.views[0], name), getattr(expected, name), rtol=3e-4
        )
    with client.plan("dino", history[:1], goal, views=view[:, :1], proprio=proprio[:1],
                     goal_proprio=goal_proprio) as session:  # fmt: skip
        session.restart("dino", history, goal, past_blocks=blocks[:1], views=view,
                        proprio=proprio, goal_proprio=goal_proprio)  # fmt: skip
        same = session.certify(pool)
    np.testing.assert_allclose(same.clean_costs, expected.clean_costs, rtol=1e-4)
    seen = pair_reference.perturbed(image, GaussianBlur(3).to_spec(), seed=0, anchor=0, draw=0)
    blurred = at_goal.encode(seen)[0]  # with the goal's proprioception
    moved = client.certify_pool(
        "dino", history, pool, goal, past_blocks=blocks[:1], perturbations=GaussianBlur(3),
        apply_to=ApplyTo.GOAL, proprio=proprio, goal_proprio=goal_proprio,
    )  # fmt: skip
    wanted = certify(clean, clean, (aim, blurred), mean=False, weights=metrics.uniform(3))
    np.testing.assert_allclose(moved.views[0].bounds, wanted.bounds, rtol=3e-4)
    margin = metrics.elite_margin(expected.clean_costs, expected.bounds, 1)
    scale = max(expected.clean_costs)
    assert answer.views[0].top1.margin == pytest.approx(margin, abs=1e-3 * scale)


def test_scores_from_a_dataset_and_from_its_set(client: AcpcClient) -> None:
    asked = {"protocol": PROTOCOL}
    direct = client.score_checkpoint("dino", SOURCE, NOISE, **asked)
    stored = client.anchors.create(SOURCE, history=3, horizon=2)
    assert [(x.name, x.shape) for x in stored.extras] == [("proprio", (5, 4))]
    again = client.score_checkpoint("dino", stored.digest, NOISE, **asked)
    first, second = (job.result(timeout=GENEROUS_SECONDS) for job in (direct, again))
    assert first.receipt.anchors_digest == second.receipt.anchors_digest
    assert first.checkpoint.ir_raw == second.checkpoint.ir_raw > 0
    assert np.array_equal(first.checkpoint.anchor_values.radius,
                          second.checkpoint.anchor_values.radius)  # fmt: skip
    asked["numeric_mode"] = NumericMode.FP64
    exact = client.score_checkpoint("dino", stored.digest, NOISE, **asked)
    in_float64 = exact.result(timeout=GENEROUS_SECONDS).checkpoint.ir_raw
    assert first.checkpoint.ir_raw == pytest.approx(in_float64, rel=1e-4)


def test_data_without_proprioception_is_turned_down(client: AcpcClient) -> None:
    bare = DatasetAnchors("rooms.h5", "bare.yaml", count=12)
    with pytest.raises(InvalidArgument, match=r"no column of it, .* width 4; give a task file"):
        client.score_checkpoint("dino", bare, NOISE, protocol=PROTOCOL)
    stored = client.anchors.create(bare, history=3, horizon=2)
    with pytest.raises(InvalidArgument, match="0 coordinates of proprioception"):
        client.score_checkpoint("dino", stored.digest, NOISE, protocol=PROTOCOL)
    with pytest.raises(InvalidArgument, match="sensitivity study takes no"):
        client.run_study("dino", SOURCE, SensitivityStudy(horizon=2))
