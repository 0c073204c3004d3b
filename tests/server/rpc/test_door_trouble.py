"""The door says when its event loop does not answer, without waiting for it."""

from __future__ import annotations

import threading

from acpc_server.observe import Metrics
from acpc_server.rpc import Door, Ingress, ReadLimit, Receiver
from acpc_server.scheduling import CallerLimits, Quota, WorkerPool
from waiting import GENEROUS_SECONDS, wait_until


def test_an_event_loop_that_is_held_up_is_in_trouble_until_it_goes_on() -> None:
    ingress = Ingress(Receiver(1), CallerLimits(Quota()), ReadLimit(5.0))
    door = Door(Metrics(), WorkerPool(1), ingress)
    door.start()
    try:
        wait_until(lambda: not door.trouble())
        held = threading.Event()
        door._loop.call_soon_threadsafe(lambda: held.wait(GENEROUS_SECONDS))
        wait_until(door.trouble)
        assert door.trouble(), "and stays so"
        held.set()
        wait_until(lambda: not door.trouble())
    finally:
        held.set()
        door.stop(0)
