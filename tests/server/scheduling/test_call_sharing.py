"""Callers take turns, and alike requests share a call, which waits for those under way alone."""

import asyncio
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack

import pytest
from acpc_server.errors import DeviceFailed
from acpc_server.observe import Metrics
from acpc_server.scheduling import (
    Admission,
    CallKind,
    DeviceQueue,
    Priority,
    RequestContext,
    ServingOptions,
    Turns,
    Work,
    settle,
)

INTERACTIVE, JOB = Priority.INTERACTIVE, Priority.JOB
# Longer than any test waits, a fifth of it too, and long enough to see that something is delayed.
EVER, SOON, A_WHILE = 300.0, 10.0, 0.05


class Line:
    """A queue, what takes from it in a thread of its own, and requests under way."""

    def __init__(self, pool: ThreadPoolExecutor) -> None:
        self.admission = Admission()
        self.queue = DeviceQueue(Metrics(), self.admission)
        self.under_way = ExitStack()
        self._pool = pool

    def put(self, *given: Work[None]) -> None:
        for work in given:
            self.queue.put(work, work.context)

    def take(self) -> Future[list[Work[None]]]:
        return self._pool.submit(self.queue.take)

    def delayed(
        self, work: Work[None], taken: Future[list[Work[None]]] | None = None
    ) -> Future[list[Work[None]]]:
        """Put work in line; what takes it, or was about to take other work, which is delayed."""
        self.put(work)
        taken = taken or self.take()
        with pytest.raises(TimeoutError):
            taken.result(A_WHILE)
        return taken

    def begin(self, count: int) -> None:
        for _ in range(count):
            request = self.admission.request("ComparePair", RequestContext(INTERACTIVE))
            self.under_way.enter_context(request)


@pytest.fixture
def line() -> Iterator[Line]:
    with ThreadPoolExecutor(1) as pool:
        made = Line(pool)
        yield made
        made.under_way.close()
        made.queue.close()


def chunk(
    priority: Priority = INTERACTIVE,
    *,
    caller: str = "",
    kind: str = "kind",
    mergeable: bool = True,
    max_rows: int = 8,
    delay: float = EVER,
) -> Work[None]:
    """Work of one row; nothing but an event ends its delay, which is longer than options take."""
    serving = ServingOptions.model_construct(batch_delay_seconds=delay)
    device_call = CallKind("pair", kind, max_rows=max_rows, merges=mergeable, serving=serving)
    work: Work[None] = Work(device_call, None, lambda _, __: [], 1)
    work.context = RequestContext(priority, caller=caller)
    return work


@pytest.mark.parametrize("callers", ["aaaaa", "abcde"])
def test_chunks_of_one_caller_or_of_many_share_a_call(line: Line, callers: str) -> None:
    chunks = [chunk(caller=caller) for caller in callers]
    line.put(*chunks, other := chunk(kind="other"))
    assert line.take().result(SOON) == chunks
    assert line.take().result(SOON) == [other]


def test_what_is_under_way_joins_until_the_call_is_full(line: Line) -> None:
    chunks = [chunk(max_rows=3) for _ in range(4)]
    line.begin(8)
    taken = line.delayed(chunks[0])
    line.delayed(chunks[1], taken)
    line.put(chunks[2])
    assert taken.result(SOON) == chunks[:3]


def test_nothing_is_delayed_for_its_own_request_or_where_it_cannot_be_shared(line: Line) -> None:
    line.begin(1)
    line.put(own := chunk())
    assert line.take().result(SOON) == [own]
    line.begin(7)
    line.put(lone := chunk(mergeable=False))
    assert line.take().result(SOON) == [lone]


ENDS: dict[str, Callable[[Line], object]] = {
    "nobody else is under way": lambda line: line.under_way.close(),
    "a job waits": lambda line: line.put(chunk(JOB, mergeable=False)),
    "the queue closes": lambda line: line.queue.close(),
}


@pytest.mark.parametrize("case", ENDS)
def test_a_call_is_delayed_until(line: Line, case: str) -> None:
    line.begin(8)
    taken = line.delayed(waiting := chunk())
    ENDS[case](line)
    assert taken.result(SOON) == [waiting]


def test_a_call_that_nobody_joins_is_delayed_for_a_fifth_of_the_time(line: Line) -> None:
    line.begin(8)
    line.put(waiting := chunk(delay=10.0))
    assert line.take().result(9.0) == [waiting]


def test_a_call_is_delayed_for_no_longer_however_many_join(line: Line) -> None:
    line.begin(150)
    line.put(chunk(delay=0.25, max_rows=200))
    taken, ends = line.take(), time.monotonic() + SOON
    while not taken.done() and time.monotonic() < ends:
        line.put(chunk(delay=0.25, max_rows=200))
        time.sleep(0.02)
    assert taken.done()


def test_a_checkpoint_whose_calls_are_not_to_be_held_back(line: Line) -> None:
    line.begin(8)
    line.put(own := chunk(delay=0.0))
    assert line.take().result(SOON) == [own]


@pytest.mark.parametrize("delay", [0.0, 0.05])
def test_what_waits_behind_a_delayed_call_is_not_held_back_for_longer_than_its_own(
    line: Line, delay: float
) -> None:
    line.begin(8)
    taken = line.delayed(first := chunk())
    line.put(other := chunk(kind="other", mergeable=False, delay=delay))
    assert taken.result(SOON) == [first]
    assert line.take().result(SOON) == [other]


def test_jobs_of_several_callers_take_turns_and_share_nothing(line: Line) -> None:
    chunks = [chunk(JOB, caller=caller, mergeable=False) for caller in "aaab"]
    line.put(*chunks)
    order = [line.take().result(SOON) for _ in chunks]
    assert order == [[chunks[0]], [chunks[3]], [chunks[1]], [chunks[2]]]


def test_answers_of_an_event_loop_arrive_there_and_late_ones_harm_nobody(line: Line) -> None:
    async def asked() -> None:
        loop = asyncio.get_running_loop()
        first, second, left = (chunk() for _ in range(3))
        futures = [line.queue.put(x, x.context, loop) for x in (first, second, left)]
        futures[2].cancel()
        await loop.run_in_executor(
            None, settle, [(first, 1), (second, DeviceFailed("no")), (left, 3), (first, 4)]
        )
        assert await futures[0] == 1
        with pytest.raises(DeviceFailed):
            await futures[1]

    asyncio.run(asked())


def in_line(*given: str) -> Turns[str]:
    turns = Turns[str]()
    for item in given:
        turns.add(item[0], item)
    return turns


def taken(turns: Turns[str]) -> list[str]:
    return [turns.take() for _ in range(len(turns))]


def test_newcomers_go_before_who_had_a_turn_just_now_and_leave_nobody_behind() -> None:
    turns, order = in_line("a1", "a2", "a3"), list[str]()
    for name in "bcdefg":
        order.append(turns.take())
        turns.add(name, name)
    assert order == ["a1", "b", "a2", "c", "d", "a3"]


def test_items_leave_the_line_out_of_turn() -> None:
    turns = in_line("a1", "a2", "b1")
    turns.remove("a", "a1")
    with pytest.raises(ValueError, match="not in"):
        turns.remove("a", "a1")
    assert turns.take("b") == "b1"
    assert turns.next_caller(lambda caller: caller != "a") is None
    assert taken(turns) == ["a2"]
