"""Requests that wait together for a device, so that they may share its next call."""

from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

from acpc.contract import NumericMode
from acpc_server.engine import DeviceClient
from acpc_server.scheduling import Priority, RequestContext
from plain_model import Held, PlainModel, frames
from waiting import GENEROUS_SECONDS, wait_until

T = TypeVar("T")


def calls(engine: DeviceClient, primitive: str) -> float:
    """Interactive device calls of a primitive so far."""
    samples = engine.metrics.compute.labels(primitive, "interactive")._child_samples()
    return next(sample.value for sample in samples if sample.name == "_count")


def answered(
    engine: DeviceClient,
    primitive: str,
    asks: Sequence[Callable[[RequestContext], T]],
    cancelled: int | None = None,
    device_calls: int = 1,
) -> list[Future[T]]:
    """The same, which took so many device calls of a primitive."""
    before = calls(engine, primitive)
    answers = together(engine, asks, cancelled)
    assert calls(engine, primitive) == before + device_calls
    return answers


def together(
    engine: DeviceClient,
    asks: Sequence[Callable[[RequestContext], T]],
    cancelled: int | None = None,
) -> list[Future[T]]:
    """The answers of requests that waited together in this order; one perhaps gave up."""
    held = Held()
    with ThreadPoolExecutor(16) as pool:
        job = RequestContext(Priority.JOB)
        model: PlainModel = PlainModel(held)
        first = pool.submit(engine.encode, model, frames(0.0), job, NumericMode.FP32)
        assert held.entered.wait(GENEROUS_SECONDS)
        contexts = [RequestContext(Priority.INTERACTIVE) for _ in asks]
        depth = engine.metrics.queue_depth.labels("interactive")._value
        answers: list[Future[T]] = []
        for one in zip(asks, contexts, strict=True):
            answers.append(pool.submit(*one))
            wait_until(lambda: depth.get() == len(answers))
        if cancelled is not None:
            contexts[cancelled].cancel()
        held.free.set()
        first.result(GENEROUS_SECONDS)
    return answers
