"""Those who follow a job are told of its changes by one thread, whatever that thread meets."""

import queue
from collections.abc import Collection
from dataclasses import replace

from acpc.contract import Progress
from acpc_server.errors import AcpcError
from acpc_server.jobs import NOBODY, Job, JobState
from acpc_server.jobs.reading import JobFollowers
from job_desk import SHORT
from waiting import GENEROUS_SECONDS

JOB = Job(
    job_id="a",
    owner=NOBODY,
    kind="counting",
    recorded={},
    state=JobState.RUNNING,
    created=0.0,
    started=0.0,
    ended=None,
    attempts=1,
    result=None,
    failure=None,
    spec=SHORT,
    progress=Progress("counting", 0, 3, None, None),
)


def test_a_bug_in_one_look_leaves_nobody_waiting() -> None:
    looks = iter([RuntimeError("a library's own"), None])
    told: queue.Queue[Job | AcpcError | None] = queue.Queue()

    def read(_: Collection[str]) -> dict[str, Job]:
        if (error := next(looks)) is not None:
            raise error
        return {"a": replace(JOB, state=JobState.SUCCEEDED)}

    followers = JobFollowers(read)
    followers.follow(JOB, told.put)
    assert told.get(timeout=GENEROUS_SECONDS) == JOB
    done = told.get(timeout=GENEROUS_SECONDS)
    assert isinstance(done, Job)
    assert done.state is JobState.SUCCEEDED
    followers.close()
