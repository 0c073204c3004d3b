"""A counterparty with jobs, and sweeps at it."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from acpc_client.retries import RetryPolicy
from acpc_client.sync.client import AcpcClient
from job_counterparty import JobParty, party, target
from sweep_plans import Scene


@pytest.fixture
def at(target: str, party: JobParty, tmp_path: Path) -> Iterator[Scene]:
    with AcpcClient(target, retry=RetryPolicy(attempts=1)) as client:
        yield Scene(party, client, tmp_path)
