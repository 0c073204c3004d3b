"""Few requests are at work, or hold much memory, at a time; none keeps a slot while it waits."""

import threading
import time
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack

import pytest
from acpc_server.errors import Cancelled, DeadlineExceeded, ResourceExhausted
from acpc_server.scheduling import ConcurrencyLimiter, Priority, RequestContext, Slots
from waiting import GENEROUS_SECONDS, wait_until


def context(seconds: float | None = GENEROUS_SECONDS, caller: str = "") -> RequestContext:
    return RequestContext(Priority.INTERACTIVE, seconds, caller=caller)


def assert_free(limiter: ConcurrencyLimiter, slots: int) -> None:
    """Exactly so many can be taken now."""
    assert not limiter.busy
    go, taken = threading.Event(), threading.Semaphore(0)

    def work() -> None:
        with limiter.slot(context()):
            taken.release()
            go.wait(GENEROUS_SECONDS)

    with ThreadPoolExecutor(slots + 1) as pool:
        asked = [pool.submit(work) for _ in range(slots + 1)]
        for _ in range(slots):
            assert taken.acquire(timeout=GENEROUS_SECONDS)
        assert not taken.acquire(timeout=0.05), "one more than there are slots"
        go.set()
        for future in asked:
            future.result(GENEROUS_SECONDS)
    assert not limiter.busy


@pytest.mark.parametrize("slots", [1, 3])
def test_no_more_work_than_there_are_slots_and_all_get_their_turn(slots: int) -> None:
    limiter, lock = ConcurrencyLimiter(slots), threading.Lock()
    working, most = 0, 0

    def work(_: int) -> None:
        nonlocal working, most
        with limiter.slot(context()):
            with lock:
                working += 1
                most = max(most, working)
            time.sleep(0.002)
            with lock:
                working -= 1

    with ThreadPoolExecutor(16) as pool:
        list(pool.map(work, range(64)))
    assert most == slots
    assert_free(limiter, slots)


def test_the_slot_is_another_s_while_its_owner_waits_and_is_back_with_the_result() -> None:
    limiter, answer, waits = ConcurrencyLimiter(1), Future[str](), threading.Event()

    def first() -> str:
        with limiter.slot(asks := context()):
            waits.set()
            found = limiter.result(answer, asks)
            assert limiter.busy
            return found

    with ThreadPoolExecutor(1) as pool:
        asked = pool.submit(first)
        assert waits.wait(GENEROUS_SECONDS)
        with limiter.slot(context()):
            answer.set_result("done")
            with pytest.raises(TimeoutError):
                asked.result(0.05)  # the result is there, its slot is not
        assert asked.result(GENEROUS_SECONDS) == "done"
    assert_free(limiter, 1)


@pytest.mark.parametrize("slots", [ConcurrencyLimiter(1), Slots(1, "much")], ids=["work", "memory"])
def test_callers_get_slots_in_turn_and_in_the_order_they_asked(slots: Slots) -> None:
    order = list[str]()

    def work(name: str) -> None:
        with slots.slot(context(caller=name[0])):
            order.append(name)

    with ThreadPoolExecutor(8) as pool, slots.slot(context(caller="z")):
        for number, name in enumerate(("a1", "a2", "a3", "a4", "a5", "b1", "b2", "c1")):
            pool.submit(work, name)
            wait_until(lambda asked=number: slots.waiting > asked)
    assert order == ["a1", "b1", "c1", "a2", "b2", "a3", "a4", "a5"]
    assert not slots.busy, "every slot came back"


def test_a_deadline_ends_the_wait_for_a_slot_and_costs_none() -> None:
    limiter = ConcurrencyLimiter(1)
    with ThreadPoolExecutor(1) as pool, limiter.slot(context()):

        def late() -> None:
            with limiter.slot(context(0.02)):
                raise AssertionError("never at work")

        with pytest.raises(DeadlineExceeded):
            pool.submit(late).result(GENEROUS_SECONDS)
    assert_free(limiter, 1)


def test_a_request_cancelled_in_line_does_nothing() -> None:
    limiter, gone = ConcurrencyLimiter(1), context()
    gone.cancel()
    with pytest.raises(Cancelled), limiter.slot(gone):
        raise AssertionError("never worked on")
    assert_free(limiter, 1)


@pytest.mark.parametrize("ending", ["result", "error", "cancel", "never"])
def test_a_result_that_comes_late_takes_no_slot(ending: str) -> None:
    limiter, answer, asks = ConcurrencyLimiter(1), Future[int](), context()
    if ending in ("result", "error"):
        answer.set_running_or_notify_cancel()  # the device is at it
    with limiter.slot(asks):
        asks.deadline = time.monotonic() + 0.01
        with pytest.raises(DeadlineExceeded):
            limiter.result(answer, asks)
        assert not limiter.busy, "a request that gave up holds no slot any more"
    if ending == "result":
        answer.set_result(1)
    elif ending == "error":
        answer.set_exception(RuntimeError("late"))
    elif ending == "cancel":
        answer.cancel()
    assert_free(limiter, 1)


def test_a_call_that_has_not_begun_when_it_has_to_is_withdrawn() -> None:
    limiter, answer, asks = ConcurrencyLimiter(1), Future[int](), context()
    with limiter.slot(asks):
        with pytest.raises(ResourceExhausted) as rejected:
            limiter.result(answer, asks, reserve=GENEROUS_SECONDS)
        assert limiter.busy, "it has its slot again"
    assert rejected.value.reason == "DEADLINE_CANNOT_BE_MET"
    assert rejected.value.retry_after == GENEROUS_SECONDS
    assert not answer.set_running_or_notify_cancel(), "the device does not compute it"
    assert_free(limiter, 1)


def test_a_call_that_has_begun_is_waited_for_and_who_has_left_is_told_so() -> None:
    limiter, answer, asks = ConcurrencyLimiter(1), Future[int](), context()
    answer.set_running_or_notify_cancel()
    with ThreadPoolExecutor(1) as pool:
        waits = pool.submit(limiter.result, answer, asks, GENEROUS_SECONDS)
        with pytest.raises(TimeoutError):
            waits.result(0.05)
        answer.set_result(7)
        assert waits.result(GENEROUS_SECONDS) == 7
    asks.cancel()
    with pytest.raises(Cancelled):
        limiter.result(Future[int](), asks, reserve=GENEROUS_SECONDS)
    assert_free(limiter, 1)


def test_errors_of_the_future_are_raised_in_the_slot() -> None:
    limiter, broken, withdrawn = ConcurrencyLimiter(2), Future[int](), Future[int]()
    broken.set_exception(RuntimeError("broken"))
    withdrawn.cancel()
    asks = context()
    with limiter.slot(asks):
        with pytest.raises(RuntimeError, match="broken"):
            limiter.result(broken, asks)
        with pytest.raises(Cancelled):
            limiter.result(withdrawn, asks)
        assert limiter.busy
    assert_free(limiter, 2)


def test_jobs_and_threads_without_a_slot_only_wait() -> None:
    limiter, answer = ConcurrencyLimiter(1), Future[int]()
    answer.set_result(7)
    with ExitStack() as many:
        for _ in range(3):
            many.enter_context(limiter.slot(RequestContext(Priority.JOB)))
        assert not limiter.busy
        assert limiter.result(answer, context()) == 7
    assert_free(limiter, 1)


def test_under_many_threads_no_slot_is_lost_or_made() -> None:
    """Results, timeouts and cancellations race; in the end every slot is there again."""
    limiter = ConcurrencyLimiter(2)

    def work(number: int) -> None:
        answer, asks = Future[int](), context(0.05)
        answer.set_running_or_notify_cancel()
        timer = threading.Timer(0.001 * (number % 5), lambda: answer.set_result(number))
        timer.start()
        try:
            with limiter.slot(asks):
                asks.deadline = time.monotonic() + 0.002
                limiter.result(answer, asks)
        except DeadlineExceeded:
            pass
        timer.join()

    with ThreadPoolExecutor(24) as pool:
        list(pool.map(work, range(300)))
    assert_free(limiter, 2)


def test_of_those_that_are_answered_at_once_as_many_wake_as_there_are_slots() -> None:
    limiter, answer = ConcurrencyLimiter(1), Future[str]()
    with ThreadPoolExecutor(1) as pool:
        with limiter.slot(context()):
            woken = pool.submit(limiter.result, answer, context())
            answer.set_result("measured")
            wait_until(lambda: limiter.waiting == 1)
            assert not woken.done()
        assert woken.result(GENEROUS_SECONDS) == "measured"
    assert not limiter.busy, "it keeps no slot"


def test_one_that_gives_up_costs_no_place() -> None:
    places, given_up, entered = Slots(1, "a piece"), context(None, "a"), threading.Event()

    def hold(context: RequestContext) -> None:
        with places.slot(context):
            entered.set()

    with ThreadPoolExecutor(2) as threads, places.slot(context()):
        first = threads.submit(hold, given_up)
        wait_until(lambda: places.waiting == 1)
        given_up.cancel()
        with pytest.raises(Cancelled):
            first.result(GENEROUS_SECONDS)
        with pytest.raises(ResourceExhausted, match="1 requests hold a piece") as late:
            hold(context(0.01, "b"))
        assert (late.value.reason, late.value.retry_after) == ("MEMORY_BUSY", 0.5)
        assert not entered.is_set()
        threads.submit(hold, context(None, "c"))
        wait_until(lambda: places.waiting == 3)
    assert entered.is_set()


def test_jobs_need_no_place_and_a_fault_gives_it_back() -> None:
    places = Slots(1, "much")
    with pytest.raises(ZeroDivisionError), places.slot(context()):
        raise ZeroDivisionError
    with ExitStack() as held:
        held.enter_context(places.slot(context(1.0)))
        held.enter_context(places.slot(RequestContext(Priority.JOB)))
