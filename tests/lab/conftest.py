"""The scripted server that the workbench is asked to work with, and waits that are short."""

import pytest
from acpc_lab.campaigns import Link
from client_fixtures import blocks, counterparty, history, target, unused_target
from typer import rich_utils  # before a test sets what it reads when imported


@pytest.fixture(autouse=True)
def waits(monkeypatch: pytest.MonkeyPatch) -> None:
    """A campaign waits a tenth as long between its looks."""
    sleep = Link.sleep
    monkeypatch.setattr(Link, "sleep", lambda link, seconds: sleep(link, seconds / 10))
    monkeypatch.setattr("acpc_lab.campaigns.campaign._MIN_BACKOFF_S", 0.05)
