"""The examples in other languages, and tools that know no generated code, against a real server."""

import json
import os
import shutil
import subprocess
from pathlib import Path

import acpc
import processes
import pytest
from acpc_client import AcpcClient, DatasetAnchors, GaussianBlur
from lint import find_buf
from programs import missing
from server_process import ServerProcess
from waiting import GENEROUS_SECONDS

pytestmark = pytest.mark.nightly  # test_client_examples.py is its short twin
ROOT = Path(acpc.__file__).parents[2]
NODE = ROOT / "examples/clients/node"


@pytest.fixture(scope="module")
def npm() -> str:
    return shutil.which("npm") or missing("npm", "npm")


@pytest.fixture(scope="module")
def buf() -> list[str]:
    return find_buf() or missing("npm", "npm")


@pytest.fixture(scope="module")
def scripts(npm: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The example with its packages, in a tree of its own."""
    root = tmp_path_factory.mktemp("node")
    folder = root / "examples/clients/node"
    shutil.copytree(NODE, folder, ignore=shutil.ignore_patterns("node_modules"))
    contract = root / "proto/acpc/v1"
    contract.mkdir(parents=True)
    shutil.copy(ROOT / "proto/acpc/v1/acpc.binpb", contract)
    ran(npm, "install", "--no-audit", "--no-fund", "--ignore-scripts", cwd=folder)
    return folder


def ran(
    *command: str,
    cwd: Path,
    code: int = 0,
    environment: dict[str, str] | None = None,
    seconds: float = GENEROUS_SECONDS,
) -> subprocess.CompletedProcess[str]:
    """A command that ended, with this exit code."""
    given = {**os.environ, **(environment or {})}
    ended = processes.run(command, cwd=cwd, env=given, seconds=seconds, check=False)
    assert ended.returncode == code, ended.stdout + ended.stderr
    return ended


def node(
    scripts: Path, server: ServerProcess, *arguments: str, code: int = 0, **environment: str
) -> subprocess.CompletedProcess[str]:
    found = {"ACPC_TARGET": server.address, **environment}
    return ran("node", *arguments, cwd=scripts, code=code, environment=found)


def test_node_compares_a_pair(scripts: Path, server: ServerProcess) -> None:
    lines = node(scripts, server, "compare.mjs", "lewm", "3", "28", "10").stdout.splitlines()
    assert [line.split(":")[0] for line in lines[:3]] == ["draw 0", "draw 1", "draw 2"]
    with AcpcClient(server.address) as client:
        assert lines[3].endswith(client.checkpoints.load("lewm").checkpoint.model.digest)


def test_node_scores_a_checkpoint_as_python_does(scripts: Path, server: ServerProcess) -> None:
    with AcpcClient(server.address) as client:
        anchors = DatasetAnchors("tworoom.h5", "tworoom", count=10)
        shift = GaussianBlur(15)
        score = client.score_checkpoint("lewm", anchors, shift, reference="lewm-base").result()
    code = 0 if score.verdict.outcome.name == "PASSED" else 3
    arguments = "score.mjs", "lewm", "lewm-base", "tworoom.h5", "tworoom"
    told = node(scripts, server, *arguments, code=code, ACPC_ANCHORS="10").stdout
    assert f"raw IR {score.checkpoint.ir_raw}, SR {score.checkpoint.sr}, of 10 anchors" in told
    assert "JOB_STATE_SUCCEEDED" in told


def test_node_tells_what_is_wrong_in_a_line(scripts: Path, server: ServerProcess) -> None:
    told = node(scripts, server, "compare.mjs", "lwem", code=1)
    assert told.stderr.startswith("NOT_FOUND: checkpoint 'lwem'")
    assert len(told.stderr.splitlines()) == 1


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The C++ example, built from the contract alone."""
    if not (shutil.which("grpc_cpp_plugin") and shutil.which("g++")):
        missing(
            "grpc++", "g++ make pkg-config libgrpc++-dev libprotobuf-dev protobuf-compiler-grpc"
        )
    root = tmp_path_factory.mktemp("cpp")
    folder = root / "examples/clients/cpp"
    shutil.copytree(ROOT / "examples/clients/cpp", folder)
    shutil.copytree(ROOT / "proto", root / "proto")
    ran("make", "clean", "build/plan", cwd=folder, seconds=600.0)
    return folder / "build/plan"


def test_a_control_loop_in_cpp_keeps_one_stream(program: Path, server: ServerProcess) -> None:
    target = {"ACPC_TARGET": server.address}
    told = ran(str(program), "lewm", cwd=program.parent, environment=target).stdout.splitlines()
    assert [line.split(":")[0] for line in told] == [f"step {step}" for step in range(5)]
    server.wait_for_log(lambda line: line.get("method") == "Plan" and line["code"] == "OK")
    wrong = ran(str(program), "lwem", cwd=program.parent, environment=target, code=1)
    assert wrong.stderr.startswith("5: checkpoint 'lwem'")


def test_buf_curl_asks_by_reflection(buf: list[str], server: ServerProcess, tmp_path: Path) -> None:
    """No schema at hand: reflection v1 tells it."""
    url = f"http://{server.address}/acpc.v1.CheckpointService/ListCheckpoints"
    told = ran(*buf, "curl", "--protocol", "grpc", "--http2-prior-knowledge", url, cwd=tmp_path)
    listed = json.loads(told.stdout)["checkpoints"]
    assert "lewm" in {entry["name"] for entry in listed}


def test_buf_curl_asks_by_the_descriptor_set(
    buf: list[str], server: ServerProcess, tmp_path: Path
) -> None:
    """Where reflection is off, or needs a role."""
    url = f"http://{server.address}/acpc.v1.DiagnosticService/ComparePair"
    schema = ROOT / "proto/acpc/v1/acpc.binpb"
    asked = ("--schema", str(schema), "--protocol", "grpc", "--http2-prior-knowledge")
    told = ran(*buf, "curl", *asked, "--data", "{}", url, cwd=tmp_path, code=24)
    assert "invalid_argument" in told.stderr


def test_the_contract_builds_alone(buf: list[str], tmp_path: Path) -> None:
    """In a folder without Python, and without a network for its imports."""
    shutil.copytree(ROOT / "proto", tmp_path / "proto")
    ran(*buf, "build", "--output", "all.binpb", cwd=tmp_path / "proto")
    assert (tmp_path / "proto/all.binpb").stat().st_size
