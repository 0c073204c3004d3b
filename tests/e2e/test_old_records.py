"""Law: the job record of an earlier release stays readable, and its jobs go on from their steps."""

import gzip
from pathlib import Path

import golden
import pytest
from acpc_client.sync.client import AcpcClient
from server_process import ServerProcess
from waiting import GENEROUS_SECONDS

RECORDS = sorted((Path(__file__).parent / "records").glob("*.sqlite.gz"))
# What each record holds, by request id: a score and a study that ended, a score killed after four
# of its 43 steps, and one that was still in the queue.
ENDED, HALFWAY, QUEUED = ("7f9987c8", "24b67540"), "b0c171d6", "9dc2412e"


@pytest.mark.parametrize("record", RECORDS, ids=lambda path: path.name)
def test_an_earlier_release_s_jobs_are_listed_read_and_resumed(
    record: Path, tmp_path: Path
) -> None:
    (datasets := tmp_path / "datasets").mkdir()
    golden.write_world(datasets)
    (state := tmp_path / "state").mkdir()
    (state / "jobs.sqlite").write_bytes(gzip.decompress(record.read_bytes()))
    checkpoints = golden.WORLD / "checkpoints"
    with (
        ServerProcess(
            checkpoints, datasets, state, job_retention_days=0, executor_id="kept-host"
        ) as server,
        AcpcClient(server.address) as client,
    ):
        listed = [job.name for job in client.operations.list()]
        names = {name.removeprefix("operations/")[:8]: name for name in listed}
        assert names.keys() == {*ENDED, HALFWAY, QUEUED}
        score, study = (client.operations.get(names[key]) for key in ENDED)
        assert score.state.name == study.state.name == "SUCCEEDED"
        resumed = client.operations.wait(names[HALFWAY], timeout=GENEROUS_SECONDS)
        assert resumed.state.name == "SUCCEEDED", resumed.error
        # Its anchors were not pinned down yet, and the dataset's file is another one here.
        refused = client.operations.wait(names[QUEUED], timeout=GENEROUS_SECONDS)
        assert "has changed since the job was submitted" in str(refused.error)
