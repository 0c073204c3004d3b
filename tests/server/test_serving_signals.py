"""A signal's handler may interrupt the main thread anywhere, and a supervisor die at any moment."""

import os
import sys
import threading
from collections.abc import Iterator
from itertools import count, takewhile
from types import FrameType, SimpleNamespace
from typing import Any

import pytest
import structlog
from acpc_server import serving
from acpc_server.app import SignalEvent
from waiting import GENEROUS_SECONDS


def interrupted(place: int) -> bool:
    """Wait for an event that is set after so many of the wait's instructions; whether it ends."""
    event, passed, ended = SignalEvent(), count(), threading.Event()

    def trace(frame: FrameType, what: str, _: object) -> Any:  # noqa: ANN401 - as sys.settrace's
        frame.f_trace_opcodes = True
        if what == "opcode" and next(passed) == place:
            sys.settrace(None)
            event.set()
        return trace

    def wait() -> None:
        sys.settrace(trace)
        event.wait(0.001)
        sys.settrace(None)
        event.wait(0.0)
        ended.set()

    threading.Thread(target=wait, daemon=True).start()
    assert ended.wait(GENEROUS_SECONDS), f"it hangs where a signal comes at instruction {place}"
    return event.is_set()


def test_a_handler_may_set_an_event_at_any_moment_of_the_wait_for_it() -> None:
    places: Iterator[int] = takewhile(interrupted, count())
    assert len(list(places)) > 10, "the wait was traced"


def test_a_worker_ends_with_its_supervisor_whatever_that_had_asked(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The last question is read, and its answer has nowhere to go."""
    reading, writing = os.pipe()
    os.close(reading)
    server = SimpleNamespace(
        know_others=lambda ready: None, health=SimpleNamespace(ready=True), metrics_port=1
    )
    stop, hurry = SignalEvent(), SignalEvent()
    with os.fdopen(writing, "w") as pipe, structlog.testing.capture_logs():
        monkeypatch.setattr(sys, "stdout", pipe)
        serving._obey(["others 1\n"], server, stop, hurry)
        monkeypatch.undo()
    assert stop.is_set() and hurry.is_set()
