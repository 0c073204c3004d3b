"""A call that others may share waits for those being prepared, and only for them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor

import pytest
import torch
from acpc_server.observe import Metrics
from acpc_server.scheduling import ConcurrencyLimiter, Priority, RequestContext
from acpc_server.scheduling.queue import BatchQueue, Chunk

INTERACTIVE, JOB = Priority.INTERACTIVE, Priority.JOB
# Longer than any test waits, and long enough to see that something is held.
EVER, SOON, A_WHILE = 60.0, 10.0, 0.05
Take = Callable[[], Future[list[Chunk]]]


@pytest.fixture
def limiter() -> ConcurrencyLimiter:
    return ConcurrencyLimiter(1)


@pytest.fixture
def queue(limiter: ConcurrencyLimiter) -> BatchQueue:
    return BatchQueue(Metrics(), 16, limiter)


@pytest.fixture
def take(queue: BatchQueue) -> Iterator[Take]:
    with ThreadPoolExecutor(1) as pool:
        yield lambda: pool.submit(queue.take)
        queue.close()


@pytest.fixture
def patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing but an event ends the holding."""
    monkeypatch.setattr("acpc_server.scheduling.queue.ARRIVAL_GAP", EVER)
    monkeypatch.setattr("acpc_server.scheduling.queue.MOST_HELD", EVER)


def chunk(priority: Priority = INTERACTIVE, *, mergeable: bool = True, capacity: int = 8) -> Chunk:
    inputs = (torch.zeros(1),)
    return Chunk("encode", "kind", inputs, torch.neg, RequestContext(priority), mergeable, capacity)


def put(queue: BatchQueue, *chunks: Chunk) -> None:
    for one in chunks:
        queue.put(one, lambda _chunk, _before: None)


def assert_held(taken: Future[list[Chunk]]) -> None:
    with pytest.raises(TimeoutError):
        taken.result(A_WHILE)


@pytest.mark.usefixtures("patience")
def test_what_is_being_prepared_joins_until_the_call_is_full(
    limiter: ConcurrencyLimiter, queue: BatchQueue, take: Take
) -> None:
    chunks = [chunk(capacity=3) for _ in range(4)]
    with limiter.slot(RequestContext(INTERACTIVE, EVER)):
        put(queue, chunks[0])
        taken = take()
        assert_held(taken)
        put(queue, chunks[1])
        assert_held(taken)
        put(queue, chunks[2])
        assert taken.result(SOON) == chunks[:3]


@pytest.mark.usefixtures("patience")
def test_nothing_is_held_once_nobody_is_at_work(
    limiter: ConcurrencyLimiter, queue: BatchQueue, take: Take
) -> None:
    first, second = chunk(), chunk()
    put(queue, first)
    assert take().result(SOON) == [first]
    with limiter.slot(RequestContext(INTERACTIVE, EVER)):
        put(queue, second)
        taken = take()
        assert_held(taken)
    assert taken.result(SOON) == [second]


@pytest.mark.usefixtures("patience")
def test_what_cannot_be_shared_is_not_held(
    limiter: ConcurrencyLimiter, queue: BatchQueue, take: Take
) -> None:
    lone = chunk(mergeable=False)
    with limiter.slot(RequestContext(INTERACTIVE, EVER)):
        put(queue, lone)
        assert take().result(SOON) == [lone]


@pytest.mark.usefixtures("patience")
def test_a_job_does_not_wait_for_a_call_that_is_held(
    limiter: ConcurrencyLimiter, queue: BatchQueue, take: Take
) -> None:
    first, job = chunk(), chunk(JOB, mergeable=False)
    with limiter.slot(RequestContext(INTERACTIVE, EVER)):
        put(queue, first)
        taken = take()
        assert_held(taken)
        put(queue, job)
        assert taken.result(SOON) == [first]
        assert take().result(SOON) == [job]


@pytest.mark.usefixtures("patience")
def test_a_request_at_work_goes_before_a_job_that_waits_already(
    limiter: ConcurrencyLimiter, queue: BatchQueue, take: Take, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("acpc_server.scheduling.queue.JOB_PATIENCE", EVER)
    job, first = chunk(JOB, mergeable=False), chunk()
    with limiter.slot(RequestContext(INTERACTIVE, EVER)):
        put(queue, job)
        taken = take()
        assert_held(taken)
        put(queue, first)
    assert taken.result(SOON) == [first]
    assert take().result(SOON) == [job]


@pytest.mark.parametrize("limit", ["ARRIVAL_GAP", "JOB_PATIENCE"])
def test_a_job_is_not_held_for_long(
    limiter: ConcurrencyLimiter,
    queue: BatchQueue,
    take: Take,
    monkeypatch: pytest.MonkeyPatch,
    limit: str,
) -> None:
    """Each limit alone is enough."""
    for name in {"ARRIVAL_GAP", "JOB_PATIENCE"} - {limit}:
        monkeypatch.setattr(f"acpc_server.scheduling.queue.{name}", EVER)
    job = chunk(JOB, mergeable=False)
    with limiter.slot(RequestContext(INTERACTIVE, EVER)):
        put(queue, job)
        assert take().result(SOON) == [job]


@pytest.mark.usefixtures("patience")
def test_closing_ends_the_holding(
    limiter: ConcurrencyLimiter, queue: BatchQueue, take: Take
) -> None:
    first = chunk()
    with limiter.slot(RequestContext(INTERACTIVE, EVER)):
        put(queue, first)
        taken = take()
        assert_held(taken)
        queue.close()
        assert taken.result(SOON) == [first]


@pytest.mark.parametrize("limit", ["ARRIVAL_GAP", "MOST_HELD"])
def test_work_that_takes_long_holds_nobody_up(
    limiter: ConcurrencyLimiter,
    queue: BatchQueue,
    take: Take,
    monkeypatch: pytest.MonkeyPatch,
    limit: str,
) -> None:
    """Each limit alone is enough."""
    for name in {"ARRIVAL_GAP", "MOST_HELD"} - {limit}:
        monkeypatch.setattr(f"acpc_server.scheduling.queue.{name}", EVER)
    first = chunk()
    with limiter.slot(RequestContext(INTERACTIVE, EVER)):
        put(queue, first)
        assert take().result(SOON) == [first]
