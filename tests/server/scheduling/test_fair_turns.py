"""Callers take turns on the device, however many one of them has in line."""

from collections.abc import Iterator
from contextlib import ExitStack
from threading import Thread

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
from clocks import Clock
from waiting import GENEROUS_SECONDS

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


def test_a_caller_over_its_share_makes_no_call_longer(caller_queue: CallerQueue) -> None:
    """Its chunks are taken one by one."""
    caller_queue.learn(1.0)
    many = [caller_queue.put("many") for _ in range(4)]
    few = caller_queue.put("few")
    assert caller_queue.queue.take() == [many[0], few]
    assert [caller_queue.queue.take() for _ in many[1:]] == [[one] for one in many[1:]]


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


def test_a_caller_over_its_share_yields_to_one_that_comes_back_at_once(
    caller_queue: CallerQueue, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing of the other is under way, but its last request came right after the one before."""
    monkeypatch.setattr("acpc_server.scheduling.queue.YIELD_FACTOR", 1e9)
    monkeypatch.setattr("acpc_server.scheduling.queue.MAX_YIELDING_CALL", 0.0)
    monkeypatch.setattr("acpc_server.scheduling.admission.RETURN_SECONDS", 1e9)
    caller_queue.learn(1.0)
    many = [caller_queue.put("many") for _ in range(4)]
    context = RequestContext(Priority.INTERACTIVE, caller="few")

    def visit() -> None:
        with caller_queue.admission.request("ComparePair", context):
            pass

    clock = Clock()
    monkeypatch.setattr("acpc_server.scheduling.admission.time.monotonic", clock)
    visit()
    clock.now += 0.004
    visit()
    clock.now += 0.007
    assert caller_queue.admission.expects_one()
    clock.now += 0.005
    assert not caller_queue.admission.expects_one(), "twice its pause has passed"
    visit()
    assert not caller_queue.admission.expects_one(), "its pause was long"
    clock.now += 0.004
    visit()
    assert caller_queue.queue.take() == many[:1], "it has not had a call yet"
    waits = Thread(target=lambda: later.append(caller_queue.queue.take()), daemon=True)
    later = list[list[Chunk]]()
    waits.start()
    waits.join(0.05)
    assert not later
    clock.now += 0.1
    waits.join(GENEROUS_SECONDS)
    assert later == [many[1:2]], "it has stayed away"


def test_a_caller_over_its_share_yields_to_a_request_at_work(
    caller_queue: CallerQueue, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between two calls of another's request its chunk does not begin."""
    monkeypatch.setattr("acpc_server.scheduling.queue.YIELD_FACTOR", 1e9)
    monkeypatch.setattr("acpc_server.scheduling.queue.MAX_YIELDING_CALL", 0.0)
    caller_queue.learn(1.0)
    many = [caller_queue.put("many") for _ in range(4)]
    with caller_queue.admission.request(
        "ComparePair", RequestContext(Priority.INTERACTIVE, caller="few")
    ):
        assert caller_queue.queue.take() == many[:1], "it has not had a call yet"
        later = caller_queue.put("few")
        assert caller_queue.queue.take() == [later], "though it came last"
