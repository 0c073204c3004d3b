"""A counterparty with jobs, and sweeps at it."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from acpc_client.retries import RetryPolicy
from acpc_client.sync.client import AcpcClient
from acpc_lab.sweeps import Sweep
from job_counterparty import DOCUMENT, party, target


@pytest.fixture
def client(target: str) -> Iterator[AcpcClient]:
    with AcpcClient(target, retry=RetryPolicy(attempts=1)) as opened:
        yield opened


@pytest.fixture
def sweep_of(tmp_path: Path) -> Callable[..., Sweep]:
    """Makes a sweep of the example document with other values; None leaves a key out."""

    def make(**changes: Any) -> Sweep:
        document = {k: v for k, v in {**DOCUMENT, **changes}.items() if v is not None}
        return Sweep.of(document, tmp_path / f"{document['name']}.sweep")

    return make
