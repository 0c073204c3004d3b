"""The package of "bring your own model", installed beside a real server."""

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import score_reference
import wire
from acpc.contract import DatasetAnchors, GaussianNoise, Occlusion, ScoreProtocol
from acpc_client.errors import InvalidArgument
from acpc_client.sync.client import AcpcClient
from example_scripts import EXAMPLES, install
from loaded_model import LoadedModel
from served_world import ServedWorld, served
from test_pair_agreement import shown
from test_score_agreement import worst as worst_of_score
from waiting import GENEROUS_SECONDS

SOURCE = EXAMPLES / "bring_your_own"
CHECKPOINTS = SOURCE / "checkpoints"
COUNT, HORIZON, DRAWS, SEED, ANCHOR = 16, 4, 2, 7, 5


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    made = install(SOURCE, tmp_path_factory.mktemp("site"))
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(made))
        yield made
    for name in [name for name in sys.modules if name.partition(".")[0] == "acpc_conv_jepa"]:
        del sys.modules[name]


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
    given = wire.frames(1, height=32, width=40), wire.blocks(HORIZON)
    with pytest.raises(InvalidArgument, match="32 x 40 pixels; this model takes square frames"):
        conv_client.compare_pair("conv-base", *given, perturbations=GaussianNoise(0.1))


def test_score_checkpoint(conv_client: AcpcClient, world: ServedWorld) -> None:
    source, shift = DatasetAnchors("tworoom.h5", "tworoom", count=COUNT), Occlusion(0.3)
    protocol = ScoreProtocol(draws=DRAWS, seed=SEED, horizon=HORIZON)
    job = conv_client.score_checkpoint("conv-augmented", source, shift, protocol=protocol)
    anchors = score_reference.draw_anchors(
        world.columns, history=1, horizon=HORIZON, count=COUNT, seed=9101, frameskip=5
    )
    wanted = score_reference.score(
        LoadedModel.of(CHECKPOINTS / "conv-augmented"),
        anchors,
        shift.to_spec(),
        history=1,
        draws=DRAWS,
        seed=SEED,
    )
    found = job.result(timeout=GENEROUS_SECONDS).checkpoint
    shown("ScoreCheckpoint", worst_of_score(found, wanted, anchors.ids, 0.1))
