"""Law: a clock that is set while a server runs changes no answer, no job and no health."""

import shutil
from pathlib import Path

import planning_wire
import pytest
import wire
from acpc_client import AcpcClient, DatasetAnchors, GaussianNoise, ScoreProtocol
from programs import missing
from served_world import ServedWorld

pytestmark = pytest.mark.slow
SHIFT = GaussianNoise(0.08)
ANCHORS = DatasetAnchors("tworoom.h5", "tworoom", count=12)


@pytest.fixture
def stepped() -> str:
    """The library through which a process sees the clock that a file sets."""
    program = shutil.which("faketime")
    found = sorted(Path("/usr/lib").glob("**/faketime/libfaketimeMT.so.1"))
    if program is None or not found:
        missing("faketime", "faketime")
    return str(found[0])


def test_days_forward_and_years_back(world: ServedWorld, tmp_path: Path, stepped: str) -> None:
    clock = tmp_path / "clock"
    clock.write_text("+0")
    environment = {
        "LD_PRELOAD": stepped,
        "FAKETIME_TIMESTAMP_FILE": str(clock),
        "FAKETIME_NO_CACHE": "1",
        "FAKETIME_DONT_FAKE_MONOTONIC": "1",
        "DONT_FAKE_MONOTONIC": "1",
    }
    goal, past = wire.frames(1, seed=8)[0], wire.blocks(wire.HISTORY - 1)
    history, pool = wire.frames(wire.HISTORY, seed=9), planning_wire.pool(seed=1)
    digests, certificates = set(), []
    with (
        world.server(tmp_path / "state", environment=environment, fresh=True) as server,
        AcpcClient(server.address) as client,
    ):
        given = {"past_blocks": past, "perturbations": SHIFT}
        with client.plan("lewm", history, goal, **given) as session:
            for seed, offset in enumerate(("+2d", "-10y", "+0")):
                protocol = ScoreProtocol(draws=8, horizon=wire.HORIZON, seed=seed)
                job = client.score_checkpoint("lewm", ANCHORS, SHIFT, protocol=protocol)
                clock.write_text(offset)
                certificates.append(session.certify(pool).views)
                digests.add(job.result().receipt.anchors_digest)
                shown = client.operations.get(job.name)
                assert shown.timing.compute >= 0
                assert shown.end_time.year in range(2015, 2100)
        assert server.bugs() == []
        assert server.terminate() == 0
    assert len(digests) == 1
    assert certificates[0] == certificates[1] == certificates[2]
