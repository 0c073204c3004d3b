"""``acpc limit`` on a server: jobs like any other, found again."""

import json
import math
from pathlib import Path

import pytest
from acpc_client import AcpcClient, load_result
from acpc_command import acpc_command
from public_dataset import public_columns, write_public_dataset
from served_world import ServedWorld
from server_process import ServerProcess

NAME, COUNT = "limits.h5", 48


@pytest.fixture(scope="module", autouse=True)
def episodes(world: ServedWorld) -> None:
    write_public_dataset(world.dataset_root / NAME, public_columns((72,) * 48, side=28))


def test_the_command_prints_the_limit_and_finds_its_jobs_again(
    client: AcpcClient, server: ServerProcess, tmp_path: Path
) -> None:
    acpc = acpc_command(
        "limit", "lewm", "--dataset", NAME, "--task", "tworoom", "--anchors", COUNT,
        "--protocol", "{thresholds: {ir: 1.0, sr: 1.0e-9}}", "--target", server.address,
    )  # fmt: skip
    grid = acpc("--reference", "lewm-base", "--shift", "gaussian_noise:0.2,0.4",
                "--out", tmp_path / "limit.json", code=None)  # fmt: skip
    assert grid.exit_code in (0, 3), grid.output
    assert "lewm holds up to sigma" in grid.output and "verdict" in grid.output
    found = load_result(tmp_path / "limit.json")
    assert found.kind == "limit" and len(found.answer["points"]) == 2
    for point in found.answer["points"]:
        kept = client.operations.get(point["operation"]).result()
        assert kept.verdict.outcome.name.lower() == point["outcome"]
        assert math.isclose(kept.verdict.score or 0.0, point["score"])
    asked = ("--reference", "lewm-base", "--shift", "gaussian_noise:0.4", "--steps", "2")
    names = [
        [point["operation"] for point in json.loads(done.stdout)["answer"]["points"]]
        for more in ((), (), ("--request-id", "anew"))
        for done in [acpc(*asked, "-o", "json", *more, code=None)]
    ]
    assert names[0] == names[1] and not {*names[0]} & {*names[2]}
    assert {point["operation"] for point in found.answer["points"]} <= {*names[0]}
    assert "name one" in acpc("--shift", "blur", code=2).output
    apart = acpc("--reference", "lewm-base", "--shift", "gaussian_noise:0,0.4", code=2)
    assert "differ by their severity alone" in apart.output
