"""Raw IR is as near to float64 as its floor says, on networks and data of no other test."""

from collections.abc import Iterator
from pathlib import Path

import pytest
import score_reference
from acpc.contract import DatasetAnchors, GaussianNoise, Perturbation, Resize, ScoreProtocol
from acpc_client import NumericMode
from acpc_client.sync.client import AcpcClient
from public_dataset import PublicColumns, public_columns, write_public_dataset
from rounding_world import Network, check_agreement
from served_world import served
from waiting import GENEROUS_SECONDS

# Each with its dataset.
NETWORKS = {
    "odd": (Network("lewm", 4711, odd=True), "few.h5"),
    "plain": (Network("pldm", 815), "many.h5"),
    "shrunk": (Network("lewm", 31, collapse=1e-2), "few.h5"),
    "odd-shrunk": (Network("pldm", 2718, collapse=3e-2, odd=True), "many.h5"),
    "collapsed": (Network("pldm", 1414, collapse=1e-3), "many.h5"),
}
DATASETS: dict[str, PublicColumns] = {
    "few.h5": public_columns((70, 90, 1, 64), side=40, seed=77),
    "many.h5": public_columns((58,) * 9, side=30, seed=78),
}
COUNT, HORIZON, DRAWS, SEED = 12, 4, 2, 12


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[AcpcClient]:
    root: Path = tmp_path_factory.mktemp("unseen")
    for name, (network, _) in NETWORKS.items():
        network.write(root / "checkpoints" / name)
    (root / "datasets").mkdir()
    for name, columns in DATASETS.items():
        write_public_dataset(root / "datasets" / name, columns)
    with served(root / "checkpoints", root / "datasets", root / "state") as client:
        yield client


@pytest.mark.parametrize("shift", [GaussianNoise(0.005), GaussianNoise(0.06), Resize(0.5)], ids=str)
@pytest.mark.parametrize("name", NETWORKS)
def test_raw_ir_is_as_near_as_it_says(client: AcpcClient, name: str, shift: Perturbation) -> None:
    """1e-4 above a hundred floors, a hundredth of the floor anywhere; fp64 to its last digits."""
    network, dataset = NETWORKS[name]
    anchors = score_reference.draw_anchors(
        DATASETS[dataset], history=3, horizon=HORIZON, count=COUNT, seed=55, frameskip=5
    )
    wanted = score_reference.score(
        network.reference, anchors, shift.to_spec(), history=3, draws=DRAWS, seed=SEED
    )
    source = DatasetAnchors(dataset, "tworoom", count=COUNT, seed=55)
    protocol = ScoreProtocol(draws=DRAWS, seed=SEED, horizon=HORIZON)
    for mode in (NumericMode.FP32, NumericMode.FP64):
        asked = {"protocol": protocol, "numeric_mode": mode}
        exact = client.score_checkpoint(name, source, shift, **asked).result(GENEROUS_SECONDS)
        said = check_agreement(exact.checkpoint, wanted.ir_raw)
        print(f"{name} {shift} {mode!s}: {said}")
    assert exact.receipt.numeric_mode is NumericMode.FP64
    assert exact.checkpoint.ir_raw == pytest.approx(wanted.ir_raw, rel=1e-9)
    assert exact.checkpoint.sr == wanted.sr
    assert exact.checkpoint.rounding_note == ""
