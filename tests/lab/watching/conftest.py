"""A folder in which checkpoints appear, and a counterparty that scores them."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import yaml
from acpc_client.sync.client import AcpcClient
from job_counterparty import DOCUMENT, JobParty, target
from written_weights import saved


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """The watched folder."""
    folder = tmp_path / "checkpoints"
    folder.mkdir()
    return folder


@pytest.fixture
def write(root: Path) -> Callable[..., Path]:
    """Writes a checkpoint, whole at once."""

    def write(name: str, weights: str = "weights.pt", content: str = "a") -> Path:
        folder = root / name
        folder.mkdir(parents=True, exist_ok=True)
        if not (folder / "config.json").exists():
            (folder / "config.json").write_text(json.dumps({"family": "lewm"}))
        (folder / ".part").write_bytes(saved(content))
        return (folder / ".part").rename(folder / weights)

    return write


@pytest.fixture
def client(target: str) -> Iterator[AcpcClient]:
    with AcpcClient(target) as opened:
        yield opened


@pytest.fixture
def party() -> JobParty:
    return JobParty(listing={})


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """A sweep file that means every checkpoint, under one shift."""
    path = tmp_path / "gate.yaml"
    shifts = [{"gaussian_noise": [0.08]}]
    document = {**DOCUMENT, "name": "gate", "checkpoints": ["**"], "shifts": shifts}
    path.write_text(yaml.safe_dump(document))
    return path
