"""The collapsed checkpoint lives near its rounding floor, says so, and float64 gives its digits."""

import json
from collections.abc import Iterator

import pytest
import score_reference
import torch
from acpc.contract import DatasetAnchors, GaussianNoise, ScoreProtocol
from acpc_client import CheckpointScore, NumericMode
from acpc_client.sync.client import AcpcClient
from dataset import SEED, columns
from example_scripts import EXAMPLES
from golden import EPISODES
from public_dataset import PublicColumns
from reference_model import ReferenceModel
from served_fixtures import Demo
from waiting import GENEROUS_SECONDS

SHIPPED = EXAMPLES / "two_room" / "checkpoints"
COUNT, DRAWS = 20, 2
AGREEMENT = 1e-4


@pytest.fixture(scope="module")
def content() -> PublicColumns:
    """Of the demo's dataset."""
    arrays = columns(episodes=EPISODES, blocks=24, seed=SEED)
    lengths, offsets = arrays.pop("ep_len"), arrays.pop("ep_offset")
    return PublicColumns(arrays, lengths, offsets)


@pytest.fixture(scope="module")
def client(demo: Demo) -> Iterator[AcpcClient]:
    with AcpcClient(demo.server.address) as opened:
        yield opened


def reference(name: str) -> ReferenceModel:
    state = torch.load(SHIPPED / name / "weights.pt", weights_only=True)
    config = json.loads((SHIPPED / name / "config.json").read_text())
    return ReferenceModel(config, {key: value.double() for key, value in state.items()})


def check_agreement(found: CheckpointScore, ir_raw: float) -> None:
    """Raw IR against float64, as the README states it."""
    floor = found.rounding_floor
    assert floor is not None
    error = abs(found.ir_raw - ir_raw)
    floors = found.ir_raw / floor
    said = f"IR {ir_raw:.4g}, {floors:.3g} floors, error {error / ir_raw:.1e} of it"
    if floors > 100:
        assert error <= AGREEMENT * ir_raw, said
    # The two float64 computations differ by rounding too.
    assert error <= floor / 100 + 1e-9 * ir_raw, said
    assert bool(found.rounding_note) == (floors <= 10), said


@pytest.mark.parametrize(
    ("name", "sigma"),
    [
        ("two-room-base", 0.08),
        ("two-room-augmented", 0.005),
        ("two-room-collapsed", 0.005),
        ("two-room-collapsed", 0.08),
    ],
)
def test_only_the_collapsed_checkpoint_is_near_its_floor(
    client: AcpcClient, content: PublicColumns, name: str, sigma: float
) -> None:
    anchors = score_reference.draw_anchors(
        content, history=3, horizon=8, count=COUNT, seed=9101, frameskip=5
    )
    shift = GaussianNoise(sigma)
    wanted = score_reference.score(
        reference(name), anchors, shift.to_spec(), history=3, draws=DRAWS, seed=0
    )
    found = {
        mode: client.score_checkpoint(
            name,
            DatasetAnchors("two-room.h5", "tworoom", count=COUNT),
            shift,
            protocol=ScoreProtocol(draws=DRAWS),
            numeric_mode=mode,
        )
        .result(timeout=GENEROUS_SECONDS)
        .checkpoint
        for mode in (NumericMode.FP32, NumericMode.FP64)
    }
    for side in found.values():
        check_agreement(side, wanted.ir_raw)
    assert bool(found[NumericMode.FP32].rounding_note) == (name == "two-room-collapsed")
    assert found[NumericMode.FP64].ir_raw == pytest.approx(wanted.ir_raw, rel=1e-9)
