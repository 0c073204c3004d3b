"""A call that others may join is delayed for those being prepared, and only for them."""

from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager

import pytest
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


class Line:
    """A queue, and what takes from it in a thread of its own."""

    def __init__(self, pool: ThreadPoolExecutor) -> None:
        self.limiter, self.admission = ConcurrencyLimiter(1), AdmissionController()
        self.queue = BatchQueue(Metrics(), self.admission, self.limiter)
        self._pool = pool

    def put(self, *chunks: Chunk) -> None:
        for one in chunks:
            self.queue.put(one)

    def take(self) -> Future[list[Chunk]]:
        return self._pool.submit(self.queue.take)

    def at_work(self) -> AbstractContextManager[None]:
        return self.limiter.slot(RequestContext(INTERACTIVE, EVER))


@pytest.fixture
def line() -> Iterator[Line]:
    with ThreadPoolExecutor(1) as pool:
        made = Line(pool)
        yield made
        made.queue.close()


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


def assert_delayed(taken: Future[list[Chunk]]) -> None:
    with pytest.raises(TimeoutError):
        taken.result(A_WHILE)


@pytest.mark.usefixtures("no_limits")
def test_what_is_being_prepared_joins_until_the_call_is_full(line: Line) -> None:
    chunks = [chunk(max_rows=3) for _ in range(4)]
    with line.at_work():
        line.put(chunks[0])
        taken = line.take()
        assert_delayed(taken)
        line.put(chunks[1])
        assert_delayed(taken)
        line.put(chunks[2])
        assert taken.result(SOON) == chunks[:3]


@pytest.mark.usefixtures("no_limits")
def test_nothing_is_delayed_once_nobody_is_at_work(line: Line) -> None:
    first, second = chunk(), chunk()
    line.put(first)
    assert line.take().result(SOON) == [first]
    with line.at_work():
        line.put(second)
        taken = line.take()
        assert_delayed(taken)
    assert taken.result(SOON) == [second]


@pytest.mark.usefixtures("no_limits")
def test_what_cannot_be_shared_is_not_delayed(line: Line) -> None:
    lone = chunk(mergeable=False)
    with line.at_work():
        line.put(lone)
        assert line.take().result(SOON) == [lone]


@pytest.mark.usefixtures("no_limits")
def test_a_job_does_not_wait_for_a_call_that_is_delayed(line: Line) -> None:
    first, job = chunk(), chunk(JOB, mergeable=False)
    with line.at_work():
        line.put(first)
        taken = line.take()
        assert_delayed(taken)
        line.put(job)
        assert taken.result(SOON) == [first]
        assert line.take().result(SOON) == [job]


@pytest.mark.usefixtures("no_limits")
def test_a_request_at_work_goes_before_a_job_that_waits_already(
    line: Line, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("acpc_server.scheduling.queue.MAX_JOB_WAIT", EVER)
    job, first = chunk(JOB, mergeable=False), chunk()
    with line.at_work():
        line.put(job)
        taken = line.take()
        assert_delayed(taken)
        line.put(first)
    assert taken.result(SOON) == [first]
    assert line.take().result(SOON) == [job]


@pytest.mark.usefixtures("no_limits")
def test_closing_ends_the_delay(line: Line) -> None:
    first = chunk()
    with line.at_work():
        line.put(first)
        taken = line.take()
        assert_delayed(taken)
        line.queue.close()
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
    line: Line,
    monkeypatch: pytest.MonkeyPatch,
    priority: Priority,
    limit: str,
    other: str,
) -> None:
    """Each limit alone is enough."""
    monkeypatch.setattr(f"acpc_server.scheduling.queue.{other}", EVER)
    waiting = chunk(priority, mergeable=priority is INTERACTIVE)
    with line.at_work():
        line.put(waiting)
        assert line.take().result(SOON) == [waiting], limit


@pytest.mark.usefixtures("no_limits")
def test_a_request_that_is_under_way_and_not_in_line_is_waited_for(line: Line) -> None:
    first, second = chunk(), chunk()
    requests = [line.admission.request("ComparePair", one.context) for one in (first, second)]
    with requests[0], requests[1]:
        line.put(first)
        taken = line.take()
        assert_delayed(taken)
        line.put(second)
        assert taken.result(SOON) == [first, second], "nobody else is under way"


@pytest.mark.parametrize("hurried", [0, 1])
def test_nobody_joins_a_call_that_this_could_make_late(line: Line, hurried: int) -> None:
    chunks = [chunk(seconds=3 * EVER if index == hurried else None) for index in range(3)]
    for one in chunks:
        line.queue.put(one)
    for _ in range(200):
        line.admission.latency.learn(Work("kind", 1), EVER)
    calls = [[chunks[0]], chunks[1:]] if hurried == 0 else [[chunks[0], chunks[2]], [chunks[1]]]
    assert [line.take().result(SOON) for _ in calls] == calls
