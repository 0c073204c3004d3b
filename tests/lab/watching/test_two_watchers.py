"""Two watchers of one folder, in two processes."""

import sys
from collections.abc import Callable
from pathlib import Path

import processes
import pytest
from acpc_client.errors import FailedPrecondition
from acpc_client.sync.client import AcpcClient
from acpc_lab.watching import Watch
from job_counterparty import JobParty
from waiting import wait_until

pytestmark = pytest.mark.process


def test_the_second_process_waits_for_the_death_of_the_first(
    watch: Watch, file: Path, root: Path, write: Callable[..., Path], target: str, party: JobParty,
    client: AcpcClient,
) -> None:  # fmt: skip
    write("first")
    command = ["watch", root, "--sweep", file, "--target", target, "--interval", "0.1"]
    with processes.running([sys.executable, "-m", "acpc_lab", *command]) as first:
        wait_until(lambda: len(party.jobs) == 1)
        with pytest.raises(FailedPrecondition, match="another process"):
            watch.run(client, once=True)
        first.kill()
        first.wait()
        write("second")
        watch.run(client, once=True)
    assert len(party.jobs) == 2
