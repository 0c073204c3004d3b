"""A real server with the V-JEPA 2-AC plug-in, against float64 loops."""

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pixel_reference as pixels
import pytest
import score_reference
import vjepa2_reference as reference
from acpc.arrays import NDArray
from acpc.contract import (
    DatasetAnchors,
    DistanceTerm,
    GaussianNoise,
    Norm,
    NumericMode,
    Objective,
    ScoreProtocol,
)
from acpc_client.errors import FailedPrecondition, InvalidArgument
from acpc_client.sync.client import AcpcClient
from example_scripts import plugged_in
from installed_package import install
from public_dataset import public_columns, write_public_dataset
from served_world import served
from test_score_agreement import TOLERANCE, worst
from vjepa2_ac import convert, tiny
from vjepa2_reference import Array
from waiting import GENEROUS_SECONDS

SOURCE = Path(__file__).parents[2] / "examples" / "vjepa2_ac"
POSED, BARE = tiny.Sizes(), tiny.Sizes(pose=False, inner_heads=1, grid=2)
LARGE = tiny.Sizes(hidden=8000)  # more than a million parameters
COUNT, HORIZON = 8, 2
NOISE = GaussianNoise(0.1)
PROTOCOL = ScoreProtocol(horizon=HORIZON, draws=2, seed=7)
COLUMNS = public_columns((12, 15, 9), action_dim=7, side=POSED.side)
POSES = np.random.default_rng(2).normal(0.4, 0.3, (36, 7)).astype(np.float32)
TASK = """
name: arm
state: pos_agent
frameskip: 1
history: 2
labels: [{rule: coordinates, of: [0]}]
"""
RANDOM = np.random.default_rng(3)
# V-JEPA 2's planner: the mean of |x - g| over a frame's features.
L1 = Objective(
    terms=(DistanceTerm(Norm.L1, squared=False, weight=(POSED.grid**2 * POSED.width) ** -0.5),)
)


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[AcpcClient]:
    root = tmp_path_factory.mktemp("arm")
    site = install(SOURCE, tmp_path_factory.mktemp("site"))
    with plugged_in(site, "acpc_vjepa2_ac"):
        for name, sizes in (("posed", POSED), ("bare", BARE), ("large", LARGE)):
            training = convert.Training(**sizes.training(history=2))
            source = tiny.write(root / name, sizes)
            convert.convert(source, root / "checkpoints" / name, training)
    (root / "data").mkdir()
    write_public_dataset(root / "data/arm.h5", COLUMNS, override={"pose": POSES})
    (root / "data/bare.yaml").write_text(TASK)
    (root / "data/posed.yaml").write_text(TASK + "proprio: pose\n")
    path = os.pathsep.join([str(site), os.environ.get("PYTHONPATH", "")])
    flags = {"environment": {"PYTHONPATH": path}, "max_parameters_millions": 1}
    with served(root / "checkpoints", root / "data", root / "state", **flags) as client:
        yield client


def frames(*count: int) -> NDArray[np.uint8]:
    return RANDOM.integers(0, 256, (*count, POSED.side, POSED.side, 3), dtype=np.uint8)


def normal(*shape: int) -> NDArray[np.float32]:
    return (RANDOM.standard_normal(shape) * 0.3).astype(np.float32)


@dataclass(frozen=True)
class Truth:
    """The latents of a checkpoint as ``reference_model.ReferenceModel`` gives them, unposed."""

    sizes: Any
    history: int = 2

    @property
    def image_size(self) -> int:
        return self.sizes.side

    @property
    def scale(self) -> float:
        return float((self.sizes.grid**2 * self.sizes.width) ** -0.5)

    def encode(self, images: Array) -> Array:
        found = reference.VJepa2AC(self.sizes).encode(images)
        return found.reshape(len(images), -1) * self.scale

    def rollout(self, latents: Array, blocks: Array, states: Array | None = None) -> Array:
        seen = (latents / self.scale).reshape(len(latents), -1, self.sizes.width)
        known = np.zeros((len(latents), 0)) if states is None else states
        model = reference.VJepa2AC(self.sizes)
        rolled, _ = model.rollout(seen, known, blocks, self.history)
        out: Array = rolled[len(latents) :].reshape(len(blocks) + 1 - len(latents), -1)
        return out * self.scale


def test_the_card_says_what_it_is(client: AcpcClient) -> None:
    card = client.checkpoints.load("posed").checkpoint.model
    assert (card.family, card.image_size, card.history) == ("vjepa2-ac", 12, 2)
    assert (card.latent_dim, card.latent_tokens) == (9 * 36 + 7, 9)
    assert (card.action_block_dim, card.proprio_dim) == (7, 7)
    bare = client.checkpoints.load("bare").checkpoint.model
    assert (bare.latent_dim, bare.proprio_dim) == (4 * 36, 0)


def test_pairs_pools_and_sessions_carry_the_pose_on(client: AcpcClient) -> None:
    """Three steps through a window of two frames, by poses that each action moves."""
    history, view, goal = frames(2), frames(1, 2), frames()
    poses, past, pool = normal(2, 7), normal(1, 7), normal(5, 3, 7)
    truth = Truth(POSED)
    clean, other, aim = (
        truth.encode(pixels.model_input(x, POSED.side)) for x in (history, view[0], goal[None])
    )

    def rolled(latents: Array, block: NDArray[np.float32]) -> Array:
        blocks = np.concatenate([past, block]).astype(np.float64)
        return truth.rollout(latents, blocks, poses.astype(np.float64))

    pair = client.compare_pair(
        "posed", history, np.concatenate([past, pool[0]]), views=view, proprio=poses
    )
    drift = np.linalg.norm(rolled(clean, pool[0]) - rolled(other, pool[0]), axis=1)
    assert pair.results[0].step_distances == pytest.approx(drift.tolist(), rel=1e-4)
    shift = np.linalg.norm(clean - other)
    assert pair.results[0].encoder_shift == pytest.approx(float(shift), rel=1e-4)

    ends = [np.stack([rolled(x, block)[-1] for block in pool]) - aim for x in (clean, other)]
    absolute = [np.abs(x).sum(axis=1) * truth.scale for x in ends]
    squared = [(x**2).sum(axis=1) for x in ends]
    given = {"past_blocks": past, "views": view, "proprio": poses, "goal_proprio": normal(7)}
    for objective, costs in ((L1, absolute), (None, squared)):
        found = client.certify_pool("posed", history, pool, goal, objective=objective, **given)
        assert found.clean_costs == pytest.approx(costs[0], rel=1e-4)
        assert found.views[0].perturbed_costs == pytest.approx(costs[1], rel=1e-4)
        assert found.clean_winner == int(np.argmin(costs[0]))
    with client.plan("posed", history[:1], goal, views=view[:, :1], proprio=poses[:1],
                     goal_proprio=normal(7), objective=L1) as session:  # fmt: skip
        session.restart("posed", history, goal, objective=L1, **given)
        assert session.certify(pool).clean_costs == pytest.approx(absolute[0], rel=1e-4)


def test_scores_agree_with_loops(client: AcpcClient) -> None:
    source = DatasetAnchors("arm.h5", "bare.yaml", count=COUNT)
    job = client.score_checkpoint("bare", source, NOISE, protocol=PROTOCOL)
    found = job.result(timeout=GENEROUS_SECONDS).checkpoint
    anchors = score_reference.draw_anchors(
        COLUMNS, history=2, horizon=HORIZON, count=COUNT, seed=9101, frameskip=1
    )
    wanted = score_reference.score(
        Truth(BARE), anchors, NOISE.to_spec(), history=2, draws=2, seed=7
    )  # fmt: skip
    assert worst(found, wanted, anchors.ids, 0.1) <= TOLERANCE


def test_scores_see_the_pose_of_a_dataset(client: AcpcClient) -> None:
    source = DatasetAnchors("arm.h5", "posed.yaml", count=COUNT)
    narrow, wide = (
        client.score_checkpoint("posed", source, NOISE, protocol=PROTOCOL, numeric_mode=mode)
        .result(timeout=GENEROUS_SECONDS)
        .checkpoint
        for mode in (NumericMode.FP32, NumericMode.FP64)
    )
    assert narrow.ir_raw == pytest.approx(wide.ir_raw, rel=1e-4)
    bare = DatasetAnchors("arm.h5", "bare.yaml", count=COUNT)
    with pytest.raises(InvalidArgument, match=r"no column of it, .* width 7; give a task file"):
        client.score_checkpoint("posed", bare, NOISE, protocol=PROTOCOL)


def test_the_operator_says_how_large_a_network_may_be(client: AcpcClient) -> None:
    with pytest.raises(FailedPrecondition, match="above the limit of 1000000"):
        client.checkpoints.load("large")
