"""Callers take turns on the device, however many one of them has in line."""

from collections.abc import Iterator
from contextlib import ExitStack

import pytest
from acpc_server.observe import Metrics
from acpc_server.scheduling import (
    AdmissionController,
    BatchQueue,
    Chunk,
    ConcurrencyLimiter,
    Priority,
    RequestContext,
    Turns,
    Work,
)

JOB = Priority.JOB


def line(*given: str) -> Turns[str]:
    turns = Turns[str]()
    for item in given:
        turns.add(item[0], item)
    return turns


def taken(turns: Turns[str]) -> list[str]:
    return [turns.take() for _ in range(len(turns))]


def test_one_turn_a_round_and_in_order_within_a_caller() -> None:
    turns = line("a1", "a2", "a3", "b1", "c1", "b2")
    expected = ["a1", "b1", "c1", "a2", "b2", "a3"]
    assert list(turns) == expected
    assert taken(turns) == expected


def test_a_newcomer_comes_before_whoever_had_a_turn_just_now() -> None:
    turns = line("a1", "a2", "a3")
    assert turns.take() == "a1"
    turns.add("b", "b1")
    assert turns.ahead_of("c") == ["b1", "a2"]
    assert turns.ahead_of("a") == ["b1", "a2", "a3"]
    assert taken(turns) == ["b1", "a2", "a3"]


def test_newcomers_without_end_leave_nobody_behind() -> None:
    turns, order = line("a1", "a2", "a3"), list[str]()
    for name in "bcdefg":
        order.append(turns.take())
        turns.add(name, name)
    assert order == ["a1", "b", "a2", "c", "d", "a3"]


def test_items_leave_the_line_out_of_turn() -> None:
    turns = line("a1", "a2", "b1")
    turns.remove("a", "a1")
    with pytest.raises(ValueError, match="not in"):
        turns.remove("a", "a1")
    assert turns.take("b") == "b1"
    assert turns.next_caller(lambda caller: caller != "a") is None
    assert taken(turns) == ["a2"]


class CallerQueue:
    """A queue, and the requests that callers have under way."""

    def __init__(self) -> None:
        self.admission = AdmissionController(max_requests=64)
        self.queue = BatchQueue(Metrics(), self.admission, ConcurrencyLimiter(1))
        self._entered = ExitStack()

    def put(self, caller: str, *, priority: Priority = Priority.INTERACTIVE) -> Chunk:
        context = RequestContext(priority, caller=caller)
        merges = priority is Priority.INTERACTIVE
        chunk = Chunk("encode", "kind", None, 1, list, context, merges, 8)
        if merges:
            self._entered.enter_context(self.admission.request("ComparePair", context))
        self.queue.put(chunk)
        return chunk

    def learn(self, seconds: float) -> None:
        """A call takes so long with one row; nobody joins long ones."""
        for _ in range(200):
            self.admission.latency.learn(Work("kind", 1), seconds)

    def close(self) -> None:
        self.queue.close()
        self._entered.close()


@pytest.fixture
def caller_queue() -> Iterator[CallerQueue]:
    made = CallerQueue()
    yield made
    made.close()


@pytest.mark.parametrize("callers", ["aaaaa", "abcde"])
def test_chunks_of_one_caller_or_of_many_share_a_call(
    caller_queue: CallerQueue, callers: str
) -> None:
    chunks = [caller_queue.put(caller) for caller in callers]
    assert caller_queue.queue.take() == chunks


def test_short_calls_are_shared_by_all(caller_queue: CallerQueue) -> None:
    caller_queue.learn(1e-6)
    for _ in range(4):
        caller_queue.put("many")
    caller_queue.put("few")
    assert len(caller_queue.queue.take()) == 5


def test_jobs_of_several_callers_take_turns(caller_queue: CallerQueue) -> None:
    chunks = [caller_queue.put(caller, priority=JOB) for caller in "aaab"]
    order = [caller_queue.queue.take()[0] for _ in chunks]
    assert order == [chunks[0], chunks[3], chunks[1], chunks[2]]
