"""``acpc study`` against a server: from checkpoints to a bundle that verifies without it."""

import json
import socket
from pathlib import Path

import pytest
from acpc_command import Acpc, acpc_command
from acpc_lab.studies import bundle
from acpc_lab.studies.bundle import verify
from public_dataset import public_columns, write_public_dataset
from served_world import ServedWorld
from server_process import ServerProcess

ONE = "task,run,checkpoint,dataset,preset\nroom,3072,lewm,measured.h5,tworoom\n"
TWO = """task,run,level,checkpoint,dataset,preset
room,3072,0,lewm-base,measured.h5,tworoom
room,3072,0.08,lewm,measured.h5,tworoom
"""
TASKS = """task,run,level,checkpoint,dataset,preset
room,3072,0,lewm,measured.h5,tworoom
maze,3072,0,pldm,measured.h5,tworoom
"""
STUDIES = {
    "planner": (
        TASKS,
        "{budget: {candidates: 8, elites: 2, iterations: 2, horizon: 3}}",
        "--shift",
        "gaussian_noise:0.02,0.08",
    ),
    "geometry": (TWO, "{draws: 2, horizon: 2, perplexity: 5.0}"),
    "horizons": (TWO, "{draws: 2, horizon: 4, extra_horizons: [1, 2]}"),
}  # fmt: skip


@pytest.fixture(scope="module")
def acpc(world: ServedWorld, server: ServerProcess) -> Acpc:
    write_public_dataset(world.dataset_root / "measured.h5", public_columns((60,) * 8, side=28))
    return acpc_command("study", ACPC_TARGET=server.address)


@pytest.mark.parametrize("name", STUDIES)
def test_a_study_of_checkpoints_verifies_and_is_drawn_without_the_server(
    acpc: Acpc, tmp_path: Path, name: str
) -> None:
    content, protocol, *options = STUDIES[name]
    checkpoints, out = tmp_path / "checkpoints.csv", tmp_path / "study"
    checkpoints.write_text(content)
    answer = acpc(
        "run", name, "--checkpoints", checkpoints, "--anchors", 8, "--out", out,
        "--protocol", protocol, *options,
    )  # fmt: skip
    assert "done" in answer.stderr
    assert verify(out).difference is None
    held = bundle.read(out)
    drawn = {path.name: path.read_bytes() for path in out.glob("figures/*")}
    assert drawn
    jobs = [source for source in held.sources if source["kind"] == "job"]
    assert [job["checkpoint"] for job in jobs] == [
        line.split(",")[-3] for line in content.splitlines()[1:]
    ]
    for job in jobs:
        assert len(job["receipt"]["checkpoint_digest"]) == 64
        assert job["operation"].startswith("operations/")
        assert job["request"]["checkpoint"]["name"] == job["checkpoint"]
    again = acpc(
        "run", name, "--rows", next(out.glob("rows.csv")), "-o", "json", ACPC_TARGET="nowhere:1"
    )
    assert json.loads(again.stdout)["answer"].keys() == held.evidence().summary.to_dict().keys()
    for figure in out.glob("figures/*"):
        figure.unlink()
    acpc("plot", out, ACPC_TARGET="nowhere:1")
    assert {path.name: path.read_bytes() for path in out.glob("figures/*")} == drawn


def test_failures_have_exit_codes_and_leave_no_study(acpc: Acpc, tmp_path: Path) -> None:
    checkpoints, out = tmp_path / "checkpoints.csv", tmp_path / "study"
    checkpoints.write_text(ONE.replace("lewm", "nowhere"))
    arguments = ["run", "drift", "--checkpoints", checkpoints, "--anchors", 8, "--out", out]
    assert "NOT_FOUND" in acpc(*arguments, code=1).stderr
    assert not out.exists(), "there is no job to go on with"
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        nobody = f"127.0.0.1:{taken.getsockname()[1]}"
        acpc(*arguments, ACPC_TIMEOUT="1", ACPC_TARGET=nobody, code=1)
    checkpoints.write_text(ONE + "room,3072,pldm,measured.h5,tworoom\n")
    assert "takes one checkpoint of each" in acpc(*arguments, code=2).stderr
    assert not (out / "study.json").exists()
