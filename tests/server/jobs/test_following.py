"""Those who follow a job are told of its changes by one thread, whatever that thread meets."""

import queue
import threading
from collections.abc import Collection
from dataclasses import replace

import pytest
from acpc_server.errors import AcpcError
from acpc_server.jobs import Job, JobState
from acpc_server.jobs.reading import JobFollowers
from job_desk import bare_job
from waiting import GENEROUS_SECONDS

JOB = bare_job()


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
    assert done.state is JobState.SUCCEEDED
    followers.close()


def test_those_who_follow_while_no_thread_can_be_started_keep_nobody_else_waiting(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    told: queue.Queue[Job | AcpcError | None] = queue.Queue()
    followers = JobFollowers(lambda _: {"a": replace(JOB, state=JobState.SUCCEEDED)})

    def start(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as short, pytest.raises(RuntimeError):
        short.setattr(threading.Thread, "start", start)
        followers.follow(JOB, lambda _: None)
    followers.follow(JOB, told.put)
    assert told.get(timeout=GENEROUS_SECONDS) == JOB
    assert told.get(timeout=GENEROUS_SECONDS) != JOB
    followers.close()
