"""Who goes first on the device, who is rejected, and who stops waiting."""

import asyncio
import threading
import weakref
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import pytest
import torch
from acpc.contract import NumericMode
from acpc_server.engine import DeviceClient
from acpc_server.engine.sizes import frames_per_call
from acpc_server.errors import Cancelled, DeadlineExceeded, ResourceExhausted, Unavailable
from acpc_server.observe import Metrics
from acpc_server.scheduling import Priority, RequestContext, Work, queue
from plain_model import CARD, Held, PlainModel, frames
from torch import Tensor
from waiting import GENEROUS_SECONDS, wait_until

CPU = torch.device("cpu")
FP32 = NumericMode.FP32


class HeldDevice:
    """An engine, a model that can be held, and callers in threads of their own."""

    def __init__(self) -> None:
        self.metrics = Metrics()
        self.engine = DeviceClient(CPU, self.metrics)
        self.held = Held()
        self.model = PlainModel(self.held)
        self._pool = ThreadPoolExecutor(32)

    def ask(self, mark: float, context: RequestContext) -> Future[Tensor]:
        """Encode a frame that carries ``mark``; returns once it waits, runs or is answered."""
        before = self.depth()
        answer = self._pool.submit(
            lambda: self.engine.encode(self.model, frames(mark), context, FP32)
        )
        wait_until(lambda: answer.done() or self.depth() > before or mark in self.held.order)
        return answer

    def depth(self) -> float:
        labels = ("interactive", "job")
        return sum(self.metrics.queue_depth.labels(name)._value.get() for name in labels)

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
    answers = [device.ask(0.0, job())]
    assert device.held.entered.wait(GENEROUS_SECONDS)
    answers += [device.ask(mark, job()) for mark in (1.0, 2.0)]
    answers += [device.ask(mark, interactive()) for mark in (3.0, 4.0)]
    assert device.depth() == 4
    device.held.free.set()
    for mark, answer in enumerate(answers):
        assert answer.result(GENEROUS_SECONDS).tolist() == [[float(mark)] * 3]
    assert device.held.order == [0.0, 3.0, 4.0, 1.0, 2.0]
    assert device.depth() == 0


def test_a_job_chunk_that_has_waited_long_enough_goes_next(
    device: HeldDevice, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers = [device.ask(0.0, job())]
    assert device.held.entered.wait(GENEROUS_SECONDS)
    answers += [device.ask(1.0, job()), device.ask(2.0, interactive())]
    monkeypatch.setattr(queue, "MAX_JOB_WAIT", 0.0)
    device.held.free.set()
    for answer in answers:
        answer.result(GENEROUS_SECONDS)
    assert device.held.order == [0.0, 1.0, 2.0]


def test_a_long_job_lets_an_interactive_chunk_in_between_its_own(device: HeldDevice) -> None:
    size = frames_per_call("cpu", Priority.JOB, CARD, 8, 8)
    many = torch.cat([frames(1.0, size), frames(2.0, size), frames(3.0, size)])
    with ThreadPoolExecutor(1) as pool:
        long = pool.submit(lambda: device.engine.encode(device.model, many, job(), FP32))
        assert device.held.entered.wait(GENEROUS_SECONDS)
        quick = device.ask(9.0, interactive())
        device.held.free.set()
        assert quick.result(GENEROUS_SECONDS) is not None
        assert long.result(GENEROUS_SECONDS).shape == (3 * size, 3)
    assert device.held.order == [1.0, 9.0, 2.0, 3.0]


def test_a_deadline_ends_the_wait_and_the_work_never_runs(device: HeldDevice) -> None:
    first = device.ask(0.0, job())
    assert device.held.entered.wait(GENEROUS_SECONDS)
    late = device.ask(1.0, interactive(0.05))
    with pytest.raises(DeadlineExceeded):
        late.result(GENEROUS_SECONDS)
    assert not first.done(), "the device was busy all the time"
    device.held.free.set()
    first.result(GENEROUS_SECONDS)
    assert device.ask(2.0, job()).result(GENEROUS_SECONDS) is not None
    assert device.held.order == [0.0, 2.0]
    with pytest.raises(DeadlineExceeded):
        device.engine.encode(device.model, frames(3.0), interactive(-1.0), FP32)


@pytest.mark.parametrize("priority", list(Priority))
def test_a_cancelled_caller_stops_waiting_at_once(device: HeldDevice, priority: Priority) -> None:
    first = device.ask(0.0, job())
    assert device.held.entered.wait(GENEROUS_SECONDS)
    context = RequestContext(priority)
    waiting = device.ask(1.0, context)
    context.cancel()
    with pytest.raises(Cancelled):
        waiting.result(GENEROUS_SECONDS)
    assert not first.done(), "the device was busy all the time"
    device.held.free.set()
    first.result(GENEROUS_SECONDS)
    with pytest.raises(Cancelled):
        device.engine.encode(device.model, frames(2.0), context, FP32)
    device.ask(3.0, job()).result(GENEROUS_SECONDS)
    assert device.held.order == [0.0, 3.0]


def test_a_cancelled_job_stops_after_the_chunk_it_is_in(device: HeldDevice) -> None:
    size = frames_per_call("cpu", Priority.JOB, CARD, 8, 8)
    context = job()
    with ThreadPoolExecutor(1) as pool:
        many = torch.cat([frames(1.0, size), frames(2.0, size)])
        running = pool.submit(lambda: device.engine.encode(device.model, many, context, FP32))
        assert device.held.entered.wait(GENEROUS_SECONDS)
        context.cancel()
        device.held.free.set()
        with pytest.raises(Cancelled):
            running.result(GENEROUS_SECONDS)
    assert device.held.order == [1.0]


def test_what_was_admitted_before_the_end_is_answered_and_nothing_after(
    device: HeldDevice, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("acpc_server.engine.owner.CLOSE_SECONDS", 0.05)  # its thread is held
    first = device.ask(0.0, job())
    assert device.held.entered.wait(GENEROUS_SECONDS)
    second = device.ask(1.0, job())
    device.engine.close()
    with pytest.raises(Unavailable) as rejected:
        device.engine.encode(device.model, frames(2.0), interactive(), FP32)
    assert rejected.value.retry_after is not None
    device.held.free.set()
    assert first.result(GENEROUS_SECONDS) is not None
    assert second.result(GENEROUS_SECONDS) is not None


def test_no_caller_is_left_behind_when_the_engine_closes_under_load() -> None:
    for _ in range(20):
        device = HeldDevice()
        device.held.free.set()
        start = threading.Barrier(9)
        ends: list[str] = []

        def call(
            device: HeldDevice = device, start: object = start, ends: list[str] = ends
        ) -> None:
            start.wait()  # type: ignore[attr-defined]
            try:
                device.engine.encode(device.model, frames(0.0), job(), FP32)
                ends.append("answered")
            except Unavailable:
                ends.append("rejected")

        threads = [threading.Thread(target=call) for _ in range(8)]
        for thread in threads:
            thread.start()
        start.wait()
        device.engine.close()
        for thread in threads:
            thread.join(GENEROUS_SECONDS)
        assert len(ends) == 8
        device.close()


def work(device: HeldDevice, mark: float, **changed: int) -> Work[list[float]]:
    """Encodes a frame that carries ``mark`` by one device call, unless it is larger."""

    def compute(payloads: Sequence[float], context: RequestContext) -> Sequence[torch.Tensor]:
        return [device.engine.encode(device.model, frames(x), context, FP32) for x in payloads]

    sizes: dict[str, Any] = {"rows": 1, "max_rows": 8, "drawing": 0.0, **changed}
    return Work("pair", (), mark, compute, finish=lambda found: found[0].tolist(), **sizes)


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
    first = device.ask(0.0, job())
    assert device.held.entered.wait(GENEROUS_SECONDS)
    late = interactive(0.3)
    late.waits = waits
    with pytest.raises(ResourceExhausted if waits else DeadlineExceeded) as told:
        asyncio.run(device.engine.ask(work(device, 1.0), late))
    assert told.value.reason == ("DEADLINE_CANNOT_BE_MET" if waits else "DEADLINE_EXCEEDED")
    assert not first.done(), "the device was busy all the time"
    device.held.free.set()
    device.ask(2.0, job()).result(GENEROUS_SECONDS)
    assert device.held.order == [0.0, 2.0]


def test_an_idle_device_holds_no_model() -> None:
    engine = DeviceClient(CPU, Metrics())
    model = PlainModel()
    engine.encode(model, frames(1.0), job(), FP32)
    gone = weakref.ref(model)
    del model
    wait_until(lambda: gone() is None)
    engine.close()
