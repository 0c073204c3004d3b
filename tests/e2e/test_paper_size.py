"""Networks of the published size (18 million parameters, 224 pixels) over the wire, float64 beside.

The weights are random; what is tested is that 12 encoder and 6 predictor layers of float32 do not
eat the digits that a verdict stands on.
"""

from collections.abc import Iterator
from pathlib import Path

import pair_reference
import pixel_reference as pixels
import pytest
import score_reference
import wire
from acpc.contract import DatasetAnchors, GaussianBlur, GaussianNoise, ScoreProtocol
from acpc_client.sync.client import AcpcClient
from public_checkpoint import public_config, write_checkpoint
from public_dataset import PublicColumns, public_columns, write_public_dataset
from reference_model import ReferenceModel
from served_world import served
from test_pair_agreement import worst as worst_of_pair
from test_score_agreement import worst as worst_of_score
from waiting import GENEROUS_SECONDS

# One frame of this size is in tests/server/models/test_jepa_agreement.py.
pytestmark = pytest.mark.nightly

TOLERANCE = 1e-4
SEEDS = {"lewm": 11, "pldm": 12}
COLUMNS: PublicColumns = public_columns((60, 70), side=64)


def reference(family: str) -> ReferenceModel:
    return ReferenceModel.of(public_config("paper", family=family), SEEDS[family], loops=False)


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[AcpcClient]:
    root: Path = tmp_path_factory.mktemp("paper")
    for family, seed in SEEDS.items():
        config = public_config("paper", family=family)
        write_checkpoint(root / "checkpoints" / family, config, seed=seed)
    datasets = root / "datasets"
    datasets.mkdir()
    write_public_dataset(datasets / "tworoom.h5", COLUMNS)
    with served(root / "checkpoints", datasets, root / "state", torch_threads=2) as client:
        yield client


@pytest.mark.parametrize("family", SEEDS)
def test_one_pair(client: AcpcClient, family: str) -> None:
    """Noise and blur as the paper has them, H = 8, with the observed future."""
    horizon, anchor = 8, 3
    shifts = (GaussianNoise(0.08), GaussianBlur(15))
    history = wire.frames(3, height=224, width=224)
    future = wire.frames(horizon, height=224, width=224, seed=2)
    blocks = wire.blocks(3 + horizon - 1)
    asked = {"draws": 1, "anchor": anchor, "observed_future": future}
    answer = client.compare_pair(family, history, blocks, perturbations=shifts, **asked)
    model = reference(family)
    images = pixels.model_input(history, model.image_size)
    views = [
        pair_reference.perturbed(images, shift.to_spec(), seed=0, anchor=anchor, draw=0)
        for shift in shifts
    ]
    wanted = pair_reference.compare(model, history, blocks, views, future=future)
    error = worst_of_pair(answer, wanted)
    print(f"{family} at the published size: largest relative error {error:.2e}")
    assert error <= TOLERANCE


def test_a_small_score(client: AcpcClient) -> None:
    """Four anchors, two draws of the paper's noise; frames of 64 pixels scaled up to 224."""
    count, horizon, draws = 4, 3, 2
    shift = GaussianNoise(0.08)
    source = DatasetAnchors("tworoom.h5", "tworoom", count=count)
    protocol = ScoreProtocol(draws=draws, horizon=horizon)
    job = client.score_checkpoint("lewm", source, shift, protocol=protocol)
    score = job.result(timeout=GENEROUS_SECONDS)
    anchors = score_reference.draw_anchors(
        COLUMNS, history=3, horizon=horizon, count=count, seed=9101, frameskip=5
    )
    wanted = score_reference.score(
        reference("lewm"), anchors, shift.to_spec(), history=3, draws=draws, seed=0
    )
    error = worst_of_score(score.checkpoint, wanted, anchors.ids, 0.10)
    print(
        f"LeWM at the published size: IR {wanted.ir_raw:.4f}, SR {wanted.sr:.3f}, "
        f"largest relative error {error:.2e}"
    )
    assert error <= TOLERANCE
