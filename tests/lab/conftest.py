"""The scripted server that the workbench is asked to work with, and waits that are short."""

from collections.abc import Iterator

import pytest
from acpc_client.sync.client import AcpcClient
from client_fixtures import counterparty, target, unused_target
from typer import rich_utils  # before a test sets what it reads when imported


@pytest.fixture
def client(target: str) -> Iterator[AcpcClient]:
    with AcpcClient(target) as opened:
        yield opened


@pytest.fixture(autouse=True)
def waits(monkeypatch: pytest.MonkeyPatch) -> None:
    """A campaign waits a tenth as long between its looks."""
    monkeypatch.setattr("acpc_lab.campaigns.campaign.POLL_S", 0.05)
