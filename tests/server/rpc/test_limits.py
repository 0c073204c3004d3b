"""What callers may hold at a time, and who gets a thread."""

import asyncio
import threading
import time

import pytest
from acpc_server.errors import DeadlineExceeded, ResourceExhausted
from acpc_server.rpc import Limits, ReadLimit, Workers
from waiting import GENEROUS_SECONDS

CALLS, STREAMS = "calls", "streams"


def test_a_rejection_names_the_limit_and_counts_nothing() -> None:
    limits = Limits({CALLS: 4, STREAMS: 1})
    limits.enter("a", (CALLS, STREAMS))
    for _ in range(3):
        with pytest.raises(ResourceExhausted, match="1 streams under way, 1 of this caller"):
            limits.enter("a", (CALLS, STREAMS))
    limits.enter("a", (CALLS,))
    limits.leave("a", (CALLS, STREAMS))
    limits.enter("b", (CALLS, STREAMS))


async def silence() -> None:
    await asyncio.get_running_loop().create_future()


async def whole() -> bytes:
    return b"whole"


def test_who_comes_as_others_run_out_of_time_is_read() -> None:
    """Their time is over in one turn of the loop, and this one comes before they have left."""
    limits = Limits({}, slots=2, limit=ReadLimit(0.05))

    async def comes() -> bytes | None:
        await asyncio.sleep(0.04)
        return await limits.read("c", whole, ReadLimit(GENEROUS_SECONDS))

    async def scene() -> None:
        silent = [asyncio.create_task(limits.read(name, silence)) for name in "ab"]
        third = asyncio.create_task(comes())
        await asyncio.sleep(0)
        time.sleep(0.1)  # all three timers are due
        assert await third == b"whole"
        for one in silent:
            with pytest.raises(DeadlineExceeded, match="no message"):
                await one

    asyncio.run(scene())


def test_callers_get_threads_in_turn_and_none_takes_the_last() -> None:
    workers, go, order = Workers(4), threading.Event(), list[str]()

    async def served() -> None:
        many = [workers.run("many", go.wait, GENEROUS_SECONDS) for _ in range(3)]
        many += [workers.run("many", order.append, "many") for _ in range(3)]
        await workers.run("few", order.append, "few")
        assert order == ["few"], "a thread was left for it"
        go.set()
        await asyncio.gather(*many)

    asyncio.run(served())
    assert order == ["few", "many", "many", "many"]
    workers.close()


def test_work_that_nobody_waits_for_runs_and_its_error_is_no_news() -> None:
    workers, ran, news = Workers(1), list[str](), list[object]()

    def fail() -> None:
        ran.append("failed")
        raise ResourceExhausted("late")

    async def left() -> None:
        asyncio.get_running_loop().set_exception_handler(lambda _, told: news.append(told))
        go = threading.Event()
        held = workers.run("a", go.wait, GENEROUS_SECONDS)
        given_up = workers.run("a", fail)
        given_up.cancel()
        go.set()
        await held
        await workers.run("a", ran.append, "next")

    asyncio.run(left())
    assert (ran, news) == (["failed", "next"], [])
    workers.close()
