"""Law: one look at the record serves all who follow, each is told what is new, and no more."""

import queue
import threading
from collections.abc import Collection, Iterator, Mapping
from typing import TypeAlias

import pytest
from acpc.contract import Progress
from acpc_server.errors import AcpcError, NotFound
from acpc_server.jobs import Job, JobState
from acpc_server.jobs.following import JobFollowers
from job_desk import bare_job
from waiting import GENEROUS_SECONDS, wait_until

CROWD = 1000
Told: TypeAlias = queue.Queue[Job | AcpcError | None]


class Board:
    """Jobs as a record has them; ``gate`` keeps a look from ending."""

    def __init__(self) -> None:
        self.jobs: dict[str, Job] = {}
        self.looks: list[list[str]] = []
        self.gate = threading.Event()
        self.gate.set()

    def put(self, job_id: str, completed: int, state: JobState = JobState.RUNNING) -> None:
        progress = Progress.at("counting", completed, 9)
        self.jobs[job_id] = bare_job(job_id=job_id, state=state, progress=progress)

    def read(self, job_ids: Collection[str]) -> Mapping[str, Job | AcpcError]:
        self.looks.append(list(job_ids))
        found = {i: self.jobs.get(i, NotFound(f"no operation is named {i}")) for i in job_ids}
        self.gate.wait()
        return found


@pytest.fixture
def board() -> Board:
    return Board()


@pytest.fixture
def followers(board: Board) -> Iterator[JobFollowers]:
    made = JobFollowers(board.read)
    yield made
    board.gate.set()
    made.close()


def heard(told: Told) -> tuple[JobState, int]:
    news = told.get(timeout=GENEROUS_SECONDS)
    assert isinstance(news, Job), news
    return news.state, news.progress.completed


def test_a_crowd_costs_a_look_and_hears_of_the_end_alone(
    board: Board, followers: JobFollowers
) -> None:
    board.put("job", 0)
    board.gate.clear()
    crowd, watcher = Told(), Told()
    followers.follow("job", crowd.put, every=False)
    wait_until(lambda: board.looks)
    for _ in range(CROWD - 1):
        followers.follow("job", crowd.put, every=False)
    following = followers.follow("job", watcher.put)
    board.gate.set()
    for _ in range(CROWD):
        assert heard(crowd) == (JobState.RUNNING, 0)
    assert heard(watcher) == (JobState.RUNNING, 0)
    for completed in (1, 2):
        board.put("job", completed)
        assert heard(watcher) == (JobState.RUNNING, completed)
    assert following.job is not None
    assert following.job.progress.completed == 2
    assert crowd.empty(), "what a wait does not answer with wakes nobody"
    board.put("job", 3, JobState.SUCCEEDED)
    for _ in range(CROWD):
        assert heard(crowd) == (JobState.SUCCEEDED, 3)
    assert heard(watcher) == (JobState.SUCCEEDED, 3)
    assert len(board.looks) < CROWD / 10
    assert crowd.empty() and watcher.empty()


def test_a_follower_is_told_what_was_read_after_it_came(
    board: Board, followers: JobFollowers
) -> None:
    early, late = Told(), Told()
    board.gate.clear()
    followers.follow("job", early.put)
    wait_until(lambda: board.looks)
    board.put("job", 5)  # after the look that goes on has read
    followers.follow("job", late.put)
    board.gate.set()
    assert isinstance(early.get(timeout=GENEROUS_SECONDS), NotFound)
    assert heard(late) == (JobState.RUNNING, 5)


def test_a_job_that_is_gone_ends_those_who_follow_it(board: Board, followers: JobFollowers) -> None:
    board.put("stays", 0)
    board.put("goes", 0)
    stays, goes, late = Told(), Told(), Told()
    followers.follow("stays", stays.put)
    followers.follow("goes", goes.put)
    assert heard(stays) == heard(goes) == (JobState.RUNNING, 0)
    del board.jobs["goes"]
    assert isinstance(goes.get(timeout=GENEROUS_SECONDS), NotFound)
    board.put("stays", 1)
    assert heard(stays) == (JobState.RUNNING, 1)
    followers.close()
    assert stays.get(timeout=GENEROUS_SECONDS) is None
    followers.follow("stays", late.put)
    assert late.get(timeout=GENEROUS_SECONDS) is None, "the server drains"


def test_many_jobs_have_their_turn(board: Board, followers: JobFollowers) -> None:
    """Those who come again and again do not keep a job from being looked at."""
    names = [f"job {number}" for number in range(300)]
    for name in ("mine", *names):
        board.put(name, 0)
    mine, others = Told(), Told()
    followers.follow("mine", mine.put)
    assert heard(mine) == (JobState.RUNNING, 0)
    for name in names:
        followers.follow(name, others.put, every=False)
    board.put("mine", 1)
    assert heard(mine) == (JobState.RUNNING, 1)
    for _ in names:
        assert heard(others) == (JobState.RUNNING, 0)
    assert max(map(len, board.looks)) <= 50
