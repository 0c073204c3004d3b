"""Few requests hold much memory at a time; the others wait for a place, callers in turn."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack

import pytest
from acpc_server.errors import Cancelled, ResourceExhausted
from acpc_server.scheduling import Places, Priority, RequestContext
from waiting import GENEROUS_SECONDS, wait_until


def asking(caller: str = "", seconds: float | None = None) -> RequestContext:
    return RequestContext(Priority.INTERACTIVE, seconds, caller=caller)


@pytest.fixture
def threads() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(8) as pool:
        yield pool


def test_callers_get_places_in_turn_and_every_place_comes_back(threads: ThreadPoolExecutor) -> None:
    places, order = Places(1, "much"), list[str]()

    def hold(name: str) -> None:
        with places.place(asking(name[0])):
            order.append(name)

    with places.place(asking("z")):
        ended: list[Future[None]] = []
        for waiting, name in enumerate(("a1", "a2", "b1"), 1):
            ended.append(threads.submit(hold, name))
            wait_until(lambda waiting=waiting: places.waiting == waiting)
    for one in ended:
        one.result(GENEROUS_SECONDS)
    assert order == ["a1", "b1", "a2"]
    with places.place(asking(seconds=GENEROUS_SECONDS)):
        assert places.waiting == 0


def test_one_that_gives_up_costs_no_place(threads: ThreadPoolExecutor) -> None:
    places, given_up, entered = Places(1, "a piece"), asking("a"), threading.Event()

    def hold(context: RequestContext) -> None:
        with places.place(context):
            entered.set()

    with places.place(asking()):
        first = threads.submit(hold, given_up)
        wait_until(lambda: places.waiting == 1)
        given_up.cancel()
        with pytest.raises(Cancelled):
            first.result(GENEROUS_SECONDS)
        with pytest.raises(ResourceExhausted, match="1 requests hold a piece") as late:
            hold(asking("b", 0.01))
        assert (late.value.reason, late.value.retry_after) == ("MEMORY_BUSY", 0.5)
        assert not entered.is_set()
        last = threads.submit(hold, asking("c"))
        wait_until(lambda: places.waiting == 3)
    last.result(GENEROUS_SECONDS)


def test_jobs_need_no_place_and_a_fault_gives_it_back() -> None:
    places = Places(1, "much")
    with pytest.raises(ZeroDivisionError), places.place(asking()):
        raise ZeroDivisionError
    with ExitStack() as held:
        held.enter_context(places.place(asking(seconds=1.0)))
        held.enter_context(places.place(RequestContext(Priority.JOB)))
