"""Who enters a busy server: the gate, and the threads behind it."""

from __future__ import annotations

import threading
import time
from contextlib import ExitStack

import pytest
from acpc_server.errors import ResourceExhausted
from acpc_server.scheduling.gate import Gate
from acpc_server.scheduling.workers import WorkerPool


def taught(seconds: float, calls: int = 60) -> Gate:
    """A gate that has seen calls inside for this long, one at a time."""
    gate = Gate(limit=8)
    for _ in range(calls):
        with gate.entered(None):
            time.sleep(seconds)
    return gate


def test_no_more_than_the_limit_are_inside() -> None:
    gate = Gate(limit=2)
    with ExitStack() as inside:
        inside.enter_context(gate.entered(None))
        inside.enter_context(gate.entered(None))
        with pytest.raises(ResourceExhausted) as refused, gate.entered(None):
            pass
    assert refused.value.reason == "SERVER_BUSY"
    assert refused.value.retry_after, "soon, but not at once"
    with gate.entered(None):
        pass


def test_a_call_that_would_be_late_is_refused_and_one_with_time_is_not() -> None:
    gate = taught(0.01)
    with ExitStack() as inside:
        for _ in range(4):
            inside.enter_context(gate.entered(None))
        with pytest.raises(ResourceExhausted), gate.entered(0.02):
            pass
        with gate.entered(10.0):
            pass


def test_answers_that_leave_together_cost_no_less_than_they_took() -> None:
    """Eight calls that share 10 ms leave at once; a ninth behind seven would take about as long."""
    gate = Gate(limit=8)
    for _ in range(30):
        with ExitStack() as batch:
            for _ in range(8):
                batch.enter_context(gate.entered(None))
            time.sleep(0.01)
    with ExitStack() as inside:
        for _ in range(7):
            inside.enter_context(gate.entered(None))
        with pytest.raises(ResourceExhausted) as refused, gate.entered(0.005):
            pass
        assert refused.value.retry_after is not None
        assert refused.value.retry_after >= 0.01


def test_an_idle_server_lets_every_call_try() -> None:
    """Nobody is ahead, so what was slow before may be fast now."""
    with taught(0.01).entered(0.001):
        pass


def test_a_place_is_given_back_when_the_call_fails() -> None:
    gate = Gate(limit=1)
    with pytest.raises(RuntimeError, match="broken"), gate.entered(None):
        raise RuntimeError("broken")
    with gate.entered(None):
        pass


def test_threads_are_overrun_only_when_all_are_taken_and_the_backlog_is_full() -> None:
    threads, go = WorkerPool(2, max_backlog=3), threading.Event()
    futures = []
    for _ in range(5):
        assert not threads.overrun
        futures.append(threads.submit(go.wait))
    assert threads.overrun
    go.set()
    for future in futures:
        future.result(timeout=10)
    deadline = time.monotonic() + 10
    while threads.overrun and time.monotonic() < deadline:
        time.sleep(0.01)
    assert not threads.overrun
    threads.shutdown()
