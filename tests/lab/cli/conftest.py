"""The command, run in this process against the counterparty."""

import pytest
from acpc_command import Acpc, acpc_command


@pytest.fixture
def acpc(target: str) -> Acpc:
    """Runs the command with the target from the environment."""
    return acpc_command(ACPC_TARGET=target)
