"""Law: what the loader refuses, LoadCheckpoint refuses with the same status, and runs nothing."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import grpc
import pytest
import wire
from acpc.v1 import checkpoint_service_pb2 as pb
from acpc.v1.checkpoint_service_pb2_grpc import CheckpointServiceStub
from hostile_folders import HOSTILE_FOLDERS, WITNESS, HostileFolder
from public_checkpoint import write_checkpoint
from server_process import ServerProcess
from waiting import GENEROUS_SECONDS


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("hostile") / "root"
    root.mkdir()
    return root


@pytest.fixture(scope="module")
def stub(root: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[CheckpointServiceStub]:
    """A server whose root is filled anew for each case, and which works in it."""
    other = tmp_path_factory.mktemp("other")
    with ServerProcess(root, other, other / "state", cwd=root) as server:
        with grpc.insecure_channel(server.address) as channel:
            yield CheckpointServiceStub(channel)
        assert server.bugs() == []


def empty(root: Path) -> None:
    """Forget the case before: its folder, and what its links led to."""
    for entry in (*root.iterdir(), *root.parent.glob("outside*")):
        if entry.is_dir() and not entry.is_symlink():
            shutil.rmtree(entry)
        else:
            entry.unlink()


@pytest.mark.parametrize("case", HOSTILE_FOLDERS, ids=lambda case: case.id)
def test_refused_over_the_wire(
    stub: CheckpointServiceStub, root: Path, case: HostileFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Loading, and a whole question to the checkpoint, get the status that the table names."""
    monkeypatch.chdir(root)
    empty(root)
    name, weights = case.build(root)
    request = pb.LoadCheckpointRequest(checkpoint={"name": name, "weights": weights})
    refused = wire.refusal(lambda: stub.LoadCheckpoint(request, timeout=GENEROUS_SECONDS))
    assert refused.code == case.code
    assert case.fragment in refused.message
    assert not (root / WITNESS).exists()


def test_a_listing_survives_them(stub: CheckpointServiceStub, root: Path) -> None:
    """A hostile neighbour hides no good checkpoint, and the good one loads."""
    empty(root)
    case = next(case for case in HOSTILE_FOLDERS if case.id == "pickle-in-archive")
    case.build(root)
    (root / "dangling").symlink_to(root / "nowhere")
    (root / "loop").symlink_to(root)
    write_checkpoint(root / "zgood")
    listed = stub.ListCheckpoints(pb.ListCheckpointsRequest(), timeout=GENEROUS_SECONDS).checkpoints
    assert "zgood" in [entry.name for entry in listed]
    request = pb.LoadCheckpointRequest(checkpoint={"name": "zgood"})
    answer = stub.LoadCheckpoint(request, timeout=GENEROUS_SECONDS)
    assert answer.checkpoint.state == pb.CHECKPOINT_STATE_LOADED
    assert not (root / WITNESS).exists()
