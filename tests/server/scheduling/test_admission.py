"""Which requests a busy server takes on, and how it rejects the others."""

import asyncio
import random
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack, suppress

import pytest
from acpc_server.errors import (
    AcpcError,
    Cancelled,
    DeadlineExceeded,
    InvalidArgument,
    ResourceExhausted,
)
from acpc_server.scheduling import (
    AdmissionController,
    CallRequests,
    LatencyModel,
    Priority,
    RequestContext,
    Work,
    WorkerPool,
)
from clocks import Clock
from waiting import GENEROUS_SECONDS

SHORT, LONG = "ComparePair", "PlanPaired"
Asks = tuple[str, float, str]  # method, seconds, caller


def context(seconds: float | None = None, caller: str = "") -> RequestContext:
    return RequestContext(Priority.INTERACTIVE, seconds, caller=caller)


def knowing(clock: Clock | None = None, **alone: float) -> AdmissionController:
    """A controller that knows how long requests of each method take alone, in seconds."""
    latency = LatencyModel(clock or time.monotonic)
    for method, seconds in alone.items():
        for _ in range(200):
            latency.learn(Work(method, 1), seconds)
    return AdmissionController(latency, max_requests=12)


def enter(
    entered: ExitStack, admission: AdmissionController, method: str, count: int, caller: str = ""
) -> None:
    for _ in range(count):
        entered.enter_context(admission.request(method, context(caller=caller)))


def rejection(
    admission: AdmissionController, method: str, seconds: float, caller: str = ""
) -> ResourceExhausted | None:
    try:
        with admission.request(method, context(seconds, caller)):
            return None
    except ResourceExhausted as error:
        return error


def test_no_more_than_the_limit_are_under_way() -> None:
    admission = AdmissionController(max_requests=2)
    with ExitStack() as entered:
        enter(entered, admission, SHORT, 1)
        enter(entered, admission, LONG, 1)
        rejected = rejection(admission, SHORT, 60.0)
    assert rejected.reason == "SERVER_BUSY"
    assert rejected.retry_after, "soon, but not at once"
    assert rejection(admission, SHORT, 60.0) is None


# Seconds each method takes alone; what is under way; who asks, with too few seconds; how long it
# would take; and how many seconds are enough. Callers and requests take turns on the device.
LATE: dict[str, tuple[dict[str, float], list[tuple[str, int, str]], Asks, float, float]] = {
    "of its method": ({SHORT: 1.0}, [(SHORT, 4, "")], (SHORT, 2.0, ""), 5.0, 100.0),
    "of another method": (
        {SHORT: 1.0, "CertifyPool": 1.0}, [("CertifyPool", 4, "")], (SHORT, 2.0, ""), 5.0, 100.0,
    ),
    "behind long ones it waits its own length each": (
        {SHORT: 0.1, LONG: 100.0}, [(LONG, 3, "")], (SHORT, 0.5, ""), 0.4, 5.0,
    ),
    "behind short ones it waits theirs": (
        {SHORT: 0.1, LONG: 1.0}, [(SHORT, 5, "")], (LONG, 1.0, ""), 1.5, 5.0,
    ),
    "its caller's own are all ahead": (
        {SHORT: 1.0}, [(SHORT, 7, "many")], (SHORT, 5.0, "many"), 8.0, 100.0,
    ),
    "a newcomer's wait for one of the other each": (
        {SHORT: 1.0}, [(SHORT, 7, "many"), (SHORT, 2, "new")], (SHORT, 5.0, "new"), 6.0, 100.0,
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", LATE)
def test_a_request_that_would_be_late_is_rejected_and_one_with_time_is_not(case: str) -> None:
    alone, under_way, (method, seconds, caller), takes, enough = LATE[case]
    admission = knowing(**alone)
    with ExitStack() as entered:
        for given in under_way:
            enter(entered, admission, *given)
        count = admission.under_way
        with pytest.raises(ResourceExhausted) as told:
            admission.check(method, caller, seconds)
        admission.check(method, caller, enough)
        assert admission.under_way == count, "who only asks is not counted"
        late = rejection(admission, method, seconds, caller)
        assert rejection(admission, method, enough, caller) is None
    assert told.value.reason == "DEADLINE_CANNOT_BE_MET"
    assert late.reason == "DEADLINE_CANNOT_BE_MET"
    assert late.retry_after == pytest.approx(takes, rel=0.01)


def test_the_last_places_are_not_for_whoever_has_most() -> None:
    admission = knowing(ComparePair=0.001)
    with ExitStack() as entered:
        enter(entered, admission, SHORT, 9, caller="many")
        busy = rejection(admission, SHORT, 60.0, "many")
        enter(entered, admission, SHORT, 3, caller="few")
        full = rejection(admission, SHORT, 60.0, "newcomer")
    assert busy.reason == full.reason == "SERVER_BUSY"


def test_answers_that_leave_together_cost_no_less_than_they_took() -> None:
    """Eight calls that share 10 ms leave at once; a ninth behind seven would take about as long."""
    admission = AdmissionController(max_requests=12)
    for _ in range(30):
        with ExitStack() as batch:
            enter(batch, admission, SHORT, 8)
            time.sleep(0.01)
    with ExitStack() as entered:
        enter(entered, admission, SHORT, 7)
        late = rejection(admission, SHORT, 0.005)
    assert late.retry_after >= 0.01


def test_an_idle_server_lets_every_request_try() -> None:
    """Nobody is ahead, so what was slow before may be fast now."""
    assert rejection(knowing(ComparePair=10.0), SHORT, 0.001) is None


@pytest.mark.parametrize("error", [InvalidArgument("history", "broken"), Cancelled("gone")])
def test_a_request_that_fails_is_counted_out_and_teaches_nothing(error: AcpcError) -> None:
    """A caller of such requests must not make the server believe that requests are quick."""
    admission = knowing(ComparePair=1.0)
    for _ in range(100):
        with pytest.raises(type(error)), admission.request(SHORT, context()):
            raise error
    assert admission.latency.unit_seconds(SHORT) == pytest.approx(1.0, rel=0.01)
    with ExitStack() as entered:
        enter(entered, admission, SHORT, 8)


@pytest.mark.parametrize("ending", [DeadlineExceeded("late"), ResourceExhausted("withdrawn")])
def test_a_request_that_ran_out_of_time_teaches_that_it_took_it(ending: AcpcError) -> None:
    admission = AdmissionController()
    with pytest.raises(type(ending)), admission.request(SHORT, context()):
        time.sleep(0.01)
        raise ending
    assert admission.latency.unit_seconds(SHORT) > 0


def test_a_method_that_was_never_measured_gets_in_beside_a_busy_one() -> None:
    """However busy another method keeps the server, one request of a new one may measure it."""
    admission = knowing(CertifyPool=1.0)
    with ExitStack() as entered:
        enter(entered, admission, "CertifyPool", 7)
        with admission.request(SHORT, context(0.5)):
            assert rejection(admission, SHORT, 0.5) is not None, "one is enough"


def test_later_messages_of_an_open_stream_wait_as_long_as_they_have() -> None:
    """A stream was admitted once; a planner cannot go on without its next answer."""
    admission, rpc = knowing(ComparePair=1.0, Plan=1.0), Rpc(10.0)
    requests = CallRequests(admission, "Plan", rpc)
    with ExitStack() as entered:
        enter(entered, admission, SHORT, 6)
        with pytest.raises(ResourceExhausted), requests.admitted():
            raise AssertionError("never admitted")
    with requests.admitted():
        pass
    with ExitStack() as entered:
        enter(entered, admission, SHORT, 6)
        with requests.admitted():
            pass


def test_one_slow_chunk_does_not_lock_its_kind_out() -> None:
    """What is rejected is not measured; the estimate has to come down all the same."""
    admission, chunk = knowing(clock := Clock(), kind=100.0), Work("kind", 1)
    admission.chunk(chunk, [], context(60.0), 0)  # an idle device tries
    rejections = 0
    while True:
        try:
            admission.chunk(chunk, [chunk], context(60.0), 1)
            break
        except ResourceExhausted as error:
            assert error.reason == "DEADLINE_CANNOT_BE_MET" and error.retry_after is not None
            rejections += 1
            clock.now += 0.1
    assert 0 < rejections < 200
    admission.chunk(chunk, [chunk], context(), 1)


def test_a_method_believed_to_be_slow_is_tried_again_beside_a_busy_one() -> None:
    """The server is never idle, so nothing else would measure it again."""
    admission = knowing(clock := Clock(), ComparePair=0.1, PlanPaired=100.0)
    with ExitStack() as entered:
        enter(entered, admission, SHORT, 1)
        rejections = 0
        while rejection(admission, LONG, 60.0) is not None:
            rejections += 1
            clock.now += 0.1
            admission.latency.learn(Work(SHORT, 1), 0.1)
    assert 0 < rejections < 200


def test_rejections_without_time_between_them_change_no_estimate() -> None:
    admission = knowing(Clock(), ComparePair=1.0)
    with ExitStack() as entered:
        enter(entered, admission, SHORT, 5)
        for _ in range(1000):
            assert rejection(admission, SHORT, 2.0) is not None
    assert admission.latency.unit_seconds(SHORT) == pytest.approx(1.0, rel=0.5)


class Rpc:
    """An RPC of a caller who has so many seconds, and may leave."""

    def __init__(self, seconds: float | None) -> None:
        self._seconds = seconds
        self._callbacks: list[Callable[[], None]] = []
        self._active = True
        self.waits: list[bool] = []

    def waits_for_others(self, waits: bool) -> None:
        self.waits.append(waits)

    def time_remaining(self) -> float | None:
        return self._seconds

    def is_active(self) -> bool:
        return self._active

    def add_callback(self, callback: Callable[[], None]) -> bool:
        self._callbacks.append(callback)
        return self._active

    def end(self) -> None:
        self._active = False
        for callback in self._callbacks:
            callback()


def test_a_call_is_told_whether_it_has_others_to_wait_for() -> None:
    admission, rpc = knowing(ComparePair=1.0), Rpc(60.0)
    requests = CallRequests(admission, SHORT, rpc)
    with requests.admitted(), ExitStack() as entered:
        enter(entered, admission, SHORT, 1)
        with requests.admitted():
            assert rpc.waits == [False, True]


MEAN = 0.9 * 0.04 + 0.1 * 0.4


def overloaded(clock: Clock, seconds: float, seed: int) -> dict[str, int]:
    """What becomes of calls at ten times the capacity of a device whose calls vary in length.

    In virtual time: a call takes 40 ms, one in ten 400, and each has half a second.
    """
    rng, admission = random.Random(seed), AdmissionController(LatencyModel(clock))
    line: list[tuple[float, float, ExitStack]] = []  # ends, deadline, and what counts it
    found = dict.fromkeys(("answered", "late", "rejected"), 0)
    free, arrival = 0.0, 0.0
    while arrival < seconds:
        arrival += rng.expovariate(10 / MEAN)
        while line and min(line[0][:2]) <= arrival:
            ends, deadline, counted = line.pop(0)
            clock.now = min(ends, deadline)
            late = DeadlineExceeded("late") if deadline < ends else None
            free = min(free, clock.now) if late and not line else free
            found["late" if late else "answered"] += arrival > 5
            with suppress(DeadlineExceeded):
                counted.__exit__(type(late) if late else None, late, None)
        clock.now = arrival
        counted = ExitStack()
        try:
            counted.enter_context(admission.request(SHORT, context(0.5)))
        except ResourceExhausted:
            found["rejected"] += arrival > 5
            continue
        free = max(free, arrival) + rng.choice([0.04] * 9 + [0.4])
        line.append((free, arrival + 0.5, counted))
    return found


def test_an_overloaded_device_takes_on_what_it_can_do_in_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Late are no more than the calls that take ten times as long as others: one in ten."""
    clock = Clock()
    monkeypatch.setattr("acpc_server.scheduling.admission.time.monotonic", clock)
    found, runs = Counter[str](), 5
    for seed in range(runs):
        clock.now = 0.0
        found.update(overloaded(clock, 60.0, seed))
    assert found["late"] <= 0.12 * found["answered"], found
    assert found["answered"] > runs * 0.8 * 55 / MEAN, found


def test_each_message_of_a_stream_is_a_request_and_all_end_with_the_call() -> None:
    admission, rpc = knowing(ComparePair=1.0, Plan=1.0), Rpc(5.0)
    requests = CallRequests(admission, "Plan", rpc)
    with requests.admitted() as first:
        assert not first.cancelled
        assert rejection(admission, SHORT, 2.0) is not None, "one is ahead"
    with ExitStack() as entered:
        enter(entered, admission, SHORT, 6)
        with pytest.raises(ResourceExhausted), requests.admitted():
            raise AssertionError("never admitted")
    with requests.admitted() as second:
        assert second is not first
        rpc.end()
        assert second.cancelled
    assert not first.cancelled
    with pytest.raises(Cancelled), requests.admitted():
        raise AssertionError("never admitted")
    with pytest.raises(Cancelled):
        requests.check()


def test_calls_are_rejected_when_all_workers_are_taken_but_a_callers_first_is_not() -> None:
    workers, go = WorkerPool(2, max_backlog=6), threading.Event()

    async def filled() -> None:
        waiting = []
        for _ in range(6):
            workers.check("many")
            waiting.append(workers.run("many", go.wait, GENEROUS_SECONDS))
        with pytest.raises(ResourceExhausted, match="every thread") as rejected:
            workers.check("many")
        assert rejected.value.retry_after
        for newcomer in "abcdefg":
            workers.check(newcomer)
            waiting.append(workers.run(newcomer, go.wait, GENEROUS_SECONDS))
        with pytest.raises(ResourceExhausted):
            workers.check("h")
        waiting[0].cancel()
        with pytest.raises(ResourceExhausted):
            workers.check("h")  # its thread is taken still
        go.set()
        await asyncio.gather(*waiting[1:])
        while True:  # the cancelled one's thread is heard of last
            try:
                return workers.check("many")
            except ResourceExhausted:
                await asyncio.sleep(0)

    asyncio.run(filled())
    workers.close()


def test_callers_get_threads_in_turn_and_none_takes_the_last() -> None:
    workers, go, order = WorkerPool(4), threading.Event(), list[str]()

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


def test_work_aside_takes_few_places() -> None:
    workers, go = WorkerPool(2, max_backlog=2), threading.Event()

    async def filled() -> None:
        waits = [
            asyncio.ensure_future(workers.run_aside(str(i), go.wait, GENEROUS_SECONDS))
            for i in range(30)
        ]
        await asyncio.sleep(0)
        workers.check("other")
        waits[0].cancel()
        answer = workers.run("other", len, "four")
        go.set()
        assert await answer == 4
        assert all(await asyncio.gather(*waits[1:]))

    asyncio.run(filled())
    workers.close()


def test_a_worker_that_wants_to_exit_ends_neither_the_loop_nor_its_caller() -> None:
    workers = WorkerPool(1)

    async def asked() -> None:
        with pytest.raises(RuntimeError, match="SystemExit"):
            await workers.run("", sys.exit, 3)
        assert await workers.run("", len, "four") == 4

    asyncio.run(asked())
    workers.close()


def test_dear_requests_of_a_method_do_not_count_for_cheap_ones() -> None:
    """A caller's dear calls, over within their doubling, leave the estimate of cheap ones."""
    clock = Clock()
    admission = AdmissionController(LatencyModel(clock))
    for calls, seconds in [(1, 0.1), (100, 40.0)] * 30:
        admission.latency.learn(Work(SHORT if calls == 1 else (SHORT, 7), 1.0), seconds)
    with admission.request(SHORT, context(60.0, "dear")) as _, ExitStack() as entered:
        dear = context(300.0, "dear")
        entered.enter_context(admission.request(SHORT, dear))
        dear.price(100.0)
        assert rejection(admission, SHORT, 2.0, "cheap") is None
        late = context(20.0, "late")
        refused = pytest.raises(ResourceExhausted, match="would take")
        with refused, admission.request(SHORT, late):
            late.price(60.0)
            late.price(40.0)
        assert admission.under_way == 2
    assert admission.under_way == 0
