"""The command, run in this process against the counterparty."""

from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from acpc_command import Acpc, acpc_command
from client_counterparty import Counterparty, served
from job_counterparty import DOCUMENT, JobParty


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Files and configuration are in a folder of the test's own."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))


@pytest.fixture
def acpc(target: str, counterparty: Counterparty) -> Acpc:
    """Runs the command with the target from the environment."""
    return acpc_command(ACPC_TARGET=target, server=counterparty)


@pytest.fixture
def many(monkeypatch: pytest.MonkeyPatch) -> Iterator[JobParty]:
    """A server, and a folder with a sweep of two cells, and with a watch of two checkpoints."""
    gate = {"name": "gate", "checkpoints": ["**"], "shifts": ["gaussian_noise:0.08"]}
    for name, document in (("mine", DOCUMENT), ("gate", {**DOCUMENT, **gate})):
        Path(f"{name}.yaml").write_text(yaml.safe_dump(document))
    party = JobParty()
    for epoch in (1, 2):
        party.write("run", f"weights_epoch_{epoch}.pt")
    with served(party) as target:
        monkeypatch.setenv("ACPC_TARGET", target)
        yield party
