"""A signal's handler may interrupt the main thread anywhere."""

import sys
import threading
from collections.abc import Iterator
from itertools import count, takewhile
from types import FrameType
from typing import Any

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
