"""The name of a host: of its state folder, and among the hosts of a record."""

from pathlib import Path

import pytest
from acpc_server.errors import FailedPrecondition
from acpc_server.jobs.lease import StateFolder
from job_desk import Desk


def test_a_state_folder_whose_name_was_lost_gets_another(tmp_path: Path) -> None:
    (tmp_path / "name").touch()
    folder = StateFolder(tmp_path)
    name = folder.claim()
    folder.release()
    assert name
    assert StateFolder(tmp_path).claim() == name


def test_a_folder_that_cannot_be_written_is_a_refusal(tmp_path: Path) -> None:
    with pytest.raises(FailedPrecondition, match="cannot use the state folder"):
        StateFolder(tmp_path / "none").claim()


@pytest.mark.process
def test_a_name_whose_holder_beats_is_refused_and_free_once_it_has_left(either: Desk) -> None:
    first = either.started(executor_id="here")
    (other := either.folder / "other").mkdir()
    with pytest.raises(FailedPrecondition, match="--executor-id") as refused:
        either.service(executor_id="here", state_dir=other).start()
    assert refused.value.reason == "EXECUTOR_ID_TAKEN"
    first.stop()
    assert either.started(executor_id="here", state_dir=other).list(0, 1) == []
