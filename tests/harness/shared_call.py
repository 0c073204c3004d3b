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


def in_line(engine: DeviceClient, *priorities: str) -> float:
    """How many wait for the device: interactive requests, or those of some priorities."""
    value = engine.metrics.registry.get_sample_value
    asked = priorities or ("interactive",)
    return sum(value("acpc_queue_depth", {"priority": one}) or 0.0 for one in asked)


def calls(engine: DeviceClient, primitive: str) -> float:
    labels = {"primitive": primitive, "priority": "interactive"}
    return engine.metrics.registry.get_sample_value("acpc_compute_seconds_count", labels) or 0.0


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
        answers: list[Future[T]] = []
        for one in zip(asks, contexts, strict=True):
            answers.append(pool.submit(*one))
            wait_until(lambda: in_line(engine) == len(answers))
        if cancelled is not None:
            contexts[cancelled].cancel()
        held.free.set()
        first.result(GENEROUS_SECONDS)
    return answers
