"""A call that others may join is delayed for those being prepared, and only for them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager

import pytest
from acpc_server.errors import DeviceFailed
from acpc_server.observe import Metrics
from acpc_server.scheduling import (
    AdmissionController,
    BatchQueue,
    Chunk,
    ConcurrencyLimiter,
    Priority,
    RequestContext,
    Work,
)

INTERACTIVE, JOB = Priority.INTERACTIVE, Priority.JOB
# Longer than any test waits, and long enough to see that something is delayed.
EVER, SOON, A_WHILE = 60.0, 10.0, 0.05
Take = Callable[[], Future[list[Chunk]]]


@pytest.fixture
def limiter() -> ConcurrencyLimiter:
    return ConcurrencyLimiter(1)


@pytest.fixture
def admission() -> AdmissionController:
    return AdmissionController()


@pytest.fixture
def queue(limiter: ConcurrencyLimiter, admission: AdmissionController) -> BatchQueue:
    return BatchQueue(Metrics(), admission, limiter)


@pytest.fixture
def take(queue: BatchQueue) -> Iterator[Take]:
    with ThreadPoolExecutor(1) as pool:
        yield lambda: pool.submit(queue.take)
        queue.close()


@pytest.fixture
def no_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing but an event ends a delay."""
    monkeypatch.setattr("acpc_server.scheduling.queue.MAX_ARRIVAL_GAP", EVER)
    monkeypatch.setattr("acpc_server.scheduling.queue.MAX_QUEUE_DELAY", EVER)


def chunk(
    priority: Priority = INTERACTIVE,
    *,
    mergeable: bool = True,
    max_rows: int = 8,
    seconds: float | None = None,
) -> Chunk:
    context = RequestContext(priority, seconds)
    return Chunk("encode", "kind", None, 1, list, context, mergeable, max_rows)


def put(queue: BatchQueue, *chunks: Chunk) -> None:
    for one in chunks:
        queue.put(one)


def at_work(limiter: ConcurrencyLimiter) -> AbstractContextManager[None]:
    return limiter.slot(RequestContext(INTERACTIVE, EVER))


def assert_delayed(taken: Future[list[Chunk]]) -> None:
    with pytest.raises(TimeoutError):
        taken.result(A_WHILE)


@pytest.mark.usefixtures("no_limits")
def test_what_is_being_prepared_joins_until_the_call_is_full(
    limiter: ConcurrencyLimiter, queue: BatchQueue, take: Take
) -> None:
    chunks = [chunk(max_rows=3) for _ in range(4)]
    with at_work(limiter):
        put(queue, chunks[0])
        taken = take()
        assert_delayed(taken)
        put(queue, chunks[1])
        assert_delayed(taken)
        put(queue, chunks[2])
        assert taken.result(SOON) == chunks[:3]


@pytest.mark.usefixtures("no_limits")
def test_nothing_is_delayed_once_nobody_is_at_work(
    limiter: ConcurrencyLimiter, queue: BatchQueue, take: Take
) -> None:
    first, second = chunk(), chunk()
    put(queue, first)
    assert take().result(SOON) == [first]
    with at_work(limiter):
        put(queue, second)
        taken = take()
        assert_delayed(taken)
    assert taken.result(SOON) == [second]


@pytest.mark.usefixtures("no_limits")
def test_what_cannot_be_shared_is_not_delayed(
    limiter: ConcurrencyLimiter, queue: BatchQueue, take: Take
) -> None:
    lone = chunk(mergeable=False)
    with at_work(limiter):
        put(queue, lone)
        assert take().result(SOON) == [lone]


@pytest.mark.usefixtures("no_limits")
def test_a_job_does_not_wait_for_a_call_that_is_delayed(
    limiter: ConcurrencyLimiter, queue: BatchQueue, take: Take
) -> None:
    first, job = chunk(), chunk(JOB, mergeable=False)
    with at_work(limiter):
        put(queue, first)
        taken = take()
        assert_delayed(taken)
        put(queue, job)
        assert taken.result(SOON) == [first]
        assert take().result(SOON) == [job]


@pytest.mark.usefixtures("no_limits")
def test_a_request_at_work_goes_before_a_job_that_waits_already(
    limiter: ConcurrencyLimiter, queue: BatchQueue, take: Take, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("acpc_server.scheduling.queue.MAX_JOB_WAIT", EVER)
    job, first = chunk(JOB, mergeable=False), chunk()
    with at_work(limiter):
        put(queue, job)
        taken = take()
        assert_delayed(taken)
        put(queue, first)
    assert taken.result(SOON) == [first]
    assert take().result(SOON) == [job]


@pytest.mark.usefixtures("no_limits")
def test_closing_ends_the_delay(limiter: ConcurrencyLimiter, queue: BatchQueue, take: Take) -> None:
    first = chunk()
    with at_work(limiter):
        put(queue, first)
        taken = take()
        assert_delayed(taken)
        queue.close()
        assert taken.result(SOON) == [first]


@pytest.mark.parametrize(
    ("priority", "limit", "other"),
    [
        (JOB, "MAX_ARRIVAL_GAP", "MAX_JOB_WAIT"),
        (JOB, "MAX_JOB_WAIT", "MAX_ARRIVAL_GAP"),
        (INTERACTIVE, "MAX_ARRIVAL_GAP", "MAX_QUEUE_DELAY"),
        (INTERACTIVE, "MAX_QUEUE_DELAY", "MAX_ARRIVAL_GAP"),
    ],
)
def test_nothing_is_delayed_for_long(
    limiter: ConcurrencyLimiter,
    queue: BatchQueue,
    take: Take,
    monkeypatch: pytest.MonkeyPatch,
    priority: Priority,
    limit: str,
    other: str,
) -> None:
    """Each limit alone is enough."""
    monkeypatch.setattr(f"acpc_server.scheduling.queue.{other}", EVER)
    waiting = chunk(priority, mergeable=priority is INTERACTIVE)
    with at_work(limiter):
        put(queue, waiting)
        assert take().result(SOON) == [waiting], limit


@pytest.mark.usefixtures("no_limits")
def test_a_request_that_is_under_way_and_not_in_line_is_waited_for(
    admission: AdmissionController, queue: BatchQueue, take: Take
) -> None:
    first, second = chunk(), chunk()
    requests = [admission.request("ComparePair", one.context) for one in (first, second)]
    with requests[0], requests[1]:
        put(queue, first)
        taken = take()
        assert_delayed(taken)
        put(queue, second)
        assert taken.result(SOON) == [first, second], "nobody else is under way"


@pytest.mark.parametrize("hurried", [0, 1])
def test_nobody_joins_a_call_that_this_could_make_late(
    admission: AdmissionController, queue: BatchQueue, take: Take, hurried: int
) -> None:
    chunks = [chunk(seconds=3 * EVER if index == hurried else None) for index in range(3)]
    for one in chunks:
        queue.put(one)
    for _ in range(200):
        admission.latency.learn(Work("kind", 1), EVER)
    calls = [[chunks[0]], chunks[1:]] if hurried == 0 else [[chunks[0], chunks[2]], [chunks[1]]]
    assert [take().result(SOON) for _ in calls] == calls


@pytest.fixture
def beside(queue: BatchQueue, take: Take, monkeypatch: pytest.MonkeyPatch) -> BatchQueue:
    """A queue whose device computes for a job that has not waited long."""
    monkeypatch.setattr("acpc_server.scheduling.queue.MAX_JOB_WAIT", EVER)
    put(queue, chunk(JOB, mergeable=False))
    take().result(SOON)
    return queue


def test_what_waits_goes_in_the_middle_of_a_jobs_call_and_shares_its_own(
    beside: BatchQueue,
) -> None:
    assert beside.take_between() == []
    put(beside, chunk(JOB, mergeable=False))
    assert beside.take_between() == []
    requests = [chunk(max_rows=2) for _ in range(3)]
    put(beside, *requests)
    assert [beside.take_between() for _ in range(3)] == [requests[:2], requests[2:], []]


def test_nothing_goes_between_where_a_job_has_waited_long(
    beside: BatchQueue, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(beside, chunk())
    monkeypatch.setattr("acpc_server.scheduling.queue.MAX_JOB_WAIT", 0.0)
    assert beside.take_between() == []


@pytest.mark.usefixtures("no_limits")
def test_a_job_computes_while_others_may_come_to_share_a_call(
    limiter: ConcurrencyLimiter, beside: BatchQueue
) -> None:
    first, lone = chunk(), chunk(mergeable=False)
    with at_work(limiter):
        put(beside, first)
        assert beside.take_between() == []
    assert beside.take_between() == [first]
    with at_work(limiter):
        put(beside, lone)
        assert beside.take_between() == [lone]


def test_what_went_between_is_answered_when_the_device_fails(beside: BatchQueue) -> None:
    one = chunk()
    put(beside, one)
    assert beside.take_between() == [one]
    beside.fail("broken")
    assert isinstance(one.future.exception(SOON), DeviceFailed)
