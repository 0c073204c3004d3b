"""The collapsed checkpoint lives near its rounding floor, says so, and float64 gives its digits."""

from collections.abc import Iterator

import pytest
from acpc.contract import DatasetAnchors, GaussianNoise, ScoreProtocol
from acpc_client import NumericMode
from acpc_client.sync.client import AcpcClient
from served_fixtures import Demo
from waiting import GENEROUS_SECONDS


@pytest.fixture(scope="module")
def client(demo: Demo) -> Iterator[AcpcClient]:
    with AcpcClient(demo.server.address) as opened:
        yield opened


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
    client: AcpcClient, name: str, sigma: float
) -> None:
    source, shift = DatasetAnchors("two-room.h5", "tworoom", count=20), GaussianNoise(sigma)
    found, exact = (
        client.score_checkpoint(
            name, source, shift, protocol=ScoreProtocol(draws=2), numeric_mode=mode
        )
        .result(timeout=GENEROUS_SECONDS)
        .checkpoint
        for mode in (NumericMode.FP32, NumericMode.FP64)
    )
    near = name == "two-room-collapsed"
    assert (found.ir_raw / found.rounding_floor <= 10) == bool(found.rounding_note) == near
    error = abs(found.ir_raw - exact.ir_raw)
    assert error <= found.rounding_floor / 100
    assert near or error <= 1e-4 * exact.ir_raw
    assert exact.ir_raw / exact.rounding_floor > 10 and not exact.rounding_note
