"""Laws of a release: it answers as the one before, whose job records it reads and resumes."""

import gzip
import json
from pathlib import Path

import golden
import pytest
from acpc_client.sync.client import AcpcClient
from served_fixtures import Demo
from server_process import ServerProcess


@pytest.fixture(scope="module")
def found(demo: Demo) -> dict[str, golden.Values]:
    return golden.answers(demo.server.address)


KEPT = json.loads(golden.KEPT.read_text())


@pytest.mark.parametrize("name", KEPT)
def test_an_answer_is_as_it_was(name: str, found: dict[str, golden.Values]) -> None:
    """What a later release adds to an answer is not looked at; ``golden.py --keep`` takes it in."""
    answer = golden.summary(found[name])
    changed = {
        path: (value, answer.get(path))
        for path, value in KEPT[name].items()
        if golden.apart(value, answer.get(path))
    }
    assert not changed


RECORDS = sorted((Path(__file__).parent / "records").glob("*.sqlite.gz"))
# What each record holds, by request id: a score and a study that ended, a score killed after four
# of its 43 steps, and one that was still in the queue.
ENDED, HALFWAY, QUEUED = ("7f9987c8", "24b67540"), "b0c171d6", "9dc2412e"


@pytest.mark.parametrize("record", RECORDS, ids=lambda path: path.name)
def test_an_earlier_release_s_jobs_are_listed_read_and_resumed(
    record: Path, demo: Demo, tmp_path: Path
) -> None:
    (state := tmp_path / "state").mkdir()
    (state / "name").write_text("kept-host\n")  # of the server that was killed
    (state / "jobs.sqlite").write_bytes(gzip.decompress(record.read_bytes()))
    checkpoints = golden.WORLD / "checkpoints"
    with (
        ServerProcess(checkpoints, demo.datasets, state, job_retention_days=0) as server,
        AcpcClient(server.address) as client,
    ):
        listed = [job.name for job in client.operations.list()]
        names = {name.removeprefix("operations/")[:8]: name for name in listed}
        assert names.keys() == {*ENDED, HALFWAY, QUEUED}
        score, study = (client.operations.get(names[key]) for key in ENDED)
        assert score.state.name == study.state.name == "SUCCEEDED"
        *_, resumed = client.operations.watch(names[HALFWAY])
        assert resumed.state.name == "SUCCEEDED", resumed.error
        # Its anchors were not pinned down yet, and the dataset's file is another one here.
        *_, refused = client.operations.watch(names[QUEUED])
        assert "has changed since the job was submitted" in str(refused.error)
