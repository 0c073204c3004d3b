"""Ends a process whose device has failed, or has computed one call for too long.

A process manager (systemd, Kubernetes, Compose) starts another in its place.
"""

from __future__ import annotations

import faulthandler
import os
import threading
import time
from collections.abc import Callable
from contextlib import suppress

import structlog

from acpc_server.observe import ServerHealth

log = structlog.get_logger("acpc.watchdog")
TICK_SECONDS = 1.0
# Exit code beside 0 (stopped), 1 (cannot start) and 2 (settings).
DEVICE_FAILED = 70
# From the verdict to the end of the process, to answer callers and withdraw jobs.
LEAVE_SECONDS = 8.0
# A process in which no Python runs for so long, in spite of the watchdog, is ended from C.
FREEZE_SECONDS = 600.0
STDERR = 2


class Watchdog:
    """Looks at the device call under way in a thread of its own.

    ``call`` returns a text for it, another for every call and '' for none; it may take
    ``most_seconds``. ``on_failed`` is called once, to leave in order; :data:`LEAVE_SECONDS` later
    the process is ended if it still runs. One in which no Python runs for far longer is ended from
    C, with exit code 1.
    """

    def __init__(
        self,
        call: Callable[[], str],
        most_seconds: float,
        health: ServerHealth,
        on_failed: Callable[[], None],
    ) -> None:
        self._call = call
        self._most_seconds = most_seconds
        self._health = health
        self._on_failed = on_failed
        self._failing = threading.Lock()
        self._woken = threading.Event()
        self._thread = threading.Thread(target=self._run, name="watchdog", daemon=True)

    def start(self) -> None:
        """Begin to look."""
        self._thread.start()

    def stop(self) -> None:
        """Look no more; a process whose device has failed is ended nevertheless."""
        if not self._failing.locked():
            self._woken.set()
            self._thread.join()

    def fail(self, why: str) -> None:
        """Leave, from any thread; the first reason counts."""
        if not self._failing.acquire(blocking=False):
            return
        self._health.fail(why)
        log.error("failed", why=why, exit_code=DEVICE_FAILED)
        self._woken.set()
        self._on_failed()

    def _run(self) -> None:
        freeze = max(FREEZE_SECONDS, 2 * self._most_seconds)
        under_way, lasted, last = "", 0.0, time.monotonic()
        while not self._woken.wait(TICK_SECONDS):
            with suppress(RuntimeError):  # no thread can be started
                # A native call that holds Python's lock stops this thread too.
                faulthandler.dump_traceback_later(freeze, exit=True, file=STDERR)
            now, call = time.monotonic(), self._call()
            # Of a longer pause two ticks count: a process that was stopped has not computed.
            same = bool(call) and call == under_way
            lasted = lasted + min(now - last, 2 * TICK_SECONDS) if same else 0.0
            under_way, last = call, now
            if lasted >= self._most_seconds:
                faulthandler.dump_traceback(STDERR)  # which says where it hangs
                self.fail(f"{call}, for {lasted:.0f} s")
        faulthandler.cancel_dump_traceback_later()
        if self._failing.locked():
            time.sleep(LEAVE_SECONDS)
            os._exit(DEVICE_FAILED)
