"""A server at which checkpoints appear, and which scores them."""

from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from acpc_client.sync.client import AcpcClient
from job_counterparty import DOCUMENT, JobParty, target


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
