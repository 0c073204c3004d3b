"""The anchors of a sweep are stored once, at a real server."""

import json
from pathlib import Path

import numpy as np
import pytest
from acpc_client.sync.client import AcpcClient
from acpc_lab.sweeps import Sweep, SweepFileError
from anchor_wire import anchor_arrays
from job_world import JobWorld
from server_process import ServerProcess

# Of anchors of one's own.
FORM = {"steps": 11, "size": (28, 28), "block": 10}


def write_sweep(folder: Path, name: str, **more: object) -> Path:
    """Three checkpoints under two severities with two seeds each: twelve jobs."""
    document = {
        "name": name,
        "checkpoints": [{"name": "*", "reference": "base"}],
        "anchors": {"dataset": "rooms.h5", "task": "tworoom", "count": 20},
        "protocol": {"draws": 2},
        "shifts": [{"gaussian_noise": [0.02, 0.08]}],
        "seeds": [0, 1],
        **more,
    }
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / "sweep.yaml"
    file.write_text(json.dumps(document))  # JSON is YAML
    return file


def test_frozen_anchors_are_stored_once_and_scored(
    job_world: JobWorld, job_server: ServerProcess
) -> None:
    anchors = {"dataset": "rooms.h5", "task": "tworoom", "count": 20, "freeze": True}
    file = write_sweep(job_world.root / "frozen", "frozen", anchors=anchors)
    with AcpcClient(job_server.address) as client:
        before = {stored.digest for stored in client.anchors.list()}
        results = Sweep.load(file).run(client, poll=0.05)
        (digest,) = {stored.digest for stored in client.anchors.list()} - before
    assert {item.cell.anchors for item in results} == {digest}
    assert {item.score.receipt.anchors_digest for item in results} == {digest}


def test_anchors_of_ones_own_are_uploaded_once(
    job_world: JobWorld, job_server: ServerProcess
) -> None:
    folder = job_world.root / "own"
    file = write_sweep(folder, "own", anchors={"upload": "windows.npz"}, seeds=[0])
    with (
        AcpcClient(job_server.address) as client,
        pytest.raises(SweepFileError, match=r"anchors: .*\.npz"),
    ):
        Sweep.load(file).run(client)
    np.savez(folder / "windows.npz", **anchor_arrays(6, **FORM))
    with AcpcClient(job_server.address) as client:
        results = Sweep.load(file).run(client, poll=0.05)
        digests = [item.digest for item in client.anchors.list() if item.description == "sweep own"]
        preview = Sweep.load(file).preview(client)
    assert len(results) == 6
    assert {item.cell.anchors for item in results} == set(digests)
    assert len(digests) == 1
    assert [cell.id for cell in preview.cells] == [item.cell.id for item in results]
    for item in results:
        assert item.score.receipt.anchors_digest == digests[0]
        assert item.score.checkpoint.anchors == 6
