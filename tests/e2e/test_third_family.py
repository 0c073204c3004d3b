"""The package of "bring your own model", installed beside a real server, against float64 loops."""

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy_reference as metrics
import pair_reference
import pixel_reference as pixels
import pytest
import score_reference
import wire
from acpc.contract import DatasetAnchors, GaussianNoise, Occlusion, Perturbation, ScoreProtocol
from acpc_client.errors import InvalidArgument
from acpc_client.sync.client import AcpcClient
from acpc_server.cli import app
from conv_reference import ConvReference
from example_scripts import install
from served_world import ServedWorld, served
from test_pair_agreement import shown
from test_pair_agreement import worst as worst_of_pair
from test_score_agreement import worst as worst_of_score
from typer.testing import CliRunner
from waiting import GENEROUS_SECONDS

SOURCE = Path(__file__).parents[2] / "examples" / "bring_your_own"
CHECKPOINTS = SOURCE / "checkpoints"
COUNT, HORIZON, DRAWS, SEED, ANCHOR = 16, 4, 2, 7, 5


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return install(SOURCE, tmp_path_factory.mktemp("site"))


@pytest.fixture(scope="module")
def conv_client(
    site: Path, world: ServedWorld, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[AcpcClient]:
    state = tmp_path_factory.mktemp("state")
    environment = {"PYTHONPATH": os.pathsep.join([str(site), os.environ.get("PYTHONPATH", "")])}
    with served(CHECKPOINTS, world.dataset_root, state, environment=environment) as client:
        yield client


def test_the_server_knows_the_family(conv_client: AcpcClient) -> None:
    card = conv_client.checkpoints.load("conv-base").checkpoint.model
    assert (card.family, card.image_size, card.latent_dim) == ("conv-jepa", 32, 128)
    assert (card.history, card.action_block_dim) == (1, 10)


def test_compare_pair(conv_client: AcpcClient) -> None:
    shifts = [GaussianNoise(0.08), Occlusion(0.3)]
    history, blocks = wire.frames(1, height=40, width=40), wire.blocks(HORIZON)
    future = wire.frames(HORIZON, height=40, width=40, seed=9)
    answer = conv_client.compare_pair(
        "conv-base", history, blocks, perturbations=shifts, draws=DRAWS, seed=SEED,
        anchor=ANCHOR, observed_future=future,
    )  # fmt: skip
    model = ConvReference.of(CHECKPOINTS / "conv-base")
    images = pixels.model_input(history, model.image_size)
    views = [
        pair_reference.perturbed(images, shift.to_spec(), seed=SEED, anchor=ANCHOR, draw=draw)
        for shift in shifts
        for draw in range(DRAWS)
    ]
    wanted = pair_reference.compare(model, history, blocks, views, future=future)
    shown("ComparePair", worst_of_pair(answer, wanted))


@pytest.mark.parametrize("shift", [GaussianNoise(0.08), Occlusion(0.3)], ids=str)
def test_score_checkpoint(conv_client: AcpcClient, world: ServedWorld, shift: Perturbation) -> None:
    """With a reference: both checkpoints, and the verdict on the one trained with noise."""
    source = DatasetAnchors("tworoom.h5", "tworoom", count=COUNT)
    protocol = ScoreProtocol(draws=DRAWS, seed=SEED, horizon=HORIZON)
    asked = {"reference": "conv-base", "protocol": protocol}
    job = conv_client.score_checkpoint("conv-augmented", source, shift, **asked)
    score = job.result(timeout=GENEROUS_SECONDS)
    anchors = score_reference.draw_anchors(
        world.columns, history=1, horizon=HORIZON, count=COUNT, seed=9101, frameskip=5
    )
    assert score.reference is not None
    for found, name in ((score.checkpoint, "conv-augmented"), (score.reference, "conv-base")):
        wanted = score_reference.score(
            ConvReference.of(CHECKPOINTS / name), anchors, shift.to_spec(),
            history=1, draws=DRAWS, seed=SEED,
        )  # fmt: skip
        shown(f"ScoreCheckpoint, {name}", worst_of_score(found, wanted, anchors.ids, 0.1))
    relative = metrics.relative_ir(score.checkpoint.ir_raw, score.reference.ir_raw)
    assert score.verdict.ir_relative == pytest.approx(relative, rel=1e-9)


def test_frames_that_are_not_square_are_refused(conv_client: AcpcClient) -> None:
    history = wire.frames(1, height=32, width=40)
    with pytest.raises(InvalidArgument, match="32 x 40 pixels; this model takes square frames"):
        conv_client.compare_pair(
            "conv-base", history, wire.blocks(HORIZON), perturbations=GaussianNoise(0.1)
        )


def test_the_family_keeps_its_promises(site: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [n for n in sys.modules if n.partition(".")[0] == "acpc_conv_jepa"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.syspath_prepend(str(site))
    folder = str(CHECKPOINTS / "conv-base")
    shown = CliRunner().invoke(app, ["doctor", folder, "--conformance"])
    assert shown.exit_code == 0
    assert "conv-jepa" in shown.stdout
    assert shown.stdout.count("\nkept    ") == 10
