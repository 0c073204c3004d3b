"""Who goes first on the device, who is rejected or stops waiting, and where the time went."""

import asyncio
import threading
import time
import weakref
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import pytest
import torch
from acpc.contract import NumericMode
from acpc_server.engine import DeviceClient
from acpc_server.engine.sizes import frames_per_call
from acpc_server.errors import Cancelled, DeadlineExceeded, ResourceExhausted, Unavailable
from acpc_server.observe import Metrics
from acpc_server.scheduling import CallKind, Priority, RequestContext, Work, queue
from plain_model import CARD, Held, PlainModel, frames
from shared_call import in_line
from torch import Tensor
from waiting import GENEROUS_SECONDS, wait_until

CPU = torch.device("cpu")
FP32 = NumericMode.FP32


class HeldDevice:
    """An engine, a model that can be held, and callers in threads of their own."""

    def __init__(self) -> None:
        self.engine = DeviceClient(CPU, Metrics())
        self.held = Held()
        self.model = PlainModel(self.held)
        self._pool = ThreadPoolExecutor(32)

    def encode(self, mark: float, context: RequestContext, count: int = 1) -> Tensor:
        return self.engine.encode(self.model, frames(mark, count), context, FP32)

    def ask(self, mark: float, context: RequestContext) -> Future[Tensor]:
        """Encode a frame that carries ``mark``; returns once it waits, runs or is answered."""
        before = self.depth()
        answer = self._pool.submit(self.encode, mark, context)
        wait_until(lambda: answer.done() or self.depth() > before or mark in self.held.order)
        return answer

    def busy(self) -> Future[Tensor]:
        """A job's call, of mark 0, that the device is held in."""
        answer = self.ask(0.0, job())
        assert self.held.entered.wait(GENEROUS_SECONDS)
        return answer

    def go_on(self, *held: Future[Tensor]) -> list[float]:
        """Let the device compute all that waits, and a last call; returns what was computed."""
        assert not any(one.done() for one in held), "the device was busy all the time"
        self.held.free.set()
        for one in held:
            one.result(GENEROUS_SECONDS)
        self.encode(9.0, job())
        return self.held.order

    def depth(self) -> float:
        return in_line(self.engine, "interactive", "job")

    def close(self) -> None:
        self.held.free.set()
        self.engine.close()
        self._pool.shutdown()


@pytest.fixture
def device(monkeypatch: pytest.MonkeyPatch) -> Iterator[HeldDevice]:
    monkeypatch.setattr(queue, "MAX_JOB_WAIT", 60.0)  # however slow the machine that tests
    made = HeldDevice()
    yield made
    made.close()


def job() -> RequestContext:
    return RequestContext(Priority.JOB)


def interactive(seconds: float | None = None) -> RequestContext:
    return RequestContext(Priority.INTERACTIVE, seconds)


def test_interactive_chunks_overtake_job_chunks_and_each_kind_keeps_its_order(
    device: HeldDevice,
) -> None:
    answers = [device.busy()]
    answers += [device.ask(mark, job()) for mark in (1.0, 2.0)]
    answers += [device.ask(mark, interactive()) for mark in (3.0, 4.0)]
    assert device.depth() == 4
    assert device.go_on(*answers) == [0.0, 3.0, 4.0, 1.0, 2.0, 9.0]
    for mark, answer in enumerate(answers):
        assert answer.result().tolist() == [[float(mark)] * 3]
    assert device.depth() == 0


def test_a_job_chunk_that_has_waited_long_enough_goes_next(
    device: HeldDevice, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers = [device.busy(), device.ask(1.0, job()), device.ask(2.0, interactive())]
    monkeypatch.setattr(queue, "MAX_JOB_WAIT", 0.0)
    assert device.go_on(*answers)[:3] == [0.0, 1.0, 2.0]


def test_a_long_job_lets_others_in_between_its_own_and_stops_after_the_chunk_it_is_in(
    device: HeldDevice,
) -> None:
    size = frames_per_call("cpu", Priority.JOB, CARD, 8, 8)
    many = torch.cat([frames(1.0, size), frames(2.0, size), frames(3.0, size)])
    context = job()

    def cancelled(rows: Tensor) -> None:
        device.held(rows)
        if rows[0, 0, 0, 0] == 2.0:
            context.cancel()

    model = PlainModel(cancelled)
    with ThreadPoolExecutor(2) as pool:
        long = pool.submit(device.engine.encode, device.model, many, job(), FP32)
        assert device.held.entered.wait(GENEROUS_SECONDS)
        quick = device.ask(9.0, interactive())
        device.held.free.set()
        assert quick.result(GENEROUS_SECONDS) is not None
        assert long.result(GENEROUS_SECONDS).shape == (3 * size, 3)
        assert device.held.order == [1.0, 9.0, 2.0, 3.0]
        stopped = pool.submit(device.engine.encode, model, many, context, FP32)
        with pytest.raises(Cancelled):
            stopped.result(GENEROUS_SECONDS)
    assert device.held.order == [1.0, 9.0, 2.0, 3.0, 1.0, 2.0]


# The context of one that waits, and whether its caller gives it up; else its deadline passes.
ENDS: dict[str, tuple[Callable[[], RequestContext], bool]] = {
    "a deadline": (lambda: interactive(0.05), False),
    "a caller that leaves": (interactive, True),
    "a job that is cancelled": (job, True),
}


@pytest.mark.parametrize("case", ENDS)
def test_a_wait_ends_at_once_and_its_work_never_runs(device: HeldDevice, case: str) -> None:
    make, cancels = ENDS[case]
    first, context = device.busy(), make()
    waiting = device.ask(1.0, context)
    if cancels:
        context.cancel()
    error = Cancelled if cancels else DeadlineExceeded
    with pytest.raises(error):
        waiting.result(GENEROUS_SECONDS)
    assert device.go_on(first) == [0.0, 9.0]
    with pytest.raises(error):
        device.encode(3.0, context)


def test_what_was_admitted_before_the_end_is_answered_and_nothing_after(
    device: HeldDevice, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("acpc_server.engine.owner.CLOSE_SECONDS", 0.05)  # its thread is held
    first = device.busy()
    second = device.ask(1.0, job())
    device.engine.close()
    with pytest.raises(Unavailable) as rejected:
        device.encode(2.0, interactive())
    assert rejected.value.retry_after is not None
    device.held.free.set()
    assert first.result(GENEROUS_SECONDS) is not None
    assert second.result(GENEROUS_SECONDS) is not None


def test_no_caller_is_left_behind_when_the_engine_closes_under_load() -> None:
    for _ in range(10):
        device, start = HeldDevice(), threading.Barrier(9)
        device.held.free.set()

        def call(device: HeldDevice = device, start: threading.Barrier = start) -> bool:
            start.wait()
            try:
                return device.encode(0.0, job()) is not None
            except Unavailable:
                return False

        with ThreadPoolExecutor(8) as pool:
            ends = [pool.submit(call) for _ in range(8)]
            start.wait()
            device.engine.close()
            for end in ends:
                end.result(GENEROUS_SECONDS)
        device.close()


def work(device: HeldDevice, mark: float, **changed: int) -> Work[list[float]]:
    """Encodes a frame that carries ``mark`` by one device call, unless it is larger."""

    def compute(payloads: Sequence[float], context: RequestContext) -> Sequence[torch.Tensor]:
        return [device.encode(x, context) for x in payloads]

    sizes: dict[str, Any] = {"rows": 1, "drawing": 0.0, **changed}
    kind = CallKind("pair", max_rows=8)
    return Work(kind, mark, compute, finish=lambda found: found[0].tolist(), **sizes)


@pytest.mark.parametrize("changed", [{}, {"rows": 9}])
def test_a_request_is_one_call_for_who_waits_in_a_thread_or_on_a_loop(
    device: HeldDevice, changed: dict[str, int]
) -> None:
    device.held.free.set()
    asked = work(device, 2.0, **changed)
    assert device.engine.is_large(asked) == bool(changed)
    assert device.engine.run(asked, interactive()) == [2.0] * 3
    if not changed:
        answer = asyncio.run(device.engine.ask(asked, interactive()))
        assert asked.finish(answer) == [2.0] * 3


@pytest.mark.parametrize("waits", [True, False])
def test_who_waits_for_others_is_rejected_before_its_deadline(
    device: HeldDevice, waits: bool
) -> None:
    first, late = device.busy(), interactive(0.3)
    late.waits = waits
    with pytest.raises(ResourceExhausted if waits else DeadlineExceeded) as told:
        asyncio.run(device.engine.ask(work(device, 1.0), late))
    assert told.value.reason == ("DEADLINE_CANNOT_BE_MET" if waits else "DEADLINE_EXCEEDED")
    assert device.go_on(first) == [0.0, 9.0]


def test_an_idle_device_holds_no_model() -> None:
    engine = DeviceClient(CPU, Metrics())
    model = PlainModel()
    engine.encode(model, frames(1.0), job(), FP32)
    gone = weakref.ref(model)
    del model
    wait_until(lambda: gone() is None)
    engine.close()


def spent(context: RequestContext) -> float:
    return sum(context.phases.values()) + context.other_seconds


def test_in_one_thread_no_second_counts_twice_and_none_is_missing() -> None:
    context = RequestContext(Priority.JOB)
    for _ in range(3):
        time.sleep(0.002)
        with context.phase("intervals"):
            time.sleep(0.002)
            with context.phase("rollout"):
                time.sleep(0.002)
            context.queued(0.001, "rollout")
    assert context.phases.keys() == {"intervals", "rollout", "queue"}
    assert context.queue_seconds == context.phases["queue"] == pytest.approx(0.003)
    assert min(*context.phases.values(), context.other_seconds) > 0
    before, found, after = context.total_seconds, spent(context), context.total_seconds
    assert before - 1e-6 <= found <= after + 1e-6


def test_what_overlaps_counts_in_each_phase_and_nothing_as_other() -> None:
    context = RequestContext(Priority.JOB)

    def read() -> None:
        with context.phase("read"):
            time.sleep(0.01)

    with ThreadPoolExecutor(1) as thread, context.phase("encode"):
        thread.submit(read).result()
    assert context.phases["read"] <= context.phases["encode"]
    assert context.other_seconds <= context.total_seconds - context.phases["encode"]
