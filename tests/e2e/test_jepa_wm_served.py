"""A real server with JEPA-WM checkpoints, made and converted as a reader would, against loops."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pair_reference
import pixel_reference as pixels
import pytest
import score_reference
import wire
from acpc.contract import DatasetAnchors, GaussianNoise, ScoreProtocol
from acpc_client.sync.client import AcpcClient
from acpc_server.cli import app
from jepa_wm_reference import FlatJepaWm
from jepa_wms import convert, tiny
from served_world import ServedWorld, served
from test_score_agreement import TOLERANCE, worst
from typer.testing import CliRunner
from waiting import GENEROUS_SECONDS

SIZES = tiny.Sizes(action=(10, 0))
FRAMES_ALONE = tiny.Sizes(action=(10, 0), proprio=(0, 0))
NOISE = GaussianNoise(0.08)
SEED, DRAWS, HORIZON = 7, 2, 3


@pytest.fixture(scope="module")
def checkpoints(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("checkpoints")
    for name, sizes in (("body", SIZES), ("frames", FRAMES_ALONE)):
        source, backbone = tiny.write(root / "in" / name, sizes, "jepa_wm")
        asked = [source, "--backbone", backbone, "--out", root / "out" / name]
        asked += ["--image-size", "12", "--heads", "2"]
        assert convert.main([str(x) for x in asked]) == 0
    return root / "out"


@pytest.fixture(scope="module")
def client(
    checkpoints: Path, world: ServedWorld, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[AcpcClient]:
    with served(checkpoints, world.dataset_root, tmp_path_factory.mktemp("state")) as client:
        yield client


def test_it_keeps_its_promises(checkpoints: Path) -> None:
    asked = ["check-checkpoint", str(checkpoints / "body"), "--conformance"]
    shown = CliRunner().invoke(app, asked)
    assert shown.exit_code == 0
    assert "jepa_wm" in shown.stdout
    assert shown.stdout.count("\nkept    ") == 13


def test_score_checkpoint(client: AcpcClient, world: ServedWorld) -> None:
    source = DatasetAnchors("tworoom.h5", "tworoom", count=8)
    protocol = ScoreProtocol(draws=DRAWS, seed=SEED, horizon=HORIZON)
    job = client.score_checkpoint("frames", source, NOISE, protocol=protocol)
    found = job.result(timeout=GENEROUS_SECONDS).checkpoint
    anchors = score_reference.draw_anchors(
        world.columns, history=2, horizon=HORIZON, count=8, seed=9101, frameskip=5
    )
    wanted = score_reference.score(
        FlatJepaWm(FRAMES_ALONE), anchors, NOISE.to_spec(), history=2, draws=DRAWS, seed=SEED
    )
    assert worst(found, wanted, anchors.ids, 0.1) <= TOLERANCE


def test_pools_and_planning_see_proprioception(client: AcpcClient) -> None:
    """Costs are jepa-wms' own: tokens, and a tenth of what every patch says of proprioception."""
    random = np.random.default_rng(2)
    frames = wire.frames(3, height=16, width=16)
    proprio = random.standard_normal((3, 4)).astype(np.float32)
    past = wire.blocks(1, seed=3)
    pool = np.stack([wire.blocks(HORIZON, seed=seed) for seed in range(4)])
    model = FlatJepaWm(SIZES)
    images = pixels.model_input(frames, model.image_size)
    body = proprio.astype(np.float64)
    aim = model.encode(images[2:], body[2:])[0]

    def ends(history: np.ndarray) -> np.ndarray:
        each = (np.concatenate([past, blocks]).astype(np.float64) for blocks in pool)
        return np.stack([model.imagine(history, body[:2], blocks)[-1] for blocks in each])

    clean = ends(images[:2])
    costs = ((clean - aim) ** 2).sum(axis=1)
    given = {"past_blocks": past, "proprio": proprio[:2], "perturbations": NOISE, "seed": SEED}
    answer = client.certify_pool(
        "body", frames[:2], pool, frames[2], goal_proprio=proprio[2], **given
    )
    assert answer.clean_costs == pytest.approx(costs, rel=1e-4)
    noisy = pair_reference.perturbed(images[:2], NOISE.to_spec(), seed=SEED, anchor=0, draw=0)
    moved = np.linalg.norm(ends(noisy) - clean, axis=1)
    assert answer.views[0].displacements == pytest.approx(moved, rel=1e-4)
    with client.plan("body", frames[:2], frames[2], goal_proprio=proprio[2], **given) as session:
        assert session.certify(pool).clean_costs == pytest.approx(costs, rel=1e-4)
