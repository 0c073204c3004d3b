"""Law: one look at the record serves all who follow, each is told what is new, and no more."""

import asyncio
import threading
from collections.abc import Awaitable, Callable, Collection, Mapping
from contextlib import AsyncExitStack
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pytest
from acpc.contract import Progress
from acpc_server.errors import AcpcError, NotFound
from acpc_server.jobs import Job, JobState
from acpc_server.rpc import JobFollowers
from job_desk import bare_job
from waiting import GENEROUS_SECONDS

CROWD = 1000


def name(number: int) -> str:
    return f"operations/{UUID(int=number)}"


class Board:
    """Jobs as a record has them; ``gate`` keeps a look from ending, ``fault`` breaks the next."""

    def __init__(self) -> None:
        self.jobs: dict[str, Job] = {}
        self.looks: list[list[str]] = []
        self.gate = threading.Event()
        self.gate.set()
        self.fault: Exception | None = None

    def put(self, number: int, completed: int, state: JobState = JobState.RUNNING) -> None:
        job_id, progress = f"{UUID(int=number)}", Progress.at("counting", completed, 9)
        self.jobs[job_id] = bare_job(job_id=job_id, state=state, progress=progress)

    def look(self, job_ids: Collection[str]) -> Mapping[str, Job | AcpcError]:
        self.looks.append(list(job_ids))
        if self.fault is not None:
            fault, self.fault = self.fault, None
            raise fault
        found = {i: self.jobs.get(i, NotFound(f"no operation is named {i}")) for i in job_ids}
        self.gate.wait()
        return found


class Room:
    def __init__(self, board: Board, stack: AsyncExitStack) -> None:
        self.followers = JobFollowers(board)
        self._stack = stack

    async def follow(self, number: int) -> Callable[[], Awaitable[Any]]:
        """The state and the steps of the job as it is told next, or None."""
        following = self.followers.follow(name(number), SimpleNamespace())
        changes = await self._stack.enter_async_context(following)

        async def heard() -> tuple[JobState, int] | None:
            async with asyncio.timeout(GENEROUS_SECONDS):
                job = await changes.next()
            return job and (job.state, job.progress.completed)

        return heard


def run(board: Board, story: Callable[[Room], Awaitable[None]]) -> None:
    async def play() -> None:
        async with AsyncExitStack() as stack:
            stack.callback(board.gate.set)
            await story(Room(board, stack))

    asyncio.run(play())


async def looked(board: Board, more: int = 0) -> None:
    async with asyncio.timeout(GENEROUS_SECONDS):
        while len(board.looks) <= more:
            await asyncio.sleep(0.01)


def test_a_crowd_costs_a_look_and_each_hears_of_every_change() -> None:
    board = Board()
    board.put(1, 0)
    board.gate.clear()

    async def story(room: Room) -> None:
        crowd = [await room.follow(1)]
        await looked(board)
        crowd += [await room.follow(1) for _ in range(CROWD - 1)]
        board.gate.set()
        for completed in (0, 1, 2):
            board.put(1, completed)
            if completed:
                assert [await one() for one in crowd] == [(JobState.RUNNING, completed)] * CROWD
            else:
                assert {await one() for one in crowd} == {(JobState.RUNNING, 0)}
        board.put(1, 3, JobState.SUCCEEDED)
        assert [await one() for one in crowd] == [(JobState.SUCCEEDED, 3)] * CROWD
        looks = len(board.looks)
        assert looks < CROWD / 10
        late = await room.follow(1)
        assert await late() == (JobState.SUCCEEDED, 3)
        await asyncio.sleep(2.0)
        assert len(board.looks) == looks + 1, "what has ended is read no more"

    run(board, story)


def test_a_follower_is_told_what_was_read_after_it_came() -> None:
    board = Board()
    board.gate.clear()

    async def story(room: Room) -> None:
        early = await room.follow(1)
        await looked(board)
        board.put(1, 5)  # after the look that goes on has read
        late = await room.follow(1)
        board.gate.set()
        with pytest.raises(NotFound):
            await early()
        assert await late() == (JobState.RUNNING, 5)

    run(board, story)


def test_a_job_that_is_gone_ends_those_who_follow_it_and_the_drain_all() -> None:
    board = Board()
    for number in (1, 2):
        board.put(number, 0)

    async def story(room: Room) -> None:
        stays, goes = await room.follow(1), await room.follow(2)
        assert await stays() == await goes() == (JobState.RUNNING, 0)
        del board.jobs[f"{UUID(int=2)}"]
        with pytest.raises(NotFound):
            await goes()
        board.put(1, 1)
        assert await stays() == (JobState.RUNNING, 1)
        await asyncio.to_thread(room.followers.close)
        assert await stays() is None
        assert await (await room.follow(1))() is None, "the server drains"

    run(board, story)


def test_those_who_come_again_and_again_keep_no_job_from_its_look_and_cost_none() -> None:
    board = Board()
    for number in range(301):
        board.put(number, 0)

    async def story(room: Room) -> None:
        mine = await room.follow(300)
        assert await mine() == (JobState.RUNNING, 0)
        others = [await room.follow(number) for number in range(299)]
        for other in others:
            assert await other() == (JobState.RUNNING, 0)
        board.looks.clear()
        board.put(300, 1)
        again = asyncio.create_task(mine())
        while not again.done():
            assert await (await room.follow(299))() == (JobState.RUNNING, 0)
        assert again.result() == (JobState.RUNNING, 1)
        assert max(map(len, board.looks)) <= 50
        alone = [look for look in board.looks if look == [f"{UUID(int=299)}"]]
        assert len(alone) > 1, "a newcomer's job is looked at alone"

    run(board, story)


def test_a_fault_of_a_look_ends_no_wait() -> None:
    board = Board()
    board.put(1, 0)
    board.fault = RuntimeError("a bug")

    async def story(room: Room) -> None:
        assert await (await room.follow(1))() == (JobState.RUNNING, 0)
        assert len(board.looks) == 2

    run(board, story)
