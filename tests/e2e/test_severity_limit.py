"""``find_limit`` and ``acpc limit`` on a server: jobs like any other, found again."""

import asyncio
import json
import math
from pathlib import Path

import pytest
from acpc_client import AcpcClient, AsyncAcpcClient, DatasetAnchors, GaussianNoise, Thresholds
from acpc_client.errors import ArgumentError
from acpc_command import acpc_command
from public_dataset import public_columns, write_public_dataset
from served_world import ServedWorld
from server_process import ServerProcess

NAME, COUNT = "limits.h5", 48
ASKED = {"reference": "lewm-base", "thresholds": Thresholds(ir=1.0, sr=1e-9)}


@pytest.fixture(scope="module", autouse=True)
def episodes(world: ServedWorld) -> None:
    write_public_dataset(world.dataset_root / NAME, public_columns((72,) * 48, side=28))


ANCHORS = DatasetAnchors(NAME, "tworoom", count=COUNT)


def test_the_same_call_finds_its_jobs_again(client: AcpcClient, server: ServerProcess) -> None:
    seen, asked = [], ("lewm", ANCHORS, GaussianNoise(0.4))
    found = client.find_limit(*asked, steps=3, on_point=seen.append, **ASKED)
    assert tuple(seen) == found.points and len(seen) == 3
    for point in found.points:
        kept = client.operations.get(point.operation).result()
        assert kept.verdict.outcome is point.outcome
        assert math.isclose(kept.verdict.score or 0.0, point.score)

    async def again() -> object:
        async with AsyncAcpcClient(server.address) as other:
            return await other.find_limit(*asked, steps=3, **ASKED)

    assert asyncio.run(again()) == found
    anew = client.find_limit(*asked, steps=1, request_id="anew", **ASKED)
    assert anew.points[0].operation not in {p.operation for p in found.points}
    with pytest.raises(ArgumentError, match="reference: name one"):
        client.find_limit(*asked)


def test_the_command_prints_the_limit_and_its_points(server: ServerProcess, tmp_path: Path) -> None:
    acpc = acpc_command(
        "limit", "lewm", "--dataset", NAME, "--task", "tworoom", "--anchors", COUNT,
        "--protocol", "{thresholds: {ir: 1.0, sr: 1.0e-9}}", "--shift", "gaussian_noise:0.1,0.4",
        "--target", server.address, "--out", tmp_path / "limit.json",
    )  # fmt: skip
    done = acpc("--reference", "lewm-base", code=None)
    assert done.exit_code in (0, 3), done.output
    assert "lewm holds up to sigma" in done.output and "verdict" in done.output
    document = json.loads((tmp_path / "limit.json").read_text())
    assert document["kind"] == "limit" and len(document["answer"]["points"]) == 2
    assert "name one" in acpc(code=2).output
