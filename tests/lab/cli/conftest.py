"""The command, run in this process against the counterparty."""

from collections.abc import Callable
from typing import Any

import pytest
from acpc_lab.cli import app
from typer.testing import CliRunner


@pytest.fixture
def acpc(target: str) -> Callable[..., Any]:
    """Runs the command in this process, with the target from the environment."""
    return lambda *arguments: CliRunner().invoke(
        app, [str(item) for item in arguments], env={"ACPC_TARGET": target, "COLUMNS": "200"}
    )
