"""A few requests are worked on at a time, none keeps a seat while it waits, and no seat is lost."""

from __future__ import annotations

import threading
import time
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor
from contextlib import ExitStack

import pytest
from acpc_server.engine import Desks, Priority, Ticket
from acpc_server.errors import Cancelled, DeadlineExceeded


def ticket(seconds: float | None = 10.0) -> Ticket:
    return Ticket(Priority.INTERACTIVE, seconds)


def assert_free(desks: Desks, seats: int) -> None:
    """Exactly so many can sit down now."""
    assert not desks.busy
    go, sat = threading.Event(), threading.Semaphore(0)

    def sit() -> None:
        with desks.seated(ticket()):
            sat.release()
            go.wait(10)

    with ThreadPoolExecutor(seats + 1) as pool:
        asked = [pool.submit(sit) for _ in range(seats + 1)]
        for _ in range(seats):
            assert sat.acquire(timeout=10)
        assert not sat.acquire(timeout=0.05), "one more than there are seats"
        go.set()
        for future in asked:
            future.result(10)
    assert not desks.busy


@pytest.mark.parametrize("seats", [1, 3])
def test_no_more_work_than_there_are_seats_and_all_get_their_turn(seats: int) -> None:
    desks, lock = Desks(seats), threading.Lock()
    working, most = 0, 0

    def work(_: int) -> None:
        nonlocal working, most
        with desks.seated(ticket()):
            with lock:
                working += 1
                most = max(most, working)
            time.sleep(0.002)
            with lock:
                working -= 1

    with ThreadPoolExecutor(16) as pool:
        list(pool.map(work, range(64)))
    assert most == seats
    assert_free(desks, seats)


def test_the_seat_is_another_s_while_its_owner_waits_and_is_back_with_the_result() -> None:
    desks, answer, waits = Desks(1), Future[str](), threading.Event()

    def first() -> str:
        with desks.seated(ticket()):
            waits.set()
            found = desks.result(answer, 10.0)
            assert desks.busy
            return found

    with ThreadPoolExecutor(1) as pool:
        asked = pool.submit(first)
        assert waits.wait(10)
        with desks.seated(ticket()):
            answer.set_result("done")
            with pytest.raises(TimeoutError):
                asked.result(0.05)  # the result is there, its seat is not
        assert asked.result(10) == "done"
    assert_free(desks, 1)


def test_who_came_first_sits_first() -> None:
    desks, order = Desks(1), list[int]()

    def work(number: int) -> None:
        with desks.seated(ticket()):
            order.append(number)

    with ThreadPoolExecutor(8) as pool, desks.seated(ticket()):
        for number in range(8):
            pool.submit(work, number)
            while len(desks._line) <= number:
                time.sleep(0.001)
    assert order == list(range(8))


def test_a_deadline_ends_the_wait_for_a_seat_and_costs_none() -> None:
    desks = Desks(1)
    with ThreadPoolExecutor(1) as pool, desks.seated(ticket()):

        def late() -> None:
            with desks.seated(ticket(0.02)):
                raise AssertionError("never seated")

        with pytest.raises(DeadlineExceeded):
            pool.submit(late).result(10)
    assert_free(desks, 1)


def test_a_request_withdrawn_in_line_does_nothing() -> None:
    desks, gone = Desks(1), ticket()
    gone.cancel()
    with pytest.raises(Cancelled), desks.seated(gone):
        raise AssertionError("never worked on")
    assert_free(desks, 1)


@pytest.mark.parametrize("ending", ["result", "error", "cancel", "never"])
def test_a_result_that_comes_late_takes_no_seat(ending: str) -> None:
    desks, answer = Desks(1), Future[int]()
    with desks.seated(ticket()):
        with pytest.raises(TimeoutError):
            desks.result(answer, 0.01)
        assert not desks.busy, "a thread that gave up is not seated any more"
    if ending == "result":
        answer.set_result(1)
    elif ending == "error":
        answer.set_exception(RuntimeError("late"))
    elif ending == "cancel":
        answer.cancel()
    assert_free(desks, 1)


def test_errors_of_the_future_are_raised_in_the_seat() -> None:
    desks, broken, withdrawn = Desks(2), Future[int](), Future[int]()
    broken.set_exception(RuntimeError("broken"))
    withdrawn.cancel()
    with desks.seated(ticket()):
        with pytest.raises(RuntimeError, match="broken"):
            desks.result(broken, 1.0)
        with pytest.raises(CancelledError):
            desks.result(withdrawn, 1.0)
        assert desks.busy
    assert_free(desks, 2)


def test_jobs_and_threads_without_a_seat_only_wait() -> None:
    desks, answer = Desks(1), Future[int]()
    answer.set_result(7)
    with ExitStack() as many:
        for _ in range(3):
            many.enter_context(desks.seated(Ticket(Priority.JOB)))
        assert not desks.busy
        assert desks.result(answer, 1.0) == 7
    assert_free(desks, 1)


def test_under_many_threads_no_seat_is_lost_or_made() -> None:
    """Results, timeouts and cancellations race; in the end every seat is there again."""
    desks = Desks(2)

    def work(number: int) -> None:
        answer = Future[int]()
        timer = threading.Timer(0.001 * (number % 5), lambda: answer.set_result(number))
        timer.start()
        try:
            with desks.seated(ticket(0.05)):
                desks.result(answer, 0.002)
        except (TimeoutError, DeadlineExceeded):
            pass
        timer.join()

    with ThreadPoolExecutor(24) as pool:
        list(pool.map(work, range(300)))
    assert_free(desks, 2)
